"""Fields that the kinds of CEL policies share: match constraints and mutations."""

from typing import Literal, TypeAlias

import msgspec

from lictor.core.model.metadata import LabelSelector, Strings

ValidationAction: TypeAlias = Literal["Deny", "Warn", "Audit"]
MatchPolicy: TypeAlias = Literal["Exact", "Equivalent"]
ReinvocationPolicy: TypeAlias = Literal["Never", "IfNeeded"]


# --- what a policy or a binding is about


class ResourceRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Operations on resources, named as the API server's paths name them (`pods/status`)."""

    resource_names: Strings = ()
    operations: tuple[Literal["*", "CREATE", "UPDATE", "DELETE", "CONNECT"], ...] = ()
    api_groups: Strings = ()
    api_versions: Strings = ()
    resources: Strings = ()
    scope: Literal["*", "Cluster", "Namespaced"] = "*"


class MatchResources(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which requests: the `matchConstraints` of a policy, the `matchResources` of a binding."""

    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    resource_rules: tuple[ResourceRule, ...] = ()
    exclude_resource_rules: tuple[ResourceRule, ...] = ()
    match_policy: MatchPolicy = "Equivalent"


# --- what a policy changes


class PatchExpression(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A CEL expression that makes a patch."""

    expression: str = ""


class Mutation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One change of the object: an apply configuration or a JSON patch."""

    patch_type: Literal["ApplyConfiguration", "JSONPatch"]
    apply_configuration: PatchExpression | None = None
    json_patch: PatchExpression | None = None
