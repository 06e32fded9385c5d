"""Resources that show what two rules say together: made from what they ask, and really judged."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise, product
from typing import Final

import msgspec

from lictor.assembly import CompileOptions, compile_documents
from lictor.engine import Engine
from lictor.errors import LictorError
from lictor.families.registry import registry
from lictor.kubernetes.field_types import FieldType, find_field_type
from lictor.kubernetes.resource_names import ResourceNames
from lictor.lang.wildcard import match_wildcard
from lictor.lint.asking_rules import AskingRule
from lictor.lint.cluster_mutations import KeyPath, find_pod_spec
from lictor.lint.field_constraints import FieldConstraint
from lictor.lint.rule_matches import KnownKinds, MatchFilter
from lictor.lint.value_sets import Interval, OtherThan, Text, ValuePart, ValueSet, are_disjoint
from lictor.lint.value_sets import read_equal as read_value
from lictor.load.fields import read_record
from lictor.model.request import GroupVersionKind, Operation, Request
from lictor.model.result import Status
from lictor.raw import Json, JsonObject

_NAME: Final = "example"
_IMAGE: Final = "registry.example/app:1.0"
_ORDER: Final = (Operation.CREATE, Operation.UPDATE)
_WORST_FIRST: Final = (Status.ERROR, Status.FAIL, Status.PASS)
# What stands for a field that is not there.
ABSENT: Final = object()


class Example(msgspec.Struct, frozen=True):
    """A resource that two rules are asked about, and what its namespace is labelled with."""

    kind: GroupVersionKind
    resource: JsonObject
    operation: Operation
    namespace_labels: Mapping[str, str]

    def with_value(self, path: KeyPath, value: Json) -> "Example":
        """The same with another value at a field; ABSENT for none."""
        resource = deepcopy(self.resource)
        _put(resource, path, _type_value(self.kind, path, value))
        return msgspec.structs.replace(self, resource=resource)

    def read(self, path: KeyPath) -> Json:
        """The value at a field; ABSENT where there is none."""
        return _read(self.resource, path)


def start_examples(first: AskingRule, second: AskingRule, kinds: KnownKinds) -> Iterator[Example]:
    """Resources of which all is as both rules ask, but what they contradict each other in."""
    for one, other in product(first.match.filters, second.match.filters):
        shared = sorted(one.kinds & other.kinds, key=lambda kind: (kind.kind, kind.group))
        operations = [each for each in _ORDER if each in one.operations & other.operations]
        head = _make_head(one, other)
        if shared and operations and head is not None:
            kind = shared[0]
            resource = _make_resource(kind, head, kinds)
            labels = dict((*one.namespace_labels, *other.namespace_labels))
            made = Example(kind, resource, operations[0], labels)
            yield _settle(made, (*first.check.constraints, *second.check.constraints))


def _make_head(one: MatchFilter, other: MatchFilter) -> JsonObject | None:
    name = _choose(one.names, other.names)
    namespace = _choose(one.namespaces, other.namespaces)
    if name is None or namespace is None:
        return None
    labels = dict((*one.labels, *other.labels))
    head: JsonObject = {"name": name, "namespace": namespace}
    return {**head, "labels": labels} if labels else head


def _choose(one: tuple[str, ...], other: tuple[str, ...]) -> str | None:
    """A text that fits a pattern of each; of none, all texts fit."""
    tried = (_NAME, *map(_fill, one), *map(_fill, other))
    fits = (
        text
        for text in tried
        if all(not each or any(match_wildcard(p, text) for p in each) for each in (one, other))
    )
    return next(fits, None)


def _fill(pattern: str) -> str:
    return pattern.replace("*", "x").replace("?", "x")


def _make_resource(kind: GroupVersionKind, head: JsonObject, kinds: KnownKinds) -> JsonObject:
    if kinds.names.of_kind(kind.group, kind.version, kind.kind).namespaced is False:
        head = {key: value for key, value in head.items() if key != "namespace"}
    resource: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": head}
    found = find_pod_spec(kind.kind)
    if found is not None:
        _put(resource, (*found, "containers", "*", "name"), "main")
        _put(resource, (*found, "containers", "*", "image"), _IMAGE)
    return resource


def _settle(example: Example, constraints: Iterable[FieldConstraint]) -> Example:
    by_path: dict[KeyPath, list[ValueSet]] = {}
    for each in constraints:
        by_path.setdefault(each.path, []).append(each.allowed)
    for path, sets in by_path.items():
        held = _read(example.resource, path)
        tried = (held, *(value for each in sets for value in list_inside(each)))
        gap = _find_gap(example.resource, path)
        good = (v for v in tried if all(_allows(each, v, gap) for each in sets))
        value = next(good, held)
        if value is not held:
            example = example.with_value(path, value)
    return example


def _allows(allowed: ValueSet, value: Json, gap: int) -> bool:
    if value is ABSENT:
        return gap in allowed.absent
    found = read_value(value)
    if found is None:
        return any(part == OtherThan() for part in allowed.parts)
    return not are_disjoint(ValueSet((found,)), allowed)


# --- values


def list_inside(allowed: ValueSet) -> list[Json]:
    """A value of each part."""
    return [*map(_pick_inside, allowed.parts), *((ABSENT,) if allowed.absent else ())]


def list_outside(allowed: ValueSet) -> list[Json]:
    """Values near the edges that are not allowed, and others that may not be."""
    found = [value for part in allowed.parts for value in _pick_outside(part)]
    return [*found, _NAME]


def _pick_inside(part: ValuePart) -> Json:
    match part:
        case Text(pattern):
            return _fill(pattern)
        case OtherThan(patterns):
            return next(text for text in _list_others(patterns) if not _fits_any(patterns, text))
        case Interval(low, high):
            step = Decimal(1)
            if low is not None:
                return _write(low if part.has_low else low + step, part)
            return _write((high or Decimal(0)) - (0 if part.has_high else step), part)


def _list_others(patterns: frozenset[str]) -> Iterator[str]:
    if patterns <= {"true", "false"} and len(patterns) == 1:
        yield "false" if "true" in patterns else "true"
    yield from (_NAME, _IMAGE, "1", "x" * (1 + max(map(len, patterns), default=0)), "")


def _fits_any(patterns: frozenset[str], text: str) -> bool:
    return any(match_wildcard(pattern, text) for pattern in patterns)


def _pick_outside(part: ValuePart) -> Iterator[Json]:
    match part:
        case Text("true" | "false"):
            yield "false" if part.pattern == "true" else "true"
        case OtherThan(patterns):
            yield from (_fill(pattern) for pattern in sorted(patterns))
        case Interval(low, high):
            if low is not None:
                yield _write(low - 1 if part.has_low else low, part)
            if high is not None:
                yield _write(high + 1 if part.has_high else high, part)


def _write(number: Decimal, part: Interval) -> Json:
    if part.is_time:
        return f"{number / 10**9:f}s"
    return int(number) if number == number.to_integral_value() else f"{number:f}"


def _type_value(kind: GroupVersionKind, path: KeyPath, value: Json) -> Json:
    """A value as the field has it, by the schema of the kind."""
    found = find_field_type(kind.api_version, kind.kind)
    for step in path:
        found = _step_into(found, step)
    if found is None or value is ABSENT:
        return value
    types = found.scalar
    if value == _NAME and not types:
        return [{}] if found.element is not None else {} if found.fields or found.others else value
    if value in ("true", "false") and (types is None or bool in types):
        return value == "true"
    is_text = types is not None and str in types and not {int, bool} & types
    if is_text and isinstance(value, int):
        return str(value)
    return value


def _step_into(found: FieldType | None, step: str) -> FieldType | None:
    if found is None:
        return None
    return found.element if step == "*" else found.fields.get(step, found.others)


# --- fields of an object; `*` is the only item of a list


def _read(value: Json, path: KeyPath) -> Json:
    for step in path:
        if step == "*":
            value = value[0] if isinstance(value, list) and value else ABSENT
        else:
            value = value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def _find_gap(value: Json, path: KeyPath) -> int:
    """After how many steps nothing is there; all of them where only the field itself may lack."""
    gaps = (end for end in range(1, len(path)) if _read(value, path[:end]) is ABSENT)
    return next(gaps, len(path))


def _put(value: Json, path: KeyPath, leaf: Json) -> None:
    """Set or remove a field; what is missing on the way is made."""
    if leaf is ABSENT and _read(value, path) is ABSENT:
        return
    for step, following in pairwise(path):
        empty: Json = [] if following == "*" else {}
        if step == "*":
            if not value:
                value.append(empty)
            value = value[0]
        else:
            if not isinstance(value.get(step), type(empty)):
                value[step] = empty
            value = value[step]
    if leaf is ABSENT:
        value.pop(path[-1])
    else:
        value[path[-1]] = leaf


# --- what the engine says


class Judge:
    """Asks rules, each compiled by itself when it is first needed."""

    def __init__(self, kinds: KnownKinds) -> None:
        self.kinds = kinds
        self._engines: dict[int, Engine | None] = {}

    def ask(self, rule: AskingRule, example: Example) -> Status | None:
        """Whether a rule passes a resource, fails it or cannot tell; None where it is not asked."""
        if id(rule) not in self._engines:
            text = msgspec.json.encode(rule.document)
            self._engines[id(rule)] = _compile(text, self.kinds.names)
        engine = self._engines[id(rule)]
        if engine is None:
            return None
        is_update = example.operation is Operation.UPDATE
        request = Request.of(
            example.resource,
            operation=example.operation,
            old=example.resource if is_update else None,
            namespace_labels=example.namespace_labels,
        )
        found = {result.status for result in engine.evaluate(request).results}
        return next((each for each in _WORST_FIRST if each in found), None)


# An editor asks about the same rules with every letter that is typed elsewhere.
@lru_cache(maxsize=256)
def _compile(text: bytes, names: ResourceNames) -> Engine | None:
    body = msgspec.json.decode(text)
    kind = registry().find(body["apiVersion"].rpartition("/")[0], body["kind"])
    record: Json = None if kind is None else read_record(body, kind.load_record())[0]
    if record is None:
        return None
    options: CompileOptions = {"resource_names": names, "is_lazy": True}
    try:
        return Engine(compile_documents((record,), **options))
    except LictorError:
        return None


_CONTROLLERS: Final = {
    **dict.fromkeys(("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
}


def list_controllers(example: Example) -> Iterator[Example]:
    """The controllers that would make a Pod, with the same template each."""
    if example.kind.kind != "Pod":
        return
    metadata = example.resource["metadata"]
    tags = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    template = {"metadata": tags, "spec": example.resource.get("spec", {})}
    for kind, api_version in _CONTROLLERS.items():
        resource: JsonObject = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        _put(resource, (find_pod_spec(kind) or ())[:-1], template)
        named = GroupVersionKind.of(api_version, kind)
        yield msgspec.structs.replace(example, kind=named, resource=resource)
