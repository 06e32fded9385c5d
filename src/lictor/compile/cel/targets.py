"""`targetMatchConstraints`: the objects that are there already and that a policy changes."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.compile.cel.conditions import Language
from lictor.compile.cel.surroundings import CelSurroundings
from lictor.compile.selection import remember, within
from lictor.errors import CompileError, EvaluationError, NotProvidedError
from lictor.evaluate.namespace_bounds import check_kind, check_namespace
from lictor.lang.cel.activation import Activation
from lictor.lang.resource_names import Resource
from lictor.match.constraints import compile_constraints
from lictor.match.metadata import read_map, read_text
from lictor.model.admission import MatchResources, ResourceRule
from lictor.model.cel_policy import MutatingSpec
from lictor.model.program import Select
from lictor.model.request import Request
from lictor.model.result import PolicyRef
from lictor.raw import JsonObject

# What the request that triggers the change shows, to the objects that are changed.
FindTargets: TypeAlias = Callable[[Activation], Iterator[JsonObject]]

_WHERE = "targetMatchConstraints"


def compile_targets(
    spec: MutatingSpec, ref: PolicyRef, language: Language, around: CelSurroundings
) -> FindTargets:
    """What finds the targets: an expression that gives them, or constraints that they must meet."""
    wanted = spec.target_match_constraints
    if wanted is not None and wanted.expression:
        return _within(ref.namespace, _compile_expression(wanted.expression, language))
    constraints: MatchResources | None = spec.match_constraints
    if wanted is not None and wanted.resource_rules:
        constraints = wanted
    if constraints is None:
        raise CompileError("nothing says which objects to change", where=_WHERE)
    return _compile_constraints(constraints, ref, around)


def _within(own: str, find: FindTargets) -> FindTargets:
    """A policy of a namespace changes nothing elsewhere, whatever its expression makes up."""

    def find_inside(activation: Activation) -> Iterator[JsonObject]:
        for item in find(activation):
            check_namespace(read_text(item, "namespace"), own, "what is changed")
            check_kind(str(item.get("apiVersion")), str(item.get("kind")), own)
            yield item

    return find_inside if own else find


def _compile_expression(text: str, language: Language) -> FindTargets:
    evaluate = language.evaluator(text, ("map(string, dyn)", "dyn"), f"{_WHERE}.expression")

    def find(activation: Activation) -> Iterator[JsonObject]:
        found = evaluate(activation)
        items = found.get("items") if isinstance(found, dict) else None
        for item in items if isinstance(items, list) else [found]:
            if not isinstance(item, dict):
                raise EvaluationError("item is not a valid Kubernetes object")
            yield item

    return find


def _compile_constraints(
    constraints: MatchResources, ref: PolicyRef, around: CelSurroundings
) -> FindTargets:
    # Nobody asks for anything to be done to a target: any operation will do.
    anyhow = tuple(replace(rule, operations=("*",)) for rule in constraints.resource_rules)
    select = compile_constraints(
        replace(constraints, resource_rules=anyhow), around.resource_names, where=_WHERE
    )
    finder = _Finder(
        around,
        tuple(_list_resources(constraints.resource_rules, around)),
        remember(within(ref.namespace, select) if ref.namespace else select),
        needs_labels=constraints.namespace_selector is not None,
    )
    return lambda _: finder.find(ref.namespace)


def _list_resources(rules: tuple[ResourceRule, ...], around: CelSurroundings) -> Iterator[Resource]:
    known = set[Resource]()
    for rule in rules:
        for group in rule.api_groups:
            for version in rule.api_versions:
                for name in rule.resources:
                    resource = name.partition("/")[0]
                    found = around.resource_names.of_resource(group, version, resource)
                    if found is not None and found not in known:
                        known.add(found)
                        yield found


class _Finder(msgspec.Struct, frozen=True):
    around: CelSurroundings
    resources: tuple[Resource, ...]
    select: Select
    needs_labels: bool

    def find(self, namespace: str) -> Iterator[JsonObject]:
        lookups = self.around.lookups
        for resource in self.resources:
            for found in lookups.resources(resource.api_version, resource.kind, namespace):
                if self._fits(found):
                    yield found

    def _fits(self, target: JsonObject) -> bool:
        labels = self._namespace_labels(target) if self.needs_labels else {}
        request = Request.of(target, namespace_labels=labels)
        matches = self.select(request.kind, "", request.operation)
        return matches is not None and matches(request)

    def _namespace_labels(self, target: JsonObject) -> Mapping[str, str]:
        namespace = read_text(target, "namespace")
        if not namespace:
            return {}
        try:
            found = self.around.lookups.resource("v1", "Namespace", "", namespace)
        except NotProvidedError:
            return {}
        return {} if found is None else read_map(found, "labels")
