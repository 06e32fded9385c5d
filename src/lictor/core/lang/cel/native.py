"""The one door to the CEL engine (cel-expr-python): two kinds of environment, its bugs kept out.

A checker knows every type and finds mistakes; it never runs. The runtime runs what a checker has
approved and knows only what can be told apart at run time: an opaque value (a quantity, an address)
travels as a map with one key, the name of its type.
"""

import ctypes
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from cel_expr_python import cel  # type: ignore[import-untyped]  # it ships no py.typed

from lictor.core.errors import FunctionError, LictorError
from lictor.core.lang.cel.types import CelType, Implementation, Overload
from lictor.core.lang.cel.values import admit, admit_text
from lictor.core.lang.written_size import ensure_room
from lictor.core.raw import Json

Checker: TypeAlias = Json
Runtime: TypeAlias = Json

# Functions that the engine's own libraries declare too: more ways to call them are merged in, or,
# as merging knows no opaque types, they are all declared anew.
_REDECLARED = {
    "string": ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"),
}
_MERGED = frozenset({"indexOf", "lastIndexOf", "math.round", "_<_", "_<=_", "_>_", "_>=_"})
# Opaque to the checker; when it runs they are maps without a name.
_PLAIN_MAPS = frozenset({"Object", "JSONPatch"})
_PLAIN = {
    "bool": cel.Type.BOOL, "int": cel.Type.INT, "uint": cel.Type.UINT, "double": cel.Type.DOUBLE,
    "string": cel.Type.STRING, "bytes": cel.Type.BYTES, "timestamp": cel.Type.TIMESTAMP,
    "duration": cel.Type.DURATION, "list": cel.Type.LIST, "map": cel.Type.MAP,
    "type": cel.Type.TYPE, "dyn": cel.Type.DYN, "null_type": cel.Type.NULL,
}  # fmt: skip


def _keep_none_alive() -> None:
    # The engine returns None without counting the reference, so that after some thousand nulls the
    # interpreter would free None and abort. From Python 3.12 on None is immortal anyway.
    if sys.version_info < (3, 12):
        ctypes.c_ssize_t.from_address(id(None)).value += 1 << 60


_keep_none_alive()


def build_checker(
    extensions: Iterable[str], variables: Mapping[str, CelType], overloads: Iterable[Overload]
) -> Checker:
    """An environment that types expressions."""
    groups = _group(overloads)
    yaml = {name: group for name, group in groups.items() if _needs_yaml(group)}
    merged = [_declare(name, group) for name, group in groups.items() if name in _MERGED]
    plain = [
        _declare(name, group)
        for name, group in groups.items()
        if name not in yaml and name not in _MERGED
    ]
    anew = [name for name in groups if name in _REDECLARED]
    config = cel.NewEnvConfigFromYaml(_configuration(extensions, variables, yaml, anew))
    return cel.NewEnv(
        config=config,
        functions=plain,
        extensions=[cel.CelExtension("lictor", [*merged, *_cross_type_comparisons()])],
    )


def build_runtime(extensions: Iterable[str], overloads: Iterable[Overload]) -> Runtime:
    """An environment that runs expressions, whatever checker they came from."""
    declared = [
        cel.FunctionDecl(name, list(_runtime_overloads(name, group)))
        for name, group in _group(overloads).items()
    ]
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_configuration(extensions, {}, {})),
        extensions=[cel.CelExtension("lictor", [*declared, *_loop_functions()])],
    )


class _Described:
    """What the engine asks a protobuf message for: the name of its type."""

    def __init__(self, full_name: str) -> None:
        self.full_name = full_name


# The engine takes a date only where a date is declared, but a protobuf message anywhere; it knows
# one by these attributes and by the name of its class.
class Timestamp:
    """A moment that a function of any result type may return."""

    DESCRIPTOR = _Described("google.protobuf.Timestamp")

    def __init__(self, moment: datetime) -> None:
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        self.seconds = since.days * 86400 + since.seconds
        self.nanos = since.microseconds * 1000


class Duration:
    """A length of time that a function of any result type may return."""

    DESCRIPTOR = _Described("google.protobuf.Duration")

    def __init__(self, length: timedelta) -> None:
        whole = abs(length)
        sign = -1 if length < timedelta() else 1
        self.seconds = sign * (whole.days * 86400 + whole.seconds)
        self.nanos = sign * whole.microseconds * 1000


class Interruption:
    """Why an evaluation must end, once it must.

    To raise an error in it is not enough, as the engine makes a text of it, and goes on.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: LictorError | None = None


# That of the main thread, where nobody sets another.
interruption: ContextVar[Interruption] = ContextVar("interruption", default=Interruption())  # noqa: B039
# The last error that one of our functions raised: the engine keeps only its text. Evaluations on
# several threads do not see each other's.
remembered_error: ContextVar[LictorError | None] = ContextVar("remembered_error", default=None)


def _group(overloads: Iterable[Overload]) -> dict[str, list[Overload]]:
    groups: dict[str, list[Overload]] = {}
    for overload in overloads:
        groups.setdefault(overload.name, []).append(overload)
    return groups


def _needs_yaml(group: list[Overload]) -> bool:
    return group[0].name not in _MERGED and any(
        kind.needs_yaml() for overload in group for kind in (*overload.parameters, overload.result)
    )


def _declare(name: str, group: list[Overload]) -> cel.FunctionDecl:
    standard = [
        cel.Overload(f"standard {name} {kind}", _PLAIN[name], [_PLAIN[kind]])
        for kind in _REDECLARED.get(name, ())
    ]
    return cel.FunctionDecl(
        name,
        [
            *standard,
            *(
                cel.Overload(
                    overload.identity,
                    _native_type(overload.result),
                    [_native_type(kind) for kind in overload.parameters],
                    is_member=overload.is_member,
                )
                for overload in group
            ),
        ],
    )


def _native_type(kind: CelType) -> cel.Type:
    if kind.is_parameter:
        return cel.Type.DYN
    if kind.name == "list" and kind.parameters:
        return cel.Type.List(_native_type(kind.parameters[0]))
    if kind.name == "map" and kind.parameters:
        key, value = kind.parameters
        return cel.Type.Map(_native_type(key), _native_type(value))
    return _PLAIN.get(kind.name) or cel.Type.AbstractType(kind.name)


def _configuration(
    extensions: Iterable[str],
    variables: Mapping[str, CelType],
    functions: Mapping[str, list[Overload]],
    excluded: Iterable[str] = (),
) -> str:
    lines = ["extensions:", *(f"- {{{_yaml_extension(name)}}}" for name in extensions)]
    if excluded:
        names = ", ".join(f"{{name: {name}}}" for name in excluded)
        lines += [f"stdlib: {{exclude_functions: [{names}]}}"]
    lines += ["variables:"] if variables else []
    lines += [f'- {{name: "{name}", {_yaml_type(kind)}}}' for name, kind in variables.items()]
    lines += ["functions:"] if functions else []
    for name, group in functions.items():
        lines += [f'- name: "{name}"', "  overloads:"]
        lines += [f"  - {_yaml_overload(overload)}" for overload in group]
    return "\n".join(lines)


def _yaml_extension(extension: str) -> str:
    name, _, version = extension.partition(":")
    return f"name: {name}, version: {version}" if version else f"name: {name}"


def _yaml_type(kind: CelType) -> str:
    name = f'type_name: "{kind.name.lstrip("~")}"'
    if kind.is_parameter:
        return f"{name}, is_type_param: true"
    if not kind.parameters:
        return name
    inner = ", ".join(f"{{{_yaml_type(parameter)}}}" for parameter in kind.parameters)
    return f"{name}, params: [{inner}]"


def _yaml_overload(overload: Overload) -> str:
    kinds = [f"{{{_yaml_type(kind)}}}" for kind in overload.parameters]
    target = f"target: {kinds.pop(0)}, " if overload.is_member else ""
    result = f"{{{_yaml_type(overload.result)}}}"
    return f'{{id: "{overload.identity}", {target}args: [{", ".join(kinds)}], return: {result}}}'


def _cross_type_comparisons() -> list[cel.FunctionDecl]:
    # The engine compares an int with a double, but its checker does not know.
    numbers = ("int", "uint", "double")
    return [
        cel.FunctionDecl(
            operator,
            [
                cel.Overload(
                    f"{operator} {left} {right}", cel.Type.BOOL, [_PLAIN[left], _PLAIN[right]]
                )
                for left in numbers
                for right in numbers
                if left != right
            ],
        )
        for operator in ("_<_", "_<=_", "_>_", "_>=_")
    ]


def _loop_functions() -> list[cel.FunctionDecl]:
    # transformMap() and its sister expand to insertions, which the engine forgets to register; see
    # `loops` for what becomes of them.
    return [
        _plain_function("cel.@mapOfEntries", [cel.Type.LIST], _build_map),
        _plain_function("cel.@keys", [cel.Type.MAP], list),
    ]


def _plain_function(name: str, kinds: list[Json], call: Implementation) -> cel.FunctionDecl:
    return cel.FunctionDecl(name, [cel.Overload(name, cel.Type.DYN, kinds, impl=call)])


def _build_map(entries: list[Json]) -> dict[Json, Json]:
    """A map of entries, each a pair or a small map; a key that comes twice is an error."""
    built: dict[Json, Json] = {}
    for entry in entries:
        pairs = entry.items() if isinstance(entry, dict) else (entry,)
        for key, value in pairs:
            if key in built:
                raise FunctionError(f"insert failed: key {key} already exists")
            built[key] = value
    return built


def _runtime_overloads(name: str, group: list[Overload]) -> Iterable[cel.Overload]:
    shapes: dict[tuple[bool, tuple[str, ...]], list[Overload]] = {}
    for overload in group:
        shape = (overload.is_member, tuple(_shape(kind) for kind in overload.parameters))
        shapes.setdefault(shape, []).append(overload)
    for (is_member, kinds), alike in shapes.items():
        yield cel.Overload(
            f"{name} {is_member} {kinds}",
            cel.Type.DYN,
            [_PLAIN[kind] for kind in kinds],
            is_member=is_member,
            impl=_remembering(_dispatch(alike)),
        )


def _shape(kind: CelType) -> str:
    if kind.is_parameter:
        return "dyn"
    return "map" if kind.is_opaque else kind.name


def _dispatch(alike: list[Overload]) -> Implementation:
    """One implementation for overloads that differ only in what their opaque values are."""
    if len(alike) == 1:
        return _adapt(alike[0])
    if len({each.implementation for each in alike}) == 1 and not _has_opaque(alike[0]):
        call = alike[0].implementation
        return lambda *given: _finish_json(call(*given))
    table = {_tags(overload): _adapt(overload) for overload in alike}

    def dispatch(*given: Json) -> Json:
        for tags, implementation in table.items():
            if all(tag is None or tag in value for tag, value in zip(tags, given, strict=True)):
                return implementation(*given)
        raise FunctionError(f"no such overload: {alike[0].name}")

    return dispatch


def _has_opaque(overload: Overload) -> bool:
    return any(tag is not None for tag in _tags(overload))


def _tags(overload: Overload) -> tuple[str | None, ...]:
    return tuple(
        kind.name if kind.is_opaque and kind.name not in _PLAIN_MAPS else None
        for kind in overload.parameters
    )


def _adapt(overload: Overload) -> Implementation:
    """Unpack opaque arguments, pack an opaque result, mend what the engine would spoil."""
    call = overload.implementation
    if _has_opaque(overload):
        call = _unpacking(overload.name, call, _tags(overload))
    finish = _finisher(overload.result)
    return call if finish is None else lambda *given: finish(call(*given))


def _unpacking(
    name: str, call: Implementation, tags: tuple[str | None, ...]
) -> Callable[..., Json]:
    def unpacked(*given: Json) -> Json:
        try:
            plain = [
                value if tag is None else value[tag] for tag, value in zip(tags, given, strict=True)
            ]
        except KeyError:
            raise FunctionError(f"no such overload: {name}") from None
        return call(*plain)

    return unpacked


def _finisher(result: CelType) -> Callable[[Json], Json] | None:
    if result.is_opaque:
        return lambda value: {result.name: value}
    if result.name == "bytes":
        # Given as bytes, the engine would cut them at the first zero.
        return bytearray
    if result.name == "string":
        return admit_text
    if result.name == "list" and result.parameters and result.parameters[0].is_opaque:
        name = result.parameters[0].name
        return lambda values: [{name: value} for value in values]
    return None if result.name in {"bool", "int", "uint", "double"} else _finish_json


def _finish_json(value: Json) -> Json:
    if isinstance(value, datetime):
        return Timestamp(value)
    if isinstance(value, timedelta):
        return Duration(value)
    if not isinstance(value, dict | list | str):
        return value
    ensure_room(value)
    return admit(value)


def _remembering(call: Implementation) -> Implementation:
    def remembered(*given: Json) -> Json:
        over = interruption.get().error
        if over is not None:
            # The engine goes on with a loop after an error: nothing more is done in it.
            raise over
        try:
            return call(*given)
        except LictorError as error:
            remembered_error.set(error)
            raise

    return remembered
