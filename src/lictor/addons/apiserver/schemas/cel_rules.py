"""Rules in CEL that stand in the schema of a custom kind (`x-kubernetes-validations`)."""

import base64
import binascii
import re
from functools import lru_cache

import msgspec

from lictor.addons.apiserver.field_errors import (
    INVALID,
    AddCause,
    Cause,
    duplicate,
    forbidden,
    name_type,
    required,
    show,
)
from lictor.addons.apiserver.json_fields import read_text
from lictor.addons.apiserver.schemas.schema_validation import ABSENT, find_partners
from lictor.addons.apiserver.schemas.structural_schema import StructuralSchema
from lictor.core.errors import EvaluationError, SyntaxFaultError, TooLargeError
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    Activation,
    Expression,
    compile_expression,
    declare_variable,
)
from lictor.core.lang.cel.kubernetes import (
    LATEST,
    NEW_EXPRESSIONS,
    Version,
    kubernetes_environment,
    rule_environment,
)
from lictor.core.lang.cel.lexer import read_tokens
from lictor.core.lang.cel.library.conversions import parse_timestamp
from lictor.core.lang.cel.library.plain import admit
from lictor.core.lang.cel.values import Duration, Value
from lictor.core.lang.duration import parse_duration
from lictor.core.raw import Json, JsonObject

# Kubernetes leaves these out of `request`: they are separate variables.
_NOT_IN_REQUEST = frozenset(("object", "oldObject"))


def find_type(
    text: str, variables: Json, *, is_stored: bool = False, has_patches: bool = False
) -> str:
    """The type; SyntaxFaultError where the text makes no sense.

    `variables` are those that the policy declares, in the order in which they use each other.
    `is_stored`: the expression was accepted before, and may use newer functions.
    """
    _check_request(text)
    version = LATEST if is_stored else NEW_EXPRESSIONS
    environment = kubernetes_environment(version=version, has_patches=has_patches)
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


def to_cel(schema: StructuralSchema, value: Json) -> Value:
    """The value with the types that its schema names."""
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


def _convert(schema: StructuralSchema, key: str, value: Json) -> Value:
    known = schema.find(key)
    return admit(value) if known is None else to_cel(known, value)


def _escape(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    return _ODD.sub(lambda match: _NAMES[match.group()], name)


def _convert_text(schema: StructuralSchema, text: str) -> Value:
    try:
        match schema.raw.get("format"):
            case "date-time":
                return parse_timestamp(text.upper())
            case "date":
                return parse_timestamp(f"{text}T00:00:00Z")
            case "duration":
                return Duration(int(parse_duration(text)))
            case "byte":
                return base64.b64decode(text)
    except (ValueError, OverflowError, binascii.Error, EvaluationError):
        # The format was checked before: what cannot be read here is odd, and stays a text.
        pass
    return admit(text)


_OLD = "oldSelf"
_FIELD = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['((?:\\'|[^'])*)'\]")


class SchemaRule(msgspec.Struct, frozen=True):
    """A compiled rule."""

    raw: JsonObject
    holds: Expression
    # Where `oldSelf` may be missing: the rule without it.
    holds_without: Expression | None
    message: Expression | None
    is_transition: bool


def compile_rule(raw: JsonObject, *, is_stored: bool = True) -> SchemaRule:
    """Read a rule; SyntaxFaultError where it makes no sense."""
    detail = raw.get("messageExpression") or ""
    is_lenient = raw.get("optionalOldSelf") is True
    version = LATEST if is_stored else NEW_EXPRESSIONS
    return _compile(raw["rule"], detail, show(raw), version, is_lenient=is_lenient)


@lru_cache(maxsize=1024)
def _compile(text: str, detail: str, raw: str, version: Version, *, is_lenient: bool) -> SchemaRule:
    environment = rule_environment(version)
    mentions = any(token.text == _OLD for token in read_tokens(text))
    holds = compile_expression(
        _replace_old(text, "optional.of(oldSelf)") if is_lenient else text, environment
    )
    without = None
    if is_lenient:
        without = compile_expression(_replace_old(text, "optional.none()"), environment)
    message = compile_expression(detail, environment) if detail else None
    return SchemaRule(
        msgspec.json.decode(raw), holds, without, message, mentions and not is_lenient
    )


def _replace_old(text: str, replacement: str) -> str:
    for token in reversed(read_tokens(text)):
        if token.kind == "name" and token.text == _OLD:
            text = text[: token.start] + replacement + text[token.end :]
    return text


def check_rules(schema: StructuralSchema, value: Json, old: Json, path: str, add: AddCause) -> None:
    """Evaluate all rules on a value and on the values inside it."""
    if not schema.has_rules or value is None:
        return
    if schema.rules:
        _check_here(schema, value, old, path, add)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key in sorted(value):
            known = schema.find(key)
            if known is not None:
                place = f"{path}.{key}" if path else key
                check_rules(known, value[key], before.get(key, ABSENT), place, add)
    elif isinstance(value, list) and schema.items is not None:
        partners = find_partners(schema, value, old)
        for index, (item, partner) in enumerate(zip(value, partners, strict=True)):
            check_rules(schema.items, item, partner, f"{path}[{index}]", add)


def _check_here(schema: StructuralSchema, value: Json, old: Json, path: str, add: AddCause) -> None:
    is_known = old is not ABSENT and old is not None
    # Unchanged values are only evaluated by transition rules.
    is_same = is_known and value == old
    values: dict[str, Json] = {"self": to_cel(schema, value)}
    if is_known:
        values[_OLD] = to_cel(schema, old)
    activation = Activation(values)
    for raw in schema.rules:
        try:
            rule = compile_rule(raw)
        except SyntaxFaultError:
            # A definition with such a rule is refused; this one is older than the check.
            continue
        if (is_same and not rule.is_transition) or (rule.is_transition and not is_known):
            continue
        fault = _evaluate(rule, activation, value, is_known=is_known)
        if fault is not None:
            add(_place(fault, rule.raw, path))


def _evaluate(
    rule: SchemaRule, activation: Activation, value: Json, *, is_known: bool
) -> Cause | None:
    """The fault without its place; None where the rule holds."""
    raw = rule.raw
    expression = rule.holds if is_known or rule.holds_without is None else rule.holds_without
    message = (raw.get("message") or "").strip()
    try:
        if expression(activation) is True:
            return None
    except (EvaluationError, TooLargeError) as error:
        about = message or f"rule: {raw['rule']}"
        return _build_cause("", value, f"{error} evaluating rule: {about.removeprefix('rule: ')}")
    return _build_cause(raw.get("reason") or "", value, _format_message(rule, activation, message))


def _format_message(rule: SchemaRule, activation: Activation, message: str) -> str:
    if rule.message is not None:
        try:
            detail = rule.message(activation)
        except (EvaluationError, TooLargeError):
            detail = None
        if isinstance(detail, str) and detail.strip() and "\n" not in detail:
            return detail
    return message or f"failed rule: {rule.raw['rule'].strip()}"


def _build_cause(reason: str, value: Json, message: str) -> Cause:
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
