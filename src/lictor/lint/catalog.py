"""The checks by name: how severe is what each of them finds, and what does it look for?"""

from types import MappingProxyType

import msgspec

from lictor.model.finding import FieldPath, Finding, Severity, TextOffset


class LintCheck(msgspec.Struct, frozen=True):
    """What a report may say about a check."""

    name: str
    severity: Severity
    summary: str


_ERRORS = {
    "bad-document": "The file is not YAML, or holds something that is not a Kubernetes object.",
    "unknown-kind": "A kind of policy, or a version of one, that does not exist.",
    "unknown-field": "A field that nobody reads: mostly a misspelt one.",
    "bad-field": "A field that is missing, of the wrong type, or not one of the known words.",
    "duplicate-key": "A key that stands twice in one object: one of them is lost.",
    "bad-name": "A name that is missing or longer than 63 characters.",
    "duplicate-name": "Two rules, conditions or variables of one policy with the same name.",
    "bad-rule": "A rule that does nothing, or more than one thing.",
    "bad-validate": "A validate rule or foreach without a body, or with more than one.",
    "bad-mutate": "A mutate rule or foreach without a patch, with two, or with a broken one.",
    "bad-generate": "A generate rule without a source, with two, or with an incomplete target.",
    "bad-images": "A policy about images that could not verify anything.",
    "bad-pod-security": "A level, version or control that the Pod Security Standards do not have.",
    "bad-settings": "Settings of a policy that contradict each other or are out of range.",
    "bad-match": "A match or exclude that is empty, incomplete, or mixes forms.",
    "bad-selector": "A label selector that Kubernetes would refuse.",
    "never-matches": "A rule, or a filter of it, that can never match anything.",
    "wildcard-kind": "A rule about all kinds that needs to know the kind.",
    "bad-scope": "A namespaced policy that reaches out of its namespace, or the reverse.",
    "bad-expression": "An expression that does not parse, or cannot answer what it should.",
    "unbalanced-braces": "Braces that were meant to hold an expression, but do not.",
    "unknown-function": "A call of a function that does not exist.",
    "wrong-arguments": "A call of a function with too few or too many arguments.",
    "misplaced-variable": "A variable where it has no value, such as element outside of foreach.",
    "background": "Something that background scans cannot know: callers, subresources.",
    "bad-condition": "A condition without key, operator or value, or with an unknown operator.",
    "bad-pattern": "A pattern with a malformed anchor or a reference to nothing.",
    "bad-context": "A context entry without a source, with two, or with a name that is taken.",
    "bad-schedule": "A schedule that is not a cron expression.",
    "outdated-file": "A file of an older form, which is refused.",
    "missing-file": "A file that a test names and that does not exist.",
    "bad-result": "An expected result that no rule can give.",
    "unknown-target": "A test that names a policy, rule or resource which is not among its files.",
}
_WARNINGS = {
    "unknown-variable": "A variable that nothing defines.",
    "unused-context": "A context entry that nothing uses.",
    "unused-variable": "A variable of a policy in CEL that nothing uses.",
    "unknown-property": "A field that the objects of a policy in CEL do not have.",
    "duplicate-context": "Two context entries of one name: the first is lost.",
    "unknown-controller": "An autogen annotation that names something else than a pod controller.",
    "unknown-resource": "A kind written unlike all kinds, or a resource that does not exist.",
    "subresource-kind": "A kind that is sent to subresources only, named without one.",
    "unknown-reference": "An exception or binding for what is not among the given files.",
    "repeated-patch": "A patch that would add the same element twice.",
    "weak-images": "A policy about images that lets more or less pass than it seems to.",
    "deprecated": "Something that works, but has been replaced.",
}

CHECKS = MappingProxyType(
    {
        name: LintCheck(name, severity, summary)
        for severity, group in ((Severity.ERROR, _ERRORS), (Severity.WARNING, _WARNINGS))
        for name, summary in group.items()
    }
)


def flag(
    check: str,
    path: FieldPath,
    message: str,
    suggestion: str = "",
    offset: TextOffset | None = None,
) -> Finding:
    """What a check found at a path, as severe as the catalogue says."""
    return Finding(path, message, suggestion, CHECKS[check].severity, check, offset=offset)


def as_lint_finding(finding: Finding) -> Finding:
    """What the loader says about a field, as the check that `lint` has for it."""
    # Unknown fields are warnings where policies are loaded, and errors here.
    is_unknown = finding.severity is Severity.WARNING
    check = "unknown-field" if is_unknown else "bad-field"
    return flag(check, finding.path, finding.message, finding.suggestion)
