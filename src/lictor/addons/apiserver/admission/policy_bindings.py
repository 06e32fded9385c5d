"""Bindings of admission policies: the requests and the parameters that each selects."""

from collections.abc import Sequence

import msgspec

from lictor.addons.apiserver.json_fields import read_object
from lictor.addons.apiserver.kind import ObjectReader, ServedKind
from lictor.core.errors import EvaluationError
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.expressions import ExpressionCompiler
from lictor.core.families.admission_policy.bindings import select_bound
from lictor.core.families.admission_policy.records import AdmissionPolicy, Binding
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.label_selector import MapTest
from lictor.core.match.metadata import compile_selector
from lictor.core.model.policy import ParamKind, ParamRef
from lictor.core.model.program import Case, Select
from lictor.core.model.request import Request
from lictor.core.model.scope import Scope
from lictor.core.raw import Json, JsonObject


class ParamFinder:
    """Finds the objects of one binding in the store."""

    def __init__(self, reader: ObjectReader, kind: ParamKind, ref: ParamRef) -> None:
        self._reader = reader
        self._wanted = kind
        self._ref = ref
        self._fits: MapTest | None = None
        if ref.selector is not None:
            self._fits = compile_selector(ref.selector)

    def find(self, namespace: str) -> Sequence[JsonObject]:
        """The objects for a request in a namespace; EvaluationError where there must be some."""
        kind = self._reader.catalogue.find_kind(self._wanted.api_version, self._wanted.kind)
        if kind is None:
            return ()
        found = self._select(kind, self._find_home(kind, namespace))
        if not found and self._ref.parameter_not_found_action == "Deny":
            raise EvaluationError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        # Objects are stored in one version and shown in the requested one.
        return [{**each, "apiVersion": kind.api_version, "kind": kind.kind} for each in found]

    def _find_home(self, kind: ServedKind, namespace: str) -> str:
        if not kind.namespaced:
            if self._ref.namespace:
                raise EvaluationError(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                )
            return ""
        home = self._ref.namespace or namespace
        if not home:
            raise EvaluationError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
                "resources"
            )
        return home

    def _select(self, kind: ServedKind, namespace: str) -> list[JsonObject]:
        if self._ref.name:
            found = self._reader.objects.get(kind, namespace, self._ref.name)
            return [] if found is None else [found]
        fits = self._fits
        return [
            each
            for each in self._reader.objects.list(kind, namespace)
            if fits is None or fits(read_object(read_object(each, "metadata"), "labels"))
        ]


def describe_kind(kind: ParamKind) -> str:
    """Such as `rules.example.com/v1, Kind=ReplicaLimit`."""
    return f"{kind.api_version}, Kind={kind.kind}"


class Denial(msgspec.Struct, frozen=True):
    """What a policy has against a request."""

    policy: str
    # Empty where the policy itself cannot be used.
    binding: str
    message: str
    reason: str = ""
    actions: tuple[str, ...] = ("Deny",)


class BindingContext(msgspec.Struct, frozen=True):
    """What policies are compiled with."""

    around: CelContext
    reader: ObjectReader


class CompiledBinding(msgspec.Struct, frozen=True):
    """One binding of a policy."""

    name: str
    select: Select
    params: ParamFinder | None
    actions: tuple[str, ...] = ("Deny",)

    def concerns(self, request: Request) -> bool:
        matches = self.select(request.kind, request.subresource, request.operation)
        return matches is not None and matches(request)

    def list_params(self, namespace: str) -> list[Json]:
        """The parameters with which the policy is evaluated, in order."""
        return [None] if self.params is None else list(self.params.find(namespace))


def bind(
    policy: AdmissionPolicy,
    binding: Binding,
    facts: BindingContext,
    actions: tuple[str, ...] = ("Deny",),
) -> CompiledBinding:
    """A binding, compiled with the constraints of its policy."""
    name = policy.metadata.name
    select = select_bound(policy.spec.match_constraints, binding, name, facts.around)
    kind, ref = policy.spec.param_kind, binding.spec.param_ref
    params = None
    if kind is not None and ref is not None:
        params = ParamFinder(facts.reader, kind, ref)
    return CompiledBinding(binding.metadata.name, select, params, actions)


def find_fault(policy: AdmissionPolicy, facts: BindingContext) -> str:
    """Why a policy cannot be used at all; empty where it can."""
    kind = policy.spec.param_kind
    if kind is None or facts.reader.catalogue.find_kind(kind.api_version, kind.kind) is not None:
        return ""
    detail = describe_kind(kind)
    return (
        f"failed to configure policy: failed to find resource referenced by paramKind: '{detail}'"
    )


def make_language(
    policy: AdmissionPolicy, facts: BindingContext, *, has_patches: bool = False
) -> ExpressionCompiler:
    """What the expressions of a policy may use, with its variables."""
    environment = kubernetes_environment(
        has_params=policy.spec.param_kind is not None, has_patches=has_patches
    )
    language = ExpressionCompiler(environment, facts.around.host_functions(), lenient=True)
    return language.declare(policy.spec.variables)


def make_case(request: Request) -> Case:
    """The request as expressions see it."""
    return Case(request, _refuse_scope)


def name_param(param: JsonObject | None) -> tuple[str, str]:
    """Namespace and name of a parameter."""
    metadata = {} if param is None else param.get("metadata", {})
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _refuse_scope(_: Request) -> Scope:
    raise AssertionError("native policies have no variables of classic policies")
