"""Which policies does Kubewarden's controller refuse, and which changes of one?"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from lictor.addons.kubewarden.family.group_expression import compile_group_expression
from lictor.addons.kubewarden.family.records import (
    RECORDS,
    OperationRule,
    WasmRecord,
    find_namespace,
)
from lictor.core.errors import CompileError, SyntaxFaultError
from lictor.core.families.family import PolicyKind
from lictor.core.match.combine import REPORT_GROUPS
from lictor.core.model.finding import FieldPath, Finding, TextOffset
from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record

_LEAST_SECONDS = 2
_MOST_SECONDS = 30
_MOST_CONDITIONS = 64
_WORD = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_QUALIFIED = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# Names that an expression cannot use, as they are reserved in CEL.
_RESERVED = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return", "var"),
        *("void", "while"),
    )
)
_SCHEMES = ("file", "http", "https", "registry")
_POLICIES = "policies.kubewarden.io"
_POLICY_NAMES = frozenset(("*", "admissionpolicies", "admissionpolicygroups"))
_EVERY_RESOURCE = frozenset(("*", "*/*"))


def find_faults(record: WasmRecord) -> Iterator[Finding]:
    """All reasons why the controller refuses a policy, of every kind."""
    spec = record.spec
    yield from _check_rules(spec.rules, is_namespaced=bool(find_namespace(record)))
    yield from _check_conditions(spec.match_conditions)
    yield from _check_seconds(spec.timeout_seconds, ("spec", "timeoutSeconds"))
    if hasattr(spec, "policies"):
        yield from _check_group(spec)
    else:
        yield from _check_member(spec, ("spec",), spec.timeout_seconds)


def refuse_faults(record: WasmRecord) -> None:
    """CompileError where the controller would refuse the policy."""
    for fault in find_faults(record):
        raise CompileError(fault.field_and_text)


def check_document(kind: PolicyKind, body: Json) -> Iterable[Finding]:
    """The same for a document; fields that are missing or invalid are reported elsewhere."""
    try:
        record = convert_record(_drop_nulls(body), RECORDS[kind.kind])
    except msgspec.ValidationError:
        return ()
    return find_faults(record) if isinstance(record, WasmRecord) else ()


def check_change(document: JsonObject, old: JsonObject) -> Iterator[Finding]:
    """Deny a change from `protect` to `monitor`: it would turn protection off unnoticed."""
    before, after = _read_mode(old), _read_mode(document)
    if before == "protect" and after == "monitor":
        yield Finding(
            ("spec", "mode"),
            "a policy in mode protect cannot become one in mode monitor: delete it and create it "
            "anew",
        )


def _read_mode(document: JsonObject) -> str:
    spec = document.get("spec")
    mode = spec.get("mode") if isinstance(spec, dict) else None
    return mode if isinstance(mode, str) else "protect"


def _drop_nulls(body: Json) -> Json:
    """As the API server leaves them out of what has a schema; settings have none."""
    if isinstance(body, dict):
        return {
            key: value if key == "settings" else _drop_nulls(value)
            for key, value in body.items()
            if value is not None
        }
    return [_drop_nulls(each) for each in body] if isinstance(body, list) else body


# --- which requests


def _check_rules(rules: tuple[OperationRule, ...], *, is_namespaced: bool) -> Iterator[Finding]:
    if not rules:
        yield _find(("spec", "rules"), "there must be a rule: without one nothing is evaluated")
    for index, rule in enumerate(rules):
        path: FieldPath = ("spec", "rules", index)
        for field, words in (
            ("operations", rule.operations),
            ("apiVersions", rule.api_versions),
            ("resources", rule.resources),
        ):
            if not words or "" in words:
                yield _find((*path, field), "must have values, none of them empty")
        if not rule.api_groups:
            yield _find((*path, "apiGroups"), 'must have values; "" is the core group')
        if is_namespaced:
            yield from _check_reach(rule, path)


def find_reach_fault(record: WasmRecord) -> str:
    """Why a policy of a namespace must not evaluate what its rules select; else empty."""
    if not find_namespace(record):
        return ""
    for index, rule in enumerate(record.spec.rules):
        for fault in _check_reach(rule, ("spec", "rules", index)):
            return fault.field_and_text
    return ""


def _check_reach(rule: OperationRule, path: FieldPath) -> Iterator[Finding]:
    """What the policies of a namespace must leave alone."""
    everything = "*" in rule.api_groups
    if everything and not _EVERY_RESOURCE.isdisjoint(rule.resources):
        yield _find(path, "a policy of one namespace cannot be about all resources of all groups")
        return
    reports = everything or not REPORT_GROUPS.isdisjoint(rule.api_groups)
    if reports and any(_names_reports(each) for each in rule.resources):
        yield _find(path, "a policy of one namespace cannot be about the reports on it")
    policies = everything or _POLICIES in rule.api_groups
    if policies and any(each.partition("/")[0] in _POLICY_NAMES for each in rule.resources):
        # Else it could refuse its own deletion, and what is written into statuses.
        yield _find(path, "a policy of one namespace cannot be about policies")


def _names_reports(resource: str) -> bool:
    plural = resource.partition("/")[0]
    return plural in ("*", "policyreports", "reports", "ephemeralreports")


def _check_conditions(conditions: tuple[Any, ...]) -> Iterator[Finding]:
    path: FieldPath = ("spec", "matchConditions")
    if len(conditions) > _MOST_CONDITIONS:
        yield _find(path, f"there may be {_MOST_CONDITIONS} at most")
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        here = (*path, index)
        if not _QUALIFIED.fullmatch(condition.name):
            yield _find((*here, "name"), f"{condition.name!r} is no name for a condition")
        elif condition.name in seen:
            yield _find((*here, "name"), f"{condition.name!r} stands twice")
        seen.add(condition.name)
        yield from _check_condition(condition.expression, (*here, "expression"))


def _check_condition(expression: str, path: FieldPath) -> Iterator[Finding]:
    # The engine of that language is heavy, and few policies have conditions.
    from lictor.core.evaluate.cel.expressions import ExpressionCompiler
    from lictor.core.lang.cel.kubernetes import kubernetes_environment

    try:
        ExpressionCompiler(kubernetes_environment(has_params=False)).condition(expression, "")
    except CompileError as error:
        yield Finding(path, error.message, check="bad-expression")


# --- rules


def _check_group(spec: Any) -> Iterator[Finding]:
    path: FieldPath = ("spec", "policies")
    if not spec.policies:
        yield _find(path, "a group has at least one member")
    for name, member in spec.policies.items():
        if name in _RESERVED or not _WORD.fullmatch(name):
            yield _find((*path, name), f"{name!r} cannot be called in an expression")
        yield from _check_member(member, (*path, name), spec.timeout_seconds)
    seconds = sum(member.timeout_eval_seconds or 0 for member in spec.policies.values())
    if seconds > spec.timeout_seconds:
        yield _find(
            path,
            f"all timeoutEvalSeconds together are {seconds}, more than timeoutSeconds "
            f"({spec.timeout_seconds})",
        )
    if not spec.message:
        yield _find(("spec", "message"), "must not be empty")
    try:
        compile_group_expression(spec.expression, spec.policies)
    except SyntaxFaultError as error:
        offset = TextOffset(error.text, error.position)
        place: FieldPath = ("spec", "expression")
        yield Finding(place, error.message, check="bad-expression", offset=offset)


def _check_member(spec: Any, path: FieldPath, most: int) -> Iterator[Finding]:
    scheme, found, rest = spec.module.partition("://")
    if not spec.module or (found and (scheme not in _SCHEMES or not rest)):
        schemes = ", ".join(f"{each}://" for each in _SCHEMES)
        yield _find((*path, "module"), f"must be the address of a module: {schemes}")
    seconds = spec.timeout_eval_seconds
    if seconds is not None:
        yield from _check_seconds(seconds, (*path, "timeoutEvalSeconds"))
        if seconds > most:
            yield _find(
                (*path, "timeoutEvalSeconds"),
                f"must not be more than timeoutSeconds ({most})",
            )


def _check_seconds(seconds: int, path: FieldPath) -> Iterator[Finding]:
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        yield _find(path, f"must be from {_LEAST_SECONDS} to {_MOST_SECONDS}, not {seconds}")


def _find(path: FieldPath, message: str) -> Finding:
    return Finding(path, message, check="bad-settings")
