"""Cleanup policies and exceptions: everything that can be said about them before anything runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from lictor.errors import CompileError
from lictor.lang.cron import compile_schedule
from lictor.lang.wildcard import match_wildcard
from lictor.lint.catalog import flag
from lictor.lint.conditions import check_conditions
from lictor.lint.context import check_context
from lictor.lint.contradictions import check_contradictions
from lictor.lint.match import Manner, check_match
from lictor.lint.part import Part
from lictor.lint.places import (
    check_expressions,
    list_cleanup_places,
    list_exception_places,
)
from lictor.lint.pod_security import check_control
from lictor.lint.rules import check_name
from lictor.load.fields import suggest
from lictor.model.finding import Finding
from lictor.raw import Json

# The names of a policy's rules, by the policy's name (`namespace/name` for a namespaced one).
KnownRules = Mapping[str, Iterable[str]]
_AUTOGEN: tuple[Callable[[str], str], ...] = (
    lambda rule: rule,
    lambda rule: f"autogen-{rule}",
    lambda rule: f"autogen-cronjob-{rule}",
)


def lint_cleanup(body: Json) -> list[Finding]:
    """What is wrong with a CleanupPolicy or ClusterCleanupPolicy."""
    policy = Part(body)
    spec = policy["spec"]
    manner = Manner(
        is_namespaced=policy["kind"].text == "CleanupPolicy",
        has_callers=False,
        reason="nobody asks for a cleanup: it cannot depend on callers",
        caller_check="bad-match",
    )
    excluding = replace(manner, needs_kinds=False)
    return [
        *check_name(policy["metadata"]["name"], "policy"),
        *_check_schedule(spec["schedule"]),
        *check_match(spec["match"], manner),
        *check_match(spec["exclude"], excluding),
        *check_contradictions(spec),
        *check_conditions(spec["conditions"]),
        *check_context(spec["context"], spec),
        *_check_sources(spec["context"]),
        *check_expressions(list_cleanup_places(spec)),
    ]


def _check_schedule(schedule: Part) -> Iterator[Finding]:
    if not schedule.text:
        return
    try:
        compile_schedule(schedule.text)
    except CompileError as error:
        yield flag("bad-schedule", schedule.path, error.message)


def _check_sources(context: Part) -> Iterator[Finding]:
    for entry in context.each():
        for name in entry.present("imageRegistry", "configMap"):
            message = f"a cleanup policy cannot use {name}"
            yield flag("bad-context", entry[name].path, message)


def lint_exception(body: Json, known: KnownRules) -> list[Finding]:
    """What is wrong with a PolicyException; `known` are the rules of the given policies, if any."""
    exception = Part(body)
    spec = exception["spec"]
    manner = Manner(
        needs_kinds=False,
        has_callers=spec["background"].value is False,
        reason="background scans know of no caller: set spec.background to false",
    )
    findings = [
        *check_name(exception["metadata"]["name"], "exception"),
        *check_match(spec["match"], manner),
        *check_conditions(spec["conditions"]),
        *check_expressions(list_exception_places(spec)),
    ]
    for control in spec["podSecurity"].each():
        findings.extend(check_control(control))
    for entry in spec["exceptions"].each() if known else ():
        findings.extend(_check_reference(entry, known))
    return findings


def _check_reference(entry: Part, known: KnownRules) -> Iterator[Finding]:
    policy = entry["policyName"]
    if not policy.text:
        return
    if policy.text not in known:
        message = f'no policy "{policy.text}" is among the given files'
        yield flag("unknown-reference", policy.path, message, suggest(policy.text, known))
        return
    names = [form(rule) for rule in known[policy.text] for form in _AUTOGEN]
    for rule in entry["ruleNames"].each():
        if rule.text and not any(match_wildcard(rule.text, name) for name in names):
            message = f'policy "{policy.text}" has no rule "{rule.text}"'
            yield flag("unknown-reference", rule.path, message, suggest(rule.text, names))
