"""Generates resources from a policy, to find differences between two forms of it."""

import random
import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import chain, islice

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.cel_values import ValueShape, find_shape
from lictor.addons.convert.sample_fields import ALL, KEYS, ComparedField, Path, list_compared_fields
from lictor.addons.convert.selection import ResolvedKind, select
from lictor.core.errors import CompileError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.classic.autogen import expand_rules
from lictor.core.model.matching import Match, ResourceFilter
from lictor.core.model.policy import Policy
from lictor.core.model.request import Caller, Operation, Request
from lictor.core.raw import Json, JsonObject

_SEED = 20_240_601
_COMBINATIONS = 60
_MOST_OF_A_KIND = 400
_PAIRS = 40
_RANGE = re.compile(r"([0-9]+)([A-Za-z]*)!?-([0-9]+)([A-Za-z]*)")
_SIGNS = re.compile(r"^(>=|<=|>|<|!)")
_TEMPLATES = {
    "Pod": (),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    **dict.fromkeys(
        ("Deployment", "DaemonSet", "Job", "StatefulSet", "ReplicaSet", "ReplicationController"),
        ("spec", "template"),
    ),
}
_MISSING = object()


def make_requests(policy: Policy, names: ResourceNames, groups: Iterable[str]) -> list[Request]:
    """Requests about resources that the policy concerns, or nearly does."""
    chance = random.Random(_SEED)  # noqa: S311  (the same samples each time)
    objects: list[JsonObject] = []
    for kind, points in _list_kinds(policy, names, groups):
        objects += _Maker(kind, points, chance).objects()
    unique = {msgspec.json.encode(each): each for each in objects}
    made = list(unique.values())
    # In a cluster there is always a caller; where that matters, there is one here, too.
    caller = Caller("system:serviceaccount:default:sample") if _reads_caller(policy) else None
    requests = [*map(Request.of, made), *_others(policy, made, chance)]
    return [each if each.caller else replace(each, caller=caller) for each in requests]


def _reads_caller(policy: Policy) -> bool:
    text = str(policy.spec.rules)
    return "serviceAccountName }}" in text.replace("Name}}", "Name }}") or "userInfo" in text


def _list_kinds(
    policy: Policy, names: ResourceNames, groups: Iterable[str]
) -> Iterator[tuple[ResolvedKind, list[ComparedField]]]:
    found: dict[tuple[str, str], tuple[ResolvedKind, list[ComparedField]]] = {}
    for rule in expand_rules(policy):
        try:
            kinds = select(rule, names, groups).kinds
        except CompileError:
            continue
        points = list_compared_fields(rule)
        for kind in kinds:
            if kind.subresource or kind.kind == "*":
                continue
            _, known = found.setdefault((kind.api_version, kind.kind), (kind, []))
            known += [point for point in points if point not in known]
    return iter(found.values())


# --- other requests than to create


def _others(policy: Policy, objects: list[JsonObject], chance: random.Random) -> Iterator[Request]:
    validates = any(rule.validate is not None for rule in policy.spec.rules)
    by_kind: dict[str, list[JsonObject]] = {}
    for each in objects:
        by_kind.setdefault(str(each["kind"]), []).append(each)
    for kind, alike in by_kind.items():
        for _ in range(min(_PAIRS, len(alike))):
            old, new = chance.choice(alike), chance.choice(alike)
            update = Request.of(new, operation=Operation.UPDATE, old=old)
            yield update
            if not validates:
                continue
            yield Request.of(old, operation=Operation.DELETE)
            if kind == "Pod":
                yield replace(update, subresource="ephemeralcontainers")
    callers = list(_callers(policy))
    for each in chance.sample(objects, min(_PAIRS, len(objects))):
        for caller in callers:
            yield Request.of(each, caller=caller)
        for labels in _namespace_labels(policy):
            yield Request.of(each, namespace_labels=labels)


def _filters(policy: Policy) -> Iterator[ResourceFilter]:
    for rule in policy.spec.rules:
        for match in (rule.match, rule.exclude or Match()):
            yield ResourceFilter(match.resources, match.subjects)
            yield from (*match.any, *match.all)


def _callers(policy: Policy) -> Iterator[Caller]:
    subjects = [subject for each in _filters(policy) for subject in each.subjects]
    if subjects or any("userInfo" in str(rule.preconditions) for rule in policy.spec.rules):
        yield Caller("user", groups=("system:authenticated",))
    for subject in subjects:
        name = subject.name.replace("*", "x")
        if subject.kind == "Group":
            yield Caller("user", groups=(name,))
        elif subject.kind == "ServiceAccount":
            yield Caller(f"system:serviceaccount:{subject.namespace}:{name}")
        else:
            yield Caller(name)


def _namespace_labels(policy: Policy) -> Iterator[dict[str, str]]:
    for each in _filters(policy):
        selector = each.resources.namespace_selector
        if selector is None:
            continue
        yield {"some": "label"}
        yield dict(selector.match_labels)
        for wanted in selector.match_expressions:
            for value in wanted.values or ("some",):
                yield {**selector.match_labels, wanted.key: value}


# --- objects of one kind


class _Maker(msgspec.Struct, frozen=True):
    kind: ResolvedKind
    points: list[ComparedField]
    chance: random.Random

    def objects(self) -> list[JsonObject]:
        values = {point.path: self._values(point) for point in self.points}
        made = chain(self._one_by_one(values), self._full_ones(values), self._mixed(values))
        return list(islice(made, _MOST_OF_A_KIND))

    def _base(self) -> JsonObject:
        metadata: JsonObject = {"name": "sample"}
        if self.kind.namespaced is not False:
            metadata["namespace"] = "default"
        base: JsonObject = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": metadata,
        }
        template = _TEMPLATES.get(self.kind.kind)
        if template is not None:
            _put(base, (*template, "spec", "containers", ALL), {}, self._shape)
        elif any(point.path[:1] == ("spec",) for point in self.points):
            base["spec"] = {}
        return base

    def _one_by_one(self, values: dict[Path, list[Json]]) -> Iterator[JsonObject]:
        yield self._base()
        for path, candidates in values.items():
            for value in candidates:
                yield self._with({path: value})

    def _full_ones(self, values: dict[Path, list[Json]]) -> Iterator[JsonObject]:
        for turn in range(3):
            full = {p: c[min(turn, len(c) - 1)] for p, c in values.items() if c}
            yield self._with(full)
            for path in full:
                yield self._with({p: v for p, v in full.items() if p != path})
            for path, candidates in values.items():
                for value in candidates:
                    changed = self._with({**full, path: value})
                    yield changed
                    yield _double(changed, self._with(full), path)

    def _mixed(self, values: dict[Path, list[Json]]) -> Iterator[JsonObject]:
        for _ in range(_COMBINATIONS):
            chosen = {
                path: self.chance.choice(candidates)
                for path, candidates in values.items()
                if candidates and self.chance.random() < 0.6
            }
            other = {p: self.chance.choice(c) for p, c in values.items() if c}
            path = self.chance.choice(list(values)) if values else ()
            yield _double(self._with(chosen), self._with(other), path)

    def _with(self, chosen: dict[Path, Json]) -> JsonObject:
        made = self._base()
        for path, value in chosen.items():
            # Candidates are used again and again, and samples are changed in place.
            _put(made, path, deepcopy(value), self._shape)
        return made

    @property
    def _shape(self) -> ValueShape:
        return find_shape([(self.kind.api_version, self.kind.kind)])

    def _values(self, point: ComparedField) -> list[Json]:
        shape = self._shape
        for step in point.path:
            if step == KEYS:
                return [str(v) for v in point.values if isinstance(v, str) and v] + ["other"]
            shape = shape.element if step == ALL else shape.step(step)
        if shape.type == "list" and point.path[-1:] != (ALL,):
            element = replace(point, path=(*point.path, ALL))
            return [[], *([value] for value in self._values(element))]
        values = _values_of(shape.type, point.values)
        # Nothing in a cluster has an empty name.
        return [value for value in values if value or point.path[-1] != "name"]


def _values_of(kind: str, given: tuple[Json, ...]) -> list[Json]:
    types = {type(value) for value in given}
    if kind == "boolean" or (not kind and types == {bool}):
        return [True, False]
    if kind == "number" or (not kind and types == {int}):
        return list(dict.fromkeys(_numbers(given)))
    if kind in ("map", "list"):
        return [{} if kind == "map" else []]
    return list(dict.fromkeys(_texts(given)))


def _numbers(given: tuple[Json, ...]) -> Iterator[int]:
    for value in given:
        for text in re.findall(r"[0-9]{1,9}", str(value)):
            yield from (int(text), int(text) + 1, int(text) - 1)
    yield from (0, 1, 7)


def _texts(given: tuple[Json, ...]) -> Iterator[str]:
    for value in given:
        if not isinstance(value, str):
            continue
        for part in re.split(r"[|&]", value):
            yield from _examples(_SIGNS.sub("", part.strip()).strip())
    yield "other"


def _examples(text: str) -> Iterator[str]:
    span = _RANGE.fullmatch(text)
    if span is not None:
        low, unit, high, other = span.groups()
        yield from (f"{low}{unit}", f"{high}{other}", f"{int(low) - 1}{unit}", f"{int(high) + 1}")
        return
    if "*" in text or "?" in text:
        yield text.replace("*", "x").replace("?", "a")
        yield text.replace("*", "").replace("?", "a")
        return
    yield text
    amount = re.fullmatch(r"([0-9]+)([A-Za-z]*)", text)
    if amount is not None:
        yield f"{int(amount.group(1)) + 1}{amount.group(2)}"
        yield f"{max(int(amount.group(1)) - 1, 0)}{amount.group(2)}"


# --- putting values into objects


def _put(target: Json, path: Path, value: Json, shape: ValueShape) -> None:
    """Set a value, making the way to it; elements of a list that is there are all changed."""
    step, *rest = path
    if step == KEYS:
        if isinstance(target, dict) and isinstance(value, str):
            target.setdefault(value, {})
        return
    if step == ALL:
        _put_into_list(target, tuple(rest), value, shape)
        return
    if not isinstance(target, dict):
        return
    if not rest:
        target[step] = value
        return
    inner = target.get(step)
    empty: Json = [] if rest[0] == ALL else {}
    if not isinstance(inner, type(empty)):
        inner = target[step] = empty
    _put(inner, tuple(rest), value, shape.step(step))


def _put_into_list(target: Json, rest: Path, value: Json, shape: ValueShape) -> None:
    if not isinstance(target, list):
        return
    element = _make_element(shape)
    if not rest:
        if not isinstance(value, dict) or not target or not isinstance(target[0], dict):
            target[:] = [{**element, **value} if isinstance(value, dict) else value]
        return
    if not target or not isinstance(target[0], dict):
        target[:] = [element]
    for each in target:
        _put(each, rest, value, shape.element)


def _make_element(shape: ValueShape) -> JsonObject:
    """An element with the names that an API server requires."""
    keys = {key for form in shape.forms if form.list is not None for key in form.list.keys}
    made: JsonObject = {
        key: "c" for key in sorted(keys) if shape.element.step(key).type == "string"
    }
    fields = [form.map.fields for form in shape.element.forms if form.map is not None]
    if any("imagePullPolicy" in each for each in fields):
        made["image"] = "nginx:1.0"
    return made


def _double(changed: JsonObject, other: JsonObject, path: Path) -> JsonObject:
    """The same with two elements in the first list on the way: one changed, one as it was."""
    mine: Json = changed
    theirs: Json = other
    for step in path:
        if step == ALL:
            break
        mine = mine.get(step, _MISSING) if isinstance(mine, dict) else _MISSING
        theirs = theirs.get(step, _MISSING) if isinstance(theirs, dict) else _MISSING
    if isinstance(mine, list) and isinstance(theirs, list):
        mine += [_renamed(element) for element in theirs]
    return changed


def _renamed(element: Json) -> Json:
    if isinstance(element, dict) and "name" in element:
        return {**element, "name": "d"}
    return element
