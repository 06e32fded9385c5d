"""The review of an object that is to be stored: errors reject it, warnings do not.

If scripts look for Kyverno's exact words, findings use these.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from lictor.core.model.finding import Finding, Severity, write_path

# Kyverno's message for a finding, instead of lictor's, by its code.
_Wording: TypeAlias = Callable[[Finding], str]


def _say_several_bodies(finding: Finding) -> str:
    words = "only one of pattern, anyPattern, deny, foreach, cel can be specified"
    return f"path: {finding.field}..: {words}"


def _say_not_one_word(finding: Finding) -> str:
    # The path of the rule, of which the entry is a part.
    return (
        f"path: {write_path(finding.path[:-3])}: context entry name {finding.arguments[0]} is "
        "invalid, it must be a single word when the validation rule uses `assert`"
    )


def _say_deprecated(finding: Finding) -> str:
    operator, *others = finding.arguments
    instead = " ".join(f'"{name}"' for name in others)
    return (
        f"Operator {operator} has been deprecated and will be removed soon. "
        f"Use these instead: [{instead}]"
    )


def _say_no_constraints(finding: Finding) -> str:
    needed = "a matchConstraints with at least one resource rule is required"
    return f"{finding.field}.matchConstraints: Required value: {needed}"


def _say_no_images(finding: Finding) -> str:
    name = f'{finding.field}.controlName: Invalid value: "{finding.arguments[0]}"'
    return f"{name}: exclude.images must be specified for the container level control"


_WORDINGS: dict[str, _Wording] = {
    "several-bodies": _say_several_bodies,
    "not-one-word": _say_not_one_word,
    "unknown-operator": lambda finding: (
        f"{finding.field}: entered value of `operator` is invalid: {finding.arguments[0]}"
    ),
    "no-match-constraints": _say_no_constraints,
    "deprecated-operator": _say_deprecated,
    "undefined-field": lambda finding: (
        f"{finding.field}: undefined field '{finding.arguments[0]}'; no such field in the schema"
    ),
    "images-required": _say_no_images,
    "values-required": lambda finding: f"{finding.field}.values: Forbidden: values is required",
    "restricted-field-required": lambda finding: (
        f"{finding.field}.restrictedField: Forbidden: restrictedField is required"
    ),
}


def _say_bad_variable(finding: Finding) -> str:
    written = _find_variable(finding) or f"{{{{{finding.arguments[0]}}}}}"
    return f"variable {written} is not allowed"


def _find_variable(finding: Finding) -> str:
    """The variable as it is written, with its braces; empty where it stands in none."""
    if finding.offset is None:
        return ""
    text, at = finding.offset.text, finding.offset.offset
    begin, end = text.rfind("{{", 0, at), text.find("}}", at)
    return text[begin : end + 2] if begin >= 0 and end >= 0 else ""


# Kyverno's message is added to lictor's if the latter is longer: by check and code.
_ADDITIONS: dict[tuple[str, str], _Wording] = {
    ("background", "caller-unknown"): lambda finding: (
        f"invalid variable used at path: {finding.field.replace('.', '/')}"
    ),
    ("background", "variable-unknown"): _say_bad_variable,
    ("bad-rule", "cel-preconditions"): lambda _: (
        "celPrecondition can only be used with validate.cel"
    ),
}


def describe_finding(finding: Finding) -> str:
    """Path and reason of a finding, what was probably meant, and Kyverno's message."""
    wording = _WORDINGS.get(finding.code)
    if wording is not None:
        return wording(finding)
    addition = _ADDITIONS.get((finding.check, finding.code))
    told = finding.field_and_text
    return told if addition is None else f"{told} ({addition(finding)})"


# The API server cuts what is longer, and people read the first lines.
_MOST_WARNINGS = 20
_LONGEST_WARNING = 250
_MOST_ERRORS = 20


class ReviewResult(msgspec.Struct, frozen=True):
    """What is wrong, and what someone should look at. Without errors, the object may be stored."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.errors

    @property
    def message(self) -> str:
        """The errors, one line each."""
        shown = list(self.errors[:_MOST_ERRORS])
        if len(self.errors) > _MOST_ERRORS:
            shown.append(f"and {len(self.errors) - _MOST_ERRORS} more")
        return "\n".join(shown)

    def __add__(self, other: "ReviewResult") -> "ReviewResult":
        return ReviewResult(
            tuple(dict.fromkeys((*self.errors, *other.errors))),
            tuple(dict.fromkeys((*self.warnings, *other.warnings))),
        )

    def soften(self) -> "ReviewResult":
        """The same where nothing may be refused."""
        return ReviewResult((), (*self.errors, *self.warnings))

    def shorten(self) -> "ReviewResult":
        """With no more warnings than an API server hands on."""
        cut = tuple(each[:_LONGEST_WARNING] for each in self.warnings[:_MOST_WARNINGS])
        return ReviewResult(self.errors, cut)


ACCEPTED = ReviewResult()


def build_review_result(findings: Iterable[Finding]) -> ReviewResult:
    """Findings as path and reason: errors and warnings as `lint` knows them."""
    errors: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for finding in findings:
        is_error = finding.severity is Severity.ERROR
        (errors if is_error else warnings)[describe_finding(finding)] = None
    return ReviewResult(tuple(errors), tuple(warnings))
