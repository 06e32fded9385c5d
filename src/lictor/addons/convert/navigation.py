"""Steps from one value to another: fields, elements, defaults, lists that are gone through."""

from msgspec.structs import replace

from lictor.addons.convert.cel_values import TEXT, CelValue, LoopNames
from lictor.addons.convert.value import (
    NOTHING,
    Constant,
    Either,
    LoopList,
    LoopSource,
    RequestValue,
    ResourcePath,
    Several,
    Value,
    is_true,
    settle,
)
from lictor.addons.convert.writing import literal
from lictor.core.errors import CompileError
from lictor.core.raw import Json

_REQUEST_TEXTS = frozenset(("namespace", "name", "operation", "subResource"))
_REQUEST_MAPS = frozenset(("kind", "userInfo", "resource"))
_USER_FIELDS = {"username": TEXT, "uid": TEXT, "kind": TEXT, "group": TEXT, "version": TEXT}


def step_into(one: Value, name: str, *, strict: bool) -> Value:
    """A field of a value; nothing where it has none."""
    match one:
        case RequestValue():
            return _request_field(one, name)
        case ResourcePath():
            return ResourcePath(one.subject, (*one.steps, name))
        case CelValue():
            made = one.step(name)
            if one.text.startswith("request.") and name in _USER_FIELDS:
                made = replace(made, shape=_USER_FIELDS[name])
            return made.certain() if strict else made
        case Constant() if isinstance(one.value, dict):
            return Constant(one.value.get(name))
    return NOTHING


def _request_field(request: RequestValue, name: str) -> Value:
    if name == "object":
        return ResourcePath(request.subject)
    if name == "oldObject":
        return ResourcePath(replace(request.subject, root="oldObject", operation=""))
    if name == "operation" and request.subject.operation:
        return Constant(request.subject.operation)
    if name in _REQUEST_TEXTS:
        return CelValue(f"request.{name}", TEXT)
    if name in _REQUEST_MAPS:
        return CelValue(f"request.{name}", label=name)
    raise CompileError(f"request.{name} has no equivalent")


def require(value: Value) -> Value:
    """The same value, evaluated to an error where it is missing."""
    value = settle(value)
    return value.certain() if isinstance(value, CelValue) else value


# --- lists


def as_stream(one: Value, names: LoopNames) -> Value:
    """A value as a list to iterate over; nothing if it is not a list."""
    if isinstance(one, LoopList | Several):
        return one
    if isinstance(one, Constant) and isinstance(one.value, list):
        return Several(tuple(Constant(item) for item in one.value))
    if not isinstance(one, CelValue) or one.type not in ("list", ""):
        return NOTHING
    name, _ = names.fresh(one.label)
    item = CelValue(name, one.shape.element, foreign=one.foreign)
    return LoopList((LoopSource(one, name),), item)


def names_inside(stream: LoopList, names: LoopNames) -> LoopNames:
    """The names that are taken inside of the loops."""
    for source in stream.sources:
        names = names.also(source.name)
    return names


# --- defaults


def with_default(left: Value, right: Value) -> Value:
    """`left || right`."""
    if isinstance(left, LoopList) and isinstance(right, Constant) and right.value == []:
        return left.or_empty()
    if isinstance(left, CelValue) and isinstance(right, Constant) and _is_zero(left, right.value):
        shape = left.shape
        if not left.type and right.value == "":
            shape = TEXT
        text = left.or_value(literal(right.value))
        return CelValue(text, shape, label=left.label, foreign=left.foreign)
    return Either(is_true(left), left, right)


_ZEROS: dict[str, Json] = {"string": "", "list": [], "map": {}}


def _is_zero(left: CelValue, value: Json) -> bool:
    """Whether what counts as false is no more and no less than the default."""
    if left.type == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if left.type == "boolean":
        return value is False
    if left.type:
        return bool(value == _ZEROS[left.type])
    return value in ("", [], {})
