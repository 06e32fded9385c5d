"""Rules in CEL that stand in the schema of a custom kind (`x-kubernetes-validations`)."""

import re
from datetime import timedelta
from functools import cache, lru_cache

import msgspec

from lictor.apiserver.kind import Cause
from lictor.apiserver.kinds.schema_checks import ABSENT, Say, find_partners
from lictor.apiserver.kinds.schema_values import to_cel
from lictor.apiserver.kinds.schema_words import (
    INVALID,
    duplicate,
    forbidden,
    name_type,
    required,
    show,
)
from lictor.apiserver.kinds.structural import Schema
from lictor.errors import EvaluationError, SyntaxFaultError, TooLargeError
from lictor.lang.cel.activation import Activation
from lictor.lang.cel.environment import Environment, kubernetes_environment, runtime
from lictor.lang.cel.expression import Expression, compile_expression
from lictor.lang.cel.kinds import DYN
from lictor.lang.cel.tokens import read_tokens
from lictor.raw import Json, JsonObject

_OLD = "oldSelf"
_MICROSECOND = timedelta(microseconds=1)
_FIELD = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['((?:\\'|[^'])*)'\]")


@cache
def _environment() -> Environment:
    usual = kubernetes_environment(has_params=False, has_authorizer=False)
    variables = {"self": DYN, _OLD: DYN}
    return Environment("CustomResourceDefinition", usual.extensions, variables, usual.overloads)


class Rule(msgspec.Struct, frozen=True):
    """A rule, ready to be asked."""

    raw: JsonObject
    holds: Expression
    # Where `oldSelf` may be missing: the rule without it.
    holds_without: Expression | None
    tell: Expression | None
    is_transition: bool


def compile_rule(raw: JsonObject) -> Rule:
    """Read a rule; SyntaxFaultError where it makes no sense."""
    told = raw.get("messageExpression") or ""
    return _compile(raw["rule"], told, show(raw), is_lenient=raw.get("optionalOldSelf") is True)


@lru_cache(maxsize=1024)
def _compile(text: str, told: str, raw: str, *, is_lenient: bool) -> Rule:
    environment = _environment()
    mentions = any(token.text == _OLD for token in read_tokens(text))
    holds = compile_expression(
        _replace_old(text, "optional.of(oldSelf)") if is_lenient else text, environment
    )
    without = None
    if is_lenient:
        without = compile_expression(_replace_old(text, "optional.none()"), environment)
    tell = compile_expression(told, environment) if told else None
    return Rule(msgspec.json.decode(raw), holds, without, tell, mentions and not is_lenient)


def _replace_old(text: str, replacement: str) -> str:
    for token in reversed(read_tokens(text)):
        if token.kind == "name" and token.text == _OLD:
            text = text[: token.start] + replacement + text[token.end :]
    return text


def check_rules(schema: Schema, value: Json, old: Json, path: str, say: Say) -> None:
    """Ask all rules about a value and about what is in it."""
    if not schema.has_rules or value is None:
        return
    if schema.rules:
        _check_here(schema, value, old, path, say)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key in sorted(value):
            known = schema.find(key)
            if known is not None:
                place = f"{path}.{key}" if path else key
                check_rules(known, value[key], before.get(key, ABSENT), place, say)
    elif isinstance(value, list) and schema.items is not None:
        partners = find_partners(schema, value, old)
        for index, (item, partner) in enumerate(zip(value, partners, strict=True)):
            check_rules(schema.items, item, partner, f"{path}[{index}]", say)


def _check_here(schema: Schema, value: Json, old: Json, path: str, say: Say) -> None:
    is_known = old is not ABSENT and old is not None
    # What was as it is now is let be; only rules about changes are asked again.
    is_same = is_known and value == old
    values: dict[str, Json] = {"self": to_cel(schema, value)}
    if is_known:
        values[_OLD] = to_cel(schema, old)
    activation = Activation(runtime().Activation(values), values, is_large=_is_large(value))
    for raw in schema.rules:
        try:
            rule = compile_rule(raw)
        except SyntaxFaultError:
            # A definition with such a rule is refused; this one is older than the check.
            continue
        if (is_same and not rule.is_transition) or (rule.is_transition and not is_known):
            continue
        fault = _ask(rule, activation, value, is_known=is_known)
        if fault is not None:
            say(_place(fault, rule.raw, path))


def _is_large(value: Json) -> bool:
    return isinstance(value, (dict, list)) and len(show(value)) > 8192


def _ask(rule: Rule, activation: Activation, value: Json, *, is_known: bool) -> Cause | None:
    """The fault without its place; None where the rule holds."""
    raw = rule.raw
    expression = rule.holds if is_known or rule.holds_without is None else rule.holds_without
    message = (raw.get("message") or "").strip()
    try:
        if expression(activation) is True:
            return None
    except (EvaluationError, TooLargeError) as error:
        about = message or f"rule: {raw['rule']}"
        return _blame("", value, f"{error} evaluating rule: {about.removeprefix('rule: ')}")
    return _blame(raw.get("reason") or "", value, _tell(rule, activation, message))


def _tell(rule: Rule, activation: Activation, message: str) -> str:
    if rule.tell is not None:
        try:
            told = rule.tell(activation)
        except (EvaluationError, TooLargeError):
            told = None
        if isinstance(told, str) and told.strip() and "\n" not in told:
            return told
    return message or f"failed rule: {rule.raw['rule'].strip()}"


def _blame(reason: str, value: Json, message: str) -> Cause:
    match reason:
        case "FieldValueForbidden":
            return forbidden("", message)
        case "FieldValueRequired":
            return required("", message)
        case "FieldValueDuplicate":
            return duplicate("", value)
        case _:
            return Cause(INVALID, f"Invalid value: {show(name_type(value))}: {message}", "")


def _place(fault: Cause, raw: JsonObject, path: str) -> Cause:
    for name, quoted in _FIELD.findall(raw.get("fieldPath") or ""):
        path = f"{path}.{name}" if path and name else f"{path}[{quoted}]" if quoted else name
    return msgspec.structs.replace(fault, field=path or "<nil>")
