"""Which pod controllers does a rule about Pods also mean?"""

import msgspec

from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.match.classic import list_descriptions
from lictor.core.model.matching import Match, ResourceDescription
from lictor.core.model.policy import Generate, Mutate, Policy, Rule

ANNOTATION = "pod-policies.kyverno.io/autogen-controllers"
CRON_JOB = "CronJob"

_TEMPLATED = frozenset(
    ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet")
)
_CONTROLLERS = _TEMPLATED | {CRON_JOB}
_POD_KINDS = _CONTROLLERS | {"Pod"}
# Words of the annotation that are no kinds.
_WORDS = frozenset(("", "all", "none"))


class Targets(msgspec.Struct, frozen=True):
    """Kinds with a pod template in their spec, and whether CronJobs are meant as well."""

    kinds: tuple[str, ...] = ()
    cron_job: bool = False


def list_controllers(policy: Policy) -> frozenset[str]:
    """The controllers in the annotation, all of them without it, none if a rule forbids it."""
    if not _allows_controllers(policy.spec.rules):
        return frozenset()
    written = policy.metadata.annotations.get(ANNOTATION)
    return _CONTROLLERS if written is None else frozenset(written.split(","))


def choose_targets(rule: Rule, controllers: frozenset[str]) -> Targets:
    """Choose, from the annotation, the kinds for one rule."""
    if not controllers or not _concerns_pods(rule) or not _has_movable_body(rule):
        return Targets()
    if rule.validate is None:
        return _choose_for_others(controllers)
    # Validation checks the kind at hand: each name counts alone, an unknown kind too, but `all`
    # stands for nothing.
    kinds = sorted(name for name in controllers - _WORDS if name.isalnum())
    return Targets(tuple(kind for kind in kinds if kind != CRON_JOB), CRON_JOB in kinds)


def _choose_for_others(controllers: frozenset[str]) -> Targets:
    """All other rules look at the whole list: a foreign kind counts where no known one stands."""
    cron_job = any(CRON_JOB in name or "all" in name for name in controllers)
    named = controllers - {CRON_JOB}
    chosen = _TEMPLATED if named == {"all"} else named & _TEMPLATED
    kinds = chosen or named - _WORDS
    return Targets(tuple(sorted(kinds)), cron_job)


def _has_movable_body(rule: Rule) -> bool:
    mutate, validate = rule.mutate, rule.validate
    if mutate is not None and (mutate.patch_strategic_merge is not None or mutate.foreach):
        return True
    if validate is None:
        return bool(rule.verify_images)
    patterns = (validate.pattern, validate.any_pattern, validate.assert_)
    others = (validate.deny, validate.pod_security, validate.cel, validate.foreach or None)
    return bool(rule.verify_images) or any(each is not None for each in (*patterns, *others))


def _concerns_pods(rule: Rule) -> bool:
    matched, excluded = (
        [kind for described in list_descriptions(match) for kind in described.kinds]
        for match in (rule.match, rule.exclude or Match())
    )
    return _names_pod(matched) and (not excluded or _names_pod(excluded))


def _names_pod(kinds: list[str] | tuple[str, ...]) -> bool:
    return any(parse_kind_selector(kind).kind == "Pod" for kind in kinds)


def _allows_controllers(rules: tuple[Rule, ...]) -> bool:
    """One rule that cannot be carried over keeps the whole policy from being expanded."""
    descriptions = [
        described
        for rule in rules
        for match in (rule.match, rule.exclude)
        if match is not None
        for described in list_descriptions(match)
    ]
    return (
        not any(_is_fixed_to_object(rule) for rule in rules if rule.generate or rule.mutate)
        and not any(_is_fixed_to_pod(described) for described in descriptions)
        and any(not _POD_KINDS.isdisjoint(described.kinds) for described in descriptions)
    )


def _is_fixed_to_object(rule: Rule) -> bool:
    """Does the body name paths or objects that cannot be moved into a template?"""
    if rule.generate is not None and rule.generate != Generate():
        return True
    mutate = rule.mutate or Mutate()
    return bool(mutate.patches_json6902) or any(each.patches_json6902 for each in mutate.foreach)


def _is_fixed_to_pod(described: ResourceDescription) -> bool:
    """Does it check something that a controller has not in common with its Pods?"""
    return bool(
        described.name
        or described.names
        or described.annotations
        or described.selector is not None
        or (len(described.kinds) > 1 and _names_pod(described.kinds))
    )
