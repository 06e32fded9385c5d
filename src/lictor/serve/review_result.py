"""What is said about an object that someone wants to store: errors refuse it, warnings do not.

Where scripts look for Kyverno's very words, findings are told in these.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from lictor.model.finding import FieldPath, Finding, Severity, write_path

_Phrase: TypeAlias = Callable[[FieldPath, re.Match[str]], str]


def _say_one_body(path: FieldPath, _: re.Match[str]) -> str:
    words = "only one of pattern, anyPattern, deny, foreach, cel can be specified"
    return f"path: {write_path(path)}..: {words}"


def _say_one_word(path: FieldPath, match: re.Match[str]) -> str:
    # The path of the rule, of which the entry is a part.
    return (
        f"path: {write_path(path[:-3])}: context entry name {match[1]} is invalid, it must be a "
        "single word when the validation rule uses `assert`"
    )


def _say_deprecated(_: FieldPath, match: re.Match[str]) -> str:
    instead = " ".join(f'"{name}"' for name in match[2].split(" or "))
    return (
        f"Operator {match[1]} has been deprecated and will be removed soon. "
        f"Use these instead: [{instead}]"
    )


def _say_bad_operator(path: FieldPath, match: re.Match[str]) -> str:
    return f"{write_path(path)}: entered value of `operator` is invalid: {match[1]}"


def _say_no_constraints(path: FieldPath, _: re.Match[str]) -> str:
    needed = "a matchConstraints with at least one resource rule is required"
    return f"{write_path(path)}.matchConstraints: Required value: {needed}"


def _say_undefined(path: FieldPath, match: re.Match[str]) -> str:
    return f"{write_path(path)}: undefined field '{match[1]}'; no such field in the schema"


def _say_no_images(path: FieldPath, match: re.Match[str]) -> str:
    name = f'{write_path(path)}.controlName: Invalid value: "{match[1]}"'
    return f"{name}: exclude.images must be specified for the container level control"


def _say_no_values(path: FieldPath, _: re.Match[str]) -> str:
    return f"{write_path(path)}.values: Forbidden: values is required"


def _say_no_field(path: FieldPath, _: re.Match[str]) -> str:
    return f"{write_path(path)}.restrictedField: Forbidden: restrictedField is required"


# The check (any, where it is empty), what our own words look like, and Kyverno's.
_PHRASES: tuple[tuple[str, re.Pattern[str], _Phrase], ...] = (
    ("bad-validate", re.compile("expected exactly one of pattern.* found .* and "), _say_one_body),
    ("bad-context", re.compile('"(.*)" is not one word, .*assert'), _say_one_word),
    ("bad-condition", re.compile('there is no operator "(.*)"'), _say_bad_operator),
    ("bad-match", re.compile("nothing says which requests"), _say_no_constraints),
    ("deprecated", re.compile("(In|NotIn) is replaced by (.*)$"), _say_deprecated),
    ("", re.compile("undefined field '(.*)'$"), _say_undefined),
    ("", re.compile("(.*) is about containers: exclude.images must be"), _say_no_images),
    ("", re.compile(".*: restrictedField needs values$"), _say_no_values),
    ("", re.compile(".*: values need a restrictedField$"), _say_no_field),
)


def _say_bad_caller(finding: Finding, _: re.Match[str]) -> str:
    path = write_path(finding.path).replace(".", "/")
    return f"invalid variable used at path: {path}"


def _say_bad_variable(finding: Finding, match: re.Match[str]) -> str:
    return f"variable {_find_variable(finding) or f'{{{{{match[1]}}}}}'} is not allowed"


def _find_variable(finding: Finding) -> str:
    """The variable as it is written, with its braces; empty where it stands in none."""
    if finding.offset is None:
        return ""
    text, at = finding.offset.text, finding.offset.offset
    begin, end = text.rfind("{{", 0, at), text.find("}}", at)
    return text[begin : end + 2] if begin >= 0 and end >= 0 else ""


def _say_bad_cel(_: Finding, __: re.Match[str]) -> str:
    return "celPrecondition can only be used with validate.cel"


# What Kyverno says is added to our own words where these say more.
_Addition: TypeAlias = Callable[[Finding, re.Match[str]], str]
_ADDITIONS: tuple[tuple[str, re.Pattern[str], _Addition], ...] = (
    ("background", re.compile("background scans know of no caller"), _say_bad_caller),
    ("background", re.compile("(.*) is not known in background scans"), _say_bad_variable),
    ("bad-rule", re.compile("celPreconditions are for validate.cel"), _say_bad_cel),
)


def describe_finding(finding: Finding) -> str:
    """Path and reason of a finding, what was probably meant, and what Kyverno would say."""
    told = _tell(finding)
    for check, pattern, addition in _ADDITIONS:
        match = pattern.match(finding.message) if check == finding.check else None
        if match is not None:
            return f"{told} ({addition(finding, match)})"
    return told


def _tell(finding: Finding) -> str:
    for check, pattern, phrase in _PHRASES:
        match = pattern.match(finding.message) if check in ("", finding.check) else None
        if match is not None:
            return phrase(finding.path, match)
    path = f"{write_path(finding.path)}: " if finding.path else ""
    hint = f' (did you mean "{finding.suggestion}"?)' if finding.suggestion else ""
    return f"{path}{finding.message}{hint}"


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
