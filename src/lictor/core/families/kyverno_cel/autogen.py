"""Policies about Pods, for the controllers that make Pods: one template level deeper."""

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from lictor.core.families.kind_facts import WebhookMatch
from lictor.core.families.kyverno_cel.records import CelPolicy, MutatingPolicy
from lictor.core.families.policy_status import PolicyFacts, build_condition_status, write_record
from lictor.core.families.registry import registry
from lictor.core.lang.cel.lexer import CelToken, find_close, read_tokens
from lictor.core.model.cel_policy import ImageValidatingSpec, MutatingSpec, PodControllers
from lictor.core.model.constraints import MatchResources, Mutation, ResourceRule
from lictor.core.model.metadata import LabelSelector, PolicyRecord
from lictor.core.model.program import Phase
from lictor.core.model.result import RuleType
from lictor.core.raw import Json, JsonObject

Spec = TypeVar("Spec", bound=msgspec.Struct)

_CONTROLLERS = {
    "daemonsets": "apps", "deployments": "apps", "replicasets": "apps", "statefulsets": "apps",
    "jobs": "batch", "cronjobs": "batch",
}  # fmt: skip
_CRON_JOBS = "cronjobs"
# Custom workloads: their Pod templates are evaluated by the policy as it is.
EXTRACT = "extract"
# The namespace of a Pod is that of its controller: templates have none.
_POD_FIELD = re.compile(rb"(object|oldObject)\.(spec|metadata(?!\.namespace\b))")


class TemplatePath(msgspec.Struct, frozen=True):
    """Controllers that keep their Pod template at one place."""

    name: str
    template: str
    constraints: MatchResources

    def rewrite(self, spec: Spec) -> Spec:
        """The spec of a policy about Pods, as one about these controllers."""
        # Plain text, at any position: it is what Kyverno does, and authors rely on what it finds
        # and on what it leaves alone.
        text = _POD_FIELD.sub(rf"\1.{self.template}.\2".encode(), msgspec.json.encode(spec))
        rewritten = msgspec.json.decode(text, type=type(spec))
        return msgspec.structs.replace(rewritten, match_constraints=self.constraints)


def list_template_paths(
    constraints: MatchResources | None, wanted: PodControllers | None
) -> Iterator[TemplatePath]:
    """Which controllers a policy also covers; none unless it is about Pods and nothing else."""
    if constraints is None or not _is_about_pods(constraints):
        return
    operations = constraints.resource_rules[0].operations
    if not operations:
        return
    selector = constraints.namespace_selector
    chosen = set(_CONTROLLERS)
    if wanted is not None and wanted.controllers is not None:
        chosen &= set(wanted.controllers)
    if _CRON_JOBS in chosen:
        only = _constrain({_CRON_JOBS}, operations, selector)
        yield TemplatePath("cronjobs", "spec.jobTemplate.spec.template", only)
    if plain := chosen - {_CRON_JOBS}:
        only = _constrain(plain, operations, selector)
        yield TemplatePath("defaults", "spec.template", only)


def find_custom_workloads(
    constraints: MatchResources | None, wanted: PodControllers | None
) -> MatchResources | None:
    """The custom workloads (`<resource>.<version>.<group>`) that a policy about Pods names."""
    if constraints is None or wanted is None or not _is_about_pods(constraints):
        return None
    named = [text.split(".", 2) for text in wanted.controllers or () if text.count(".") > 1]
    operations = constraints.resource_rules[0].operations
    if not named or not operations:
        return None
    return MatchResources(
        resource_rules=tuple(
            ResourceRule(
                operations=operations,
                api_groups=(group,),
                api_versions=(version,),
                resources=(resource,),
            )
            for resource, version, group in sorted(named)
        ),
        namespace_selector=constraints.namespace_selector,
        match_policy="Exact",
    )


def _is_about_pods(constraints: MatchResources) -> bool:
    labels = constraints.object_selector
    if labels is not None and (labels.match_labels or labels.match_expressions):
        return False
    if constraints.exclude_resource_rules or len(constraints.resource_rules) != 1:
        return False
    rule = constraints.resource_rules[0]
    about = (rule.resource_names, rule.api_groups, rule.api_versions, rule.resources)
    return about == ((), ("",), ("v1",), ("pods",))


def _constrain(
    resources: set[str], operations: tuple[str, ...], selector: LabelSelector | None
) -> MatchResources:
    groups = sorted({_CONTROLLERS[resource] for resource in resources})
    return MatchResources(
        resource_rules=tuple(
            ResourceRule(
                operations=operations,  # type: ignore[arg-type]  # checked when it was loaded
                api_groups=(group,),
                api_versions=("v1",),
                resources=tuple(sorted(r for r in resources if _CONTROLLERS[r] == group)),
            )
            for group in groups
        ),
        namespace_selector=selector,
        # An API server sends older versions in this one; a file of an older one is left alone.
        match_policy="Exact",
    )


# Whole words: `namespaceObject.metadata.labels` is no field of the Pod.
_CHANGED_FIELD = re.compile(r"\b(object|oldObject|Object)\.(spec|metadata\.(?:labels|annotations))")
# `oldObject.metadata` ends in the same letters and is no type.
_METADATA_TYPE = re.compile(r"\bObject\.metadata\b")


def rewrite_mutating(spec: MutatingSpec, template_path: TemplatePath) -> MutatingSpec:
    """The spec of a policy about Pods, as one about these controllers.

    JSON patches stay as they are: their paths are texts that anything may compute. So do variables
    where there are such patches, as these would take them for what their paths lead to.
    """
    conditions = tuple(
        replace(condition, expression=_rewrite(condition.expression, template_path))
        for condition in spec.match_conditions
    )
    variables = spec.variables
    if all(mutation.patch_type == "ApplyConfiguration" for mutation in spec.mutations):
        variables = tuple(
            replace(variable, expression=_rewrite(variable.expression, template_path))
            for variable in variables
        )
    return replace(
        spec,
        match_constraints=template_path.constraints,
        match_conditions=conditions,
        variables=variables,
        mutations=tuple(_rewrite_mutation(mutation, template_path) for mutation in spec.mutations),
    )


def _rewrite_mutation(mutation: Mutation, template_path: TemplatePath) -> Mutation:
    patch = mutation.apply_configuration
    if patch is None:
        return mutation
    expression = _wrap_objects(_rewrite(patch.expression, template_path), template_path.template)
    return replace(mutation, apply_configuration=replace(patch, expression=expression))


def _rewrite(text: str, template_path: TemplatePath) -> str:
    """Plain text, at any position, as Kyverno does it; authors rely on what it leaves alone."""
    deeper = template_path.template
    text = _CHANGED_FIELD.sub(rf"\1.{deeper}.\2", text)
    return _METADATA_TYPE.sub(f"Object.{deeper}.metadata", text)


def _wrap_objects(text: str, template: str) -> str:
    """Move the content of each `Object{…}` one or two template levels deeper, and their types."""
    opening, closing, path = "", "", "Object"
    for field in template.split("."):
        path = f"{path}.{field}"
        opening += f"{field}: {path}{{"
        closing += "}"
    tokens = read_tokens(text)
    parts: list[tuple[int, str]] = []
    for index in range(len(tokens) - 1):
        close = find_close(tokens, index + 1) if _opens_object(tokens, index) else -1
        if close > index + 2:  # an empty one means no change, and still does
            parts += ((tokens[index + 1].end, opening), (tokens[close].start, closing))
    for position, added in sorted(parts, reverse=True):
        text = text[:position] + added + text[position:]
    return text


def _opens_object(tokens: list[CelToken], index: int) -> bool:
    token = tokens[index]
    follows_dot = index > 0 and tokens[index - 1].text == "."
    return token.text == "Object" and tokens[index + 1].text == "{" and not follows_dot


# --- the same policy for Pods and for their controllers


class PolicyVariant(msgspec.Struct, frozen=True):
    """A policy about Pods as it is for some of their controllers."""

    name: str
    constraints: MatchResources
    spec: Json


def list_variants(policy: PolicyRecord) -> tuple[PolicyVariant, ...]:
    """A policy about Pods, for the controllers that make Pods; most policies have no variants."""
    autogen = getattr(policy.spec, "autogen", None)
    if autogen is None:
        return ()
    custom = find_custom_workloads(policy.spec.match_constraints, autogen.pod_controllers)
    extracted = () if custom is None else (PolicyVariant(EXTRACT, custom, policy.spec),)
    return extracted + tuple(
        PolicyVariant(
            template_path.name, template_path.constraints, _rewrite_spec(policy, template_path)
        )
        for template_path in list_template_paths(
            policy.spec.match_constraints, autogen.pod_controllers
        )
    )


def _rewrite_spec(policy: PolicyRecord, template_path: TemplatePath) -> Json:
    if isinstance(policy, MutatingPolicy):
        return rewrite_mutating(policy.spec, template_path)
    return template_path.rewrite(policy.spec)


def list_requests(spec: Json) -> MatchResources | None:
    """What a policy is about: where it is about images of Pods, debug containers as well.

    As in Kyverno 1.19; they are added by an update of the subresource.
    """
    constraints: MatchResources | None = spec.match_constraints
    if constraints is None or not isinstance(spec, ImageValidatingSpec):
        return constraints
    return msgspec.structs.replace(
        constraints,
        resource_rules=(
            *constraints.resource_rules,
            *_add_debug_containers(constraints.resource_rules, {"*", "CREATE", "UPDATE"}),
        ),
        exclude_resource_rules=(
            *constraints.exclude_resource_rules,
            *_add_debug_containers(constraints.exclude_resource_rules, {"*", "UPDATE"}),
        ),
    )


def _add_debug_containers(
    rules: Iterable[ResourceRule], operations: set[str]
) -> Iterator[ResourceRule]:
    for rule in rules:
        is_core = not {"", "*"}.isdisjoint(rule.api_groups)
        is_about = not {"pods", "*"}.isdisjoint(rule.resources)
        if is_core and is_about and not operations.isdisjoint(rule.operations):
            yield msgspec.structs.replace(
                rule,
                operations=("UPDATE",),
                api_groups=("",),
                resources=("pods/ephemeralcontainers",),
            )


def describe_match(policy: PolicyRecord) -> WebhookMatch | None:
    """The requests for which a policy needs its webhook; None if it matches none."""
    spec, constraints = policy.spec, list_requests(policy.spec)
    if constraints is None or not constraints.resource_rules:
        return None
    return WebhookMatch(
        constraints,
        spec.match_conditions,
        tuple(
            # Conditions about Pods are no conditions about what makes them.
            (
                each.name,
                each.constraints,
                () if each.name == EXTRACT else each.spec.match_conditions,
            )
            for each in list_variants(policy)
        ),
        spec.webhook_configuration.timeout_seconds,
        is_reinvoked=getattr(spec, "reinvocation_policy", "Never") != "Never",
        # What was made follows its trigger in all that happens to it.
        every_operation=Phase.GENERATE in registry().of(policy).phases,
    )


def list_expected_work(policy: CelPolicy) -> frozenset[RuleType]:
    """Kyverno wants to hear of a silent policy only where it chooses by more than one rule."""
    (phase,) = registry().of(policy).phases
    work = _WORK.get(phase)
    if work is None or (work is not RuleType.IMAGE_VERIFY and not _chooses(policy)):
        return frozenset()
    return frozenset([work])


_WORK = {
    Phase.VALIDATE: RuleType.VALIDATION,
    Phase.MUTATE: RuleType.MUTATION,
    Phase.VERIFY_IMAGES: RuleType.IMAGE_VERIFY,
}


def _chooses(policy: CelPolicy) -> bool:
    constraints = policy.spec.match_constraints
    if constraints is None or not _is_plain(constraints):
        return True
    return any(not _is_plain(variant.constraints) for variant in list_variants(policy))


def _is_plain(constraints: MatchResources) -> bool:
    """One rule about resources, and nothing else."""
    selectors = (constraints.namespace_selector, constraints.object_selector)
    return (
        not any(s is not None and (s.match_labels or s.match_expressions) for s in selectors)
        and not constraints.exclude_resource_rules
        and len(constraints.resource_rules) == 1
        and not constraints.resource_rules[0].resource_names
    )


# --- status

_KINDS = {
    "daemonsets": "DaemonSet",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "jobs": "Job",
    "cronjobs": "CronJob",
}


def build_cel_status(
    policy: PolicyRecord | None,
    old: JsonObject,
    facts: PolicyFacts,
    now: str,
    *,
    has_native_form: bool,
) -> JsonObject:
    """The status that a policy should have."""
    status = build_condition_status(old, facts, now, has_native_form=has_native_form)
    if policy is not None and hasattr(policy.spec, "autogen"):
        configs = _build_configs(policy)
        status["autogen"] = {"configs": configs} if configs else {}
    return status


def _build_configs(policy: PolicyRecord) -> dict[str, JsonObject]:
    """A policy about Pods, for the controllers that make Pods, as its status shows it."""
    configs: dict[str, JsonObject] = {}
    for variant in list_variants(policy):
        targets = [
            {
                "group": rule.api_groups[0],
                "version": rule.api_versions[0],
                "resource": name,
                "kind": _KINDS.get(name) or name.removesuffix("s").capitalize(),
            }
            for rule in variant.constraints.resource_rules
            for name in rule.resources
        ]
        configs[variant.name] = {"targets": targets, "spec": _write_spec(variant.spec)}
    return configs


def _write_spec(spec: msgspec.Struct) -> JsonObject:
    made = write_record(spec)
    if isinstance(spec, ImageValidatingSpec):
        each = spec.validation_configurations
        made["validationConfigurations"] = {
            "mutateDigest": each.mutate_digest,
            "verifyDigest": each.verify_digest,
            "required": each.required,
        }
    return made
