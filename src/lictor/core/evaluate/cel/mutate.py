"""Changes the object of a request, or existing objects, as CEL policies define."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError, EvaluationError, NotProvidedError
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import (
    Exemption,
    ResultTemplate,
    allow,
    build_exempted,
    find_exceptions,
)
from lictor.core.evaluate.cel.expressions import UNDECIDED, Annotate, ExpressionCompiler, Holds
from lictor.core.evaluate.cel.mutations import Change
from lictor.core.evaluate.cel.params import FindParams
from lictor.core.evaluate.cel.views import View
from lictor.core.evaluate.namespace_bounds import check_kind, check_namespace, check_same_object
from lictor.core.facts.resource_names import ResourceType
from lictor.core.lang.cel.expression import Activation
from lictor.core.lang.wildcard import match_wildcard
from lictor.core.match.combine import remember, within
from lictor.core.match.constraints import compile_constraints
from lictor.core.match.metadata import read_map, read_text
from lictor.core.model.cel_policy import MutatingSpec
from lictor.core.model.constraints import MatchResources, ResourceRule
from lictor.core.model.program import Case, Select
from lictor.core.model.request import Request
from lictor.core.model.result import PolicyRef, Result, Status, TargetPart
from lictor.core.raw import Json, JsonObject

# Variables of the triggering request that are visible for the changed objects.
FindTargets: TypeAlias = Callable[[Activation], Iterator[JsonObject]]

# The subresource of a target that is updated; None: the object itself.
FindPart: TypeAlias = Callable[[JsonObject], TargetPart | None]

_WHERE = "targetMatchConstraints"


def compile_targets(
    spec: MutatingSpec, ref: PolicyRef, language: ExpressionCompiler, around: CelContext
) -> FindTargets:
    """Finds the targets: by an expression that returns them, or by constraints."""
    wanted = spec.target_match_constraints
    if wanted is not None and wanted.expression:
        return _within(ref.namespace, _compile_expression(wanted.expression, language))
    constraints: MatchResources | None = spec.match_constraints
    if wanted is not None and wanted.resource_rules:
        constraints = wanted
    if constraints is None:
        raise CompileError(
            "expected an expression or constraints for the objects to change", where=_WHERE
        )
    return _compile_constraints(constraints, ref, around)


def _within(own: str, find: FindTargets) -> FindTargets:
    """A namespaced policy must not change other namespaces."""

    def find_inside(activation: Activation) -> Iterator[JsonObject]:
        for item in find(activation):
            check_namespace(read_text(item, "namespace"), own, "what is changed")
            check_kind(str(item.get("apiVersion")), str(item.get("kind")), own)
            yield item

    return find_inside if own else find


def _compile_expression(text: str, language: ExpressionCompiler) -> FindTargets:
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
    constraints: MatchResources, ref: PolicyRef, around: CelContext
) -> FindTargets:
    # There is no operation on a target: any will do. A subresource says where it is written.
    anyhow = tuple(
        replace(
            rule,
            operations=("*",),
            resources=tuple(name.partition("/")[0] for name in rule.resources),
        )
        for rule in constraints.resource_rules
    )
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


def compile_part(spec: MutatingSpec, around: CelContext) -> FindPart:
    """Finds the subresource by which a target is updated: the first rule that fits decides."""
    wanted = spec.target_match_constraints
    rules = wanted.resource_rules if wanted is not None else ()
    if not any("/" in name for rule in rules for name in rule.resources):
        return lambda _: None

    def find(target: JsonObject) -> TargetPart | None:
        kind = Request.of(target).kind
        resource = around.resource_names.of_kind(kind.group, kind.version, kind.kind).resource
        for rule in rules:
            if {"*", kind.group}.isdisjoint(rule.api_groups):
                continue
            if {"*", kind.version}.isdisjoint(rule.api_versions):
                continue
            for name in rule.resources:
                plural, _, part = name.partition("/")
                if match_wildcard(plural, resource):
                    return TargetPart(kind.api_version, kind.kind, part) if part else None
        return None

    return find


def _list_resources(rules: tuple[ResourceRule, ...], around: CelContext) -> Iterator[ResourceType]:
    known = set[ResourceType]()
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
    around: CelContext
    resources: tuple[ResourceType, ...]
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


class MutatingCheck(msgspec.Struct, frozen=True):
    """The compiled parts of a policy."""

    view: View
    template: ResultTemplate
    exemptions: tuple[Exemption, ...]
    matches: Holds | None
    change: Change
    annotate: Annotate | None = None
    # What must hold for an existing object; `matches` is then about the request alone.
    target_matches: Holds | None = None

    def run(self, case: Case, before: JsonObject, /, **others: Json) -> tuple[Result]:
        """Change an object, with the variables of the case and some overrides."""
        try:
            return self._run(case, before, others)
        except UNDECIDED as error:
            text = f"failed to evaluate policy: {error}"
            return self.template.make("evaluation", Status.ERROR, text)

    def _run(self, case: Case, before: JsonObject, others: JsonObject) -> tuple[Result]:
        view = self.view
        is_target = bool(others)
        activation = view.adding(case, **others) if others else view(case)
        if self.exemptions and (found := find_exceptions(self.exemptions, activation)):
            allowed = allow(found)
            if not any(allowed.values()):
                return build_exempted(found, self.template)
            others = {**others, "exceptions": allowed}
            activation = view.adding(case, **others)
        matches = self.target_matches if is_target else self.matches
        if matches is not None and not matches(activation):
            return self.template.make("", Status.SKIP, "skip")

        def see(changed: JsonObject) -> Activation:
            return view.adding(case, **{**others, "object": changed})

        after = self.change(activation, before, see)
        noted = self.annotate(activation) if self.annotate is not None else {}
        (made,) = self._build_change(case, before, after)
        return (replace(made, properties=noted) if noted else made,)

    def _build_change(self, case: Case, before: JsonObject, after: JsonObject) -> tuple[Result]:
        if case.request.background and after != before:
            # A scan changes nothing: it reports what a request would have changed.
            return self.template.make("", Status.FAIL, "mutation is not applied")
        return (replace(self.template.make("", Status.PASS, "success")[0], patched=after),)


def aim_at_target(
    result: Result, target: JsonObject, template: ResultTemplate, part: TargetPart | None = None
) -> Result:
    """The result for an object other than the request's."""
    after = result.patched
    if after is not None:
        try:
            check_same_object(target, after)
        except EvaluationError as error:
            text = f"failed to evaluate policy: {error}"
            return template.make("evaluation", Status.ERROR, text)[0]
    return replace(result, patched=None, target=after, part=part, is_selected=True)


class AdmissionMutatingCheck(msgspec.Struct, frozen=True):
    """The compiled parts of a policy, with those of one binding."""

    view: View
    template: ResultTemplate
    properties: dict[str, str]
    matches: Holds | None
    change: Change
    find_params: FindParams | None
    as_list: bool

    def check(self, case: Case) -> tuple[Result, ...]:
        """Change the object once for each parameter, in order."""
        before = case.request.object
        if before is None:
            return ()
        try:
            after = self._run(case, before)
        except UNDECIDED as error:
            return self._build_result(Status.ERROR, str(error))
        if after is None:
            return self._build_result(Status.SKIP, "match conditions aren't met")
        if case.request.background and after != before:
            # A scan changes nothing: it reports what a request would have changed.
            return self._build_result(Status.FAIL, "mutation is not applied")
        passed = self._build_result(Status.PASS, "mutation is successfully applied")
        return (replace(passed[0], patched=after),)

    def _run(self, case: Case, before: JsonObject) -> JsonObject | None:
        if self.find_params is None:
            return self._run_once(case, before, {})
        found = self.find_params(case.request)
        if self.as_list:
            # Kyverno passes all objects of a selector at once; the API server, one by one.
            return self._run_once(case, before, {"params": {"items": list(found)}})
        after: JsonObject | None = None
        for params in found:
            current = after if after is not None else before
            others = {"params": params, "object": current}
            changed = self._run_once(case, current, others)
            after = changed if changed is not None else after
        return before if not found else after

    def _run_once(self, case: Case, before: JsonObject, others: JsonObject) -> JsonObject | None:
        view = self.view
        activation = view.adding(case, **others) if others else view(case)
        if self.matches is not None and not self.matches(activation):
            return None

        def see(changed: JsonObject) -> Activation:
            return view.adding(case, **{**others, "object": changed})

        return self.change(activation, before, see)

    def _build_result(self, status: Status, message: str) -> tuple[Result]:
        name = self.template.policy.name
        return self.template.make(name, status, message, properties=self.properties)
