"""What native policies of both sorts have in common."""

import msgspec

from lictor.apiserver.admission.native_params import ParamFinder, describe_kind
from lictor.apiserver.reading import ObjectReader
from lictor.compile.cel.bindings import select_bound
from lictor.evaluate.cel.context import CelContext
from lictor.evaluate.cel.expressions import Language
from lictor.lang.cel.environment import kubernetes_environment
from lictor.model.admission import AdmissionPolicy, Binding
from lictor.model.program import Case, Select
from lictor.model.request import Request
from lictor.model.scope import Scope
from lictor.raw import Json, JsonObject


class Denial(msgspec.Struct, frozen=True):
    """What a policy has against a request."""

    policy: str
    # Empty where the policy itself cannot be used.
    binding: str
    message: str
    reason: str = ""
    actions: tuple[str, ...] = ("Deny",)


class Facts(msgspec.Struct, frozen=True):
    """What policies are compiled with."""

    around: CelContext
    reader: ObjectReader


class Bound(msgspec.Struct, frozen=True):
    """One binding of a policy."""

    name: str
    select: Select
    params: ParamFinder | None
    actions: tuple[str, ...] = ("Deny",)

    def concerns(self, request: Request) -> bool:
        matches = self.select(request.kind, request.subresource, request.operation)
        return matches is not None and matches(request)

    def list_params(self, namespace: str) -> list[Json]:
        """The parameters with which the policy is asked, one after the other."""
        return [None] if self.params is None else list(self.params.find(namespace))


def bind(
    policy: AdmissionPolicy, binding: Binding, facts: Facts, actions: tuple[str, ...] = ("Deny",)
) -> Bound:
    """A binding, compiled with the constraints of its policy."""
    name = policy.metadata.name
    select = select_bound(policy.spec.match_constraints, binding, name, facts.around)
    kind, ref = policy.spec.param_kind, binding.spec.param_ref
    params = None
    if kind is not None and ref is not None:
        params = ParamFinder(facts.reader, kind, ref)
    return Bound(binding.metadata.name, select, params, actions)


def find_fault(policy: AdmissionPolicy, facts: Facts) -> str:
    """Why a policy cannot be used at all; empty where it can."""
    kind = policy.spec.param_kind
    if kind is None or facts.reader.catalogue.find_kind(kind.api_version, kind.kind) is not None:
        return ""
    told = describe_kind(kind)
    return f"failed to configure policy: failed to find resource referenced by paramKind: '{told}'"


def make_language(policy: AdmissionPolicy, facts: Facts, *, has_patches: bool = False) -> Language:
    """What the expressions of a policy may use, with its variables."""
    environment = kubernetes_environment(
        has_params=policy.spec.param_kind is not None, has_patches=has_patches
    )
    language = Language(environment, facts.around.world(), lenient=True)
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
