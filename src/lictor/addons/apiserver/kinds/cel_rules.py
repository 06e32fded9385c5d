"""Rules in CEL that stand in the schema of a custom kind (`x-kubernetes-validations`)."""

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache

import msgspec

from lictor.addons.apiserver.field_errors import (
    INVALID,
    Cause,
    Say,
    duplicate,
    forbidden,
    name_type,
    required,
    show,
)
from lictor.addons.apiserver.json_fields import read_text
from lictor.addons.apiserver.kinds.schema_validation import ABSENT, find_partners
from lictor.addons.apiserver.kinds.structural_schema import StructuralSchema
from lictor.core.errors import EvaluationError, FunctionError, SyntaxFaultError, TooLargeError
from lictor.core.lang.cel.environment import (
    Activation,
    Environment,
    kubernetes_environment,
    runtime,
)
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    Expression,
    compile_expression,
    declare_variable,
)
from lictor.core.lang.cel.native import Duration, Timestamp
from lictor.core.lang.cel.rewriting import read_tokens
from lictor.core.lang.cel.types import DYN
from lictor.core.lang.cel.values import admit
from lictor.core.lang.duration import parse_duration
from lictor.core.raw import Json, JsonObject

# Kubernetes leaves these out of `request`: they are variables of their own.
_NOT_IN_REQUEST = frozenset(("object", "oldObject"))


def find_type(text: str, variables: Json) -> str:
    """The type; SyntaxFaultError where the text makes no sense.

    `variables` are those that the policy declares, in the order in which they use each other.
    """
    _check_request(text)
    environment = kubernetes_environment()
    known = NO_VARIABLES
    for each in variables or ():
        name = read_text(each, "name")
        known = declare_variable(known, name, read_text(each, "expression"), environment)
    return compile_expression(text, environment, known).result_type


def _check_request(text: str) -> None:
    tokens = read_tokens(text) if "request" in text else []
    before = ""
    for number, token in enumerate(tokens[:-2]):
        dot, field = tokens[number + 1], tokens[number + 2]
        is_request = token.text == "request" and before != "." and dot.text == "."
        if is_request and field.text in _NOT_IN_REQUEST:
            raise SyntaxFaultError(f"undefined field '{field.text}'", text=text)
        before = token.text


_RESERVED = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
    "if", "import", "let", "loop", "package", "namespace", "return",
))  # fmt: skip
_ODD = re.compile(r"__|[.\-/]")
_NAMES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def to_cel(schema: StructuralSchema, value: Json) -> Json:
    """The value as the engine takes it."""
    if isinstance(value, dict):
        return {
            _escape(key) if key in schema.names else key: _convert(schema, key, inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        items = schema.items
        return [admit(each) if items is None else to_cel(items, each) for each in value]
    if isinstance(value, str):
        return _convert_text(schema, value)
    if schema.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return admit(value)


def _convert(schema: StructuralSchema, key: str, value: Json) -> Json:
    known = schema.find(key)
    return admit(value) if known is None else to_cel(known, value)


def _escape(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    return _ODD.sub(lambda match: _NAMES[match.group()], name)


def _convert_text(schema: StructuralSchema, text: str) -> Json:
    try:
        match schema.raw.get("format"):
            case "date-time":
                moment = datetime.fromisoformat(text.upper())
                return Timestamp(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
            case "date":
                return Timestamp(datetime.fromisoformat(text).replace(tzinfo=UTC))
            case "duration":
                return Duration(timedelta(microseconds=parse_duration(text) / 1000))
            case "byte":
                return bytearray(base64.b64decode(text))
    except (ValueError, OverflowError, binascii.Error, FunctionError):
        # The format was checked before: what cannot be read here is odd, and stays a text.
        pass
    return admit(text)


_OLD = "oldSelf"
_MICROSECOND = timedelta(microseconds=1)
_FIELD = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['((?:\\'|[^'])*)'\]")


@cache
def _environment() -> Environment:
    usual = kubernetes_environment(has_params=False, has_authorizer=False)
    variables = {"self": DYN, _OLD: DYN}
    return Environment("CustomResourceDefinition", usual.extensions, variables, usual.overloads)


class SchemaRule(msgspec.Struct, frozen=True):
    """A rule, ready to be asked."""

    raw: JsonObject
    holds: Expression
    # Where `oldSelf` may be missing: the rule without it.
    holds_without: Expression | None
    tell: Expression | None
    is_transition: bool


def compile_rule(raw: JsonObject) -> SchemaRule:
    """Read a rule; SyntaxFaultError where it makes no sense."""
    told = raw.get("messageExpression") or ""
    return _compile(raw["rule"], told, show(raw), is_lenient=raw.get("optionalOldSelf") is True)


@lru_cache(maxsize=1024)
def _compile(text: str, told: str, raw: str, *, is_lenient: bool) -> SchemaRule:
    environment = _environment()
    mentions = any(token.text == _OLD for token in read_tokens(text))
    holds = compile_expression(
        _replace_old(text, "optional.of(oldSelf)") if is_lenient else text, environment
    )
    without = None
    if is_lenient:
        without = compile_expression(_replace_old(text, "optional.none()"), environment)
    tell = compile_expression(told, environment) if told else None
    return SchemaRule(msgspec.json.decode(raw), holds, without, tell, mentions and not is_lenient)


def _replace_old(text: str, replacement: str) -> str:
    for token in reversed(read_tokens(text)):
        if token.kind == "name" and token.text == _OLD:
            text = text[: token.start] + replacement + text[token.end :]
    return text


def check_rules(schema: StructuralSchema, value: Json, old: Json, path: str, say: Say) -> None:
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


def _check_here(schema: StructuralSchema, value: Json, old: Json, path: str, say: Say) -> None:
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


def _ask(rule: SchemaRule, activation: Activation, value: Json, *, is_known: bool) -> Cause | None:
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


def _tell(rule: SchemaRule, activation: Activation, message: str) -> str:
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
