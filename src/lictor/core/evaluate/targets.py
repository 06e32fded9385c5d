"""`mutate.targets`: the existing objects that a rule changes, with their variables."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from lictor.core.errors import EvaluationError
from lictor.core.evaluate.conditions import Conditions, compile_conditions
from lictor.core.evaluate.context import Enter, compile_foreach_context
from lictor.core.evaluate.namespace_bounds import check_kind, check_namespace
from lictor.core.evaluate.rule_context import RuleContext
from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.core.lang.label_selector import compile_label_selector, read_requirements
from lictor.core.lang.template import Fill
from lictor.core.lang.url import escape_segment
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard
from lictor.core.model.policy import MutateTarget
from lictor.core.model.program import Case
from lictor.core.model.result import TargetPart
from lictor.core.model.scope import Scope
from lictor.core.ports import ApiCall
from lictor.core.raw import Json, JsonObject


class ExistingTarget(msgspec.Struct, frozen=True):
    """An object to change, its variables, and its preconditions."""

    object: JsonObject
    scope: Scope
    conditions: Conditions | None
    part: TargetPart | None
    is_selected: bool


Targets: TypeAlias = Callable[[Case], Iterator[ExistingTarget]]


def compile_targets(targets: Sequence[MutateTarget], setting: RuleContext) -> Targets:
    """Find the targets of a request among the existing objects."""
    finders = [
        _compile_target(target, setting, f"mutate.targets[{index}].preconditions")
        for index, target in enumerate(targets)
    ]

    def find(case: Case) -> Iterator[ExistingTarget]:
        for finder in finders:
            yield from finder(case)

    return find


def _compile_target(target: MutateTarget, setting: RuleContext, where: str) -> Targets:
    spec = setting.expressions.document(_describe(target)).fill
    enter: Enter | None = compile_foreach_context(target.context, setting)
    conditions = compile_conditions(
        target.preconditions,
        setting.expressions,
        watch=setting.watch,
        where=where,
    )
    check_place = _compile_place(target, setting.policy.namespace)

    def find(case: Case) -> Iterator[ExistingTarget]:
        wanted = check_place(_fill(spec, case.scope))
        is_selected = not wanted["name"] or has_wildcard(str(wanted["name"]))
        for found, part in _list(wanted, setting):
            scope = case.scope.child(target=found)
            inner = enter(scope) if enter is not None else scope
            yield ExistingTarget(found, inner, conditions, part, is_selected)

    return find


def _compile_place(target: MutateTarget, own: str) -> Callable[[JsonObject], JsonObject]:
    """A Policy is limited to its namespace, also if variables name another one."""

    def check(wanted: JsonObject) -> JsonObject:
        for field, text in (("namespace", target.namespace), ("name", target.name)):
            if text and not wanted[field]:
                # Without it, all objects of the kind would match.
                raise EvaluationError(f"the {field} of a target became empty: nothing is changed")
        if not own:
            return wanted
        check_kind(str(wanted["apiVersion"]), _split_kind(wanted).kind, own)
        if wanted["namespace"]:
            check_namespace(wanted["namespace"], own, "what is changed")
        return {**wanted, "namespace": own}

    return check


def _split_kind(wanted: JsonObject) -> KindSelector:
    return parse_kind_selector(f"{wanted['apiVersion']}/{wanted['kind']}")


def _describe(target: MutateTarget) -> JsonObject:
    selector = target.selector
    return {
        "apiVersion": target.api_version,
        "kind": target.kind,
        "namespace": target.namespace,
        "name": target.name,
        "matchLabels": None if selector is None else dict(selector.match_labels),
        "matchExpressions": []
        if selector is None
        else [
            {"key": e.key, "operator": e.operator, "values": list(e.values)}
            for e in selector.match_expressions
        ],
    }


def _fill(spec: Fill, scope: Scope) -> JsonObject:
    try:
        filled = spec(scope)
    except EvaluationError as error:
        raise EvaluationError(f"failed to substitute variables in target: {error}") from error
    assert isinstance(filled, dict)  # noqa: S101  (a document that is an object stays one)
    return filled


def _list(
    wanted: JsonObject, setting: RuleContext
) -> Iterator[tuple[JsonObject, TargetPart | None]]:
    kind = _split_kind(wanted)
    fits_name = compile_wildcard(str(wanted["name"])) if wanted["name"] else None
    fits_namespace = compile_wildcard(str(wanted["namespace"])) if wanted["namespace"] else None
    fits_labels = (
        None
        if wanted["matchLabels"] is None
        else compile_label_selector(
            wanted["matchLabels"], read_requirements(wanted["matchExpressions"])
        )
    )
    # A Policy reads no other namespace either; otherwise wildcards decide.
    where = setting.policy.namespace
    for found in setting.lookups.resources(str(wanted["apiVersion"]), kind.kind, where):
        metadata = found.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        if fits_name is not None and not fits_name(_text(metadata.get("name"))):
            continue
        if fits_namespace is not None and not fits_namespace(_text(metadata.get("namespace"))):
            continue
        labels = metadata.get("labels")
        if fits_labels is None or fits_labels(labels if isinstance(labels, dict) else {}):
            yield _take_part(found, kind.subresource, setting)


def _take_part(
    found: JsonObject, subresource: str, setting: RuleContext
) -> tuple[JsonObject, TargetPart | None]:
    if not subresource:
        return found, None
    api_version, kind = _text(found.get("apiVersion")), _text(found.get("kind"))
    part = TargetPart(api_version, kind, subresource)
    if subresource == "status":
        return found, part  # read with the object, written separately
    metadata = found["metadata"]
    group, _, version = api_version.rpartition("/")
    plural = builtin_names().of_kind(group, version, kind).resource
    root = f"/apis/{api_version}" if group else f"/api/{api_version}"
    namespace = _text(metadata.get("namespace"))
    place = f"/namespaces/{namespace}" if namespace else ""
    parts = (plural, metadata["name"], subresource)
    path = "/".join((f"{root}{place}", *map(escape_segment, parts)))
    read = setting.lookups.call_api(ApiCall(url_path=path))
    if not isinstance(read, dict):
        raise EvaluationError(f"{path} is no object")
    return read, part


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
