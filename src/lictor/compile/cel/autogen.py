"""Policies about Pods, for the controllers that make Pods: the same text, one floor deeper."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from lictor.model.admission import MatchResources, ResourceRule
from lictor.model.cel_policy import PodControllers

Spec = TypeVar("Spec", bound=msgspec.Struct)

_CONTROLLERS = {
    "daemonsets": "apps", "deployments": "apps", "replicasets": "apps", "statefulsets": "apps",
    "jobs": "batch", "cronjobs": "batch",
}  # fmt: skip
_CRON_JOBS = "cronjobs"


class Floor(msgspec.Struct, frozen=True):
    """Controllers that keep their Pod template at one place."""

    name: str
    template: str
    constraints: MatchResources

    def rewrite(self, spec: Spec) -> Spec:
        """The spec of a policy about Pods, as one about these controllers."""
        text = msgspec.json.encode(spec)
        # Plain text, wherever it stands, in this order: it is what Kyverno does, and authors rely
        # on what it finds and on what it leaves alone.
        for part in ("spec", "metadata"):
            for variable in ("object", "oldObject"):
                text = text.replace(
                    f"{variable}.{part}".encode(), f"{variable}.{self.template}.{part}".encode()
                )
        rewritten = msgspec.json.decode(text, type=type(spec))
        return msgspec.structs.replace(rewritten, match_constraints=self.constraints)


def list_floors(
    constraints: MatchResources | None, wanted: PodControllers | None
) -> Iterator[Floor]:
    """Which controllers a policy also covers; none unless it is about Pods and nothing else."""
    if constraints is None or not _is_about_pods(constraints):
        return
    operations = constraints.resource_rules[0].operations
    if not operations:
        return
    chosen = set(_CONTROLLERS)
    if wanted is not None and wanted.controllers is not None:
        chosen &= set(wanted.controllers)
    if _CRON_JOBS in chosen:
        yield Floor(
            "cronjobs", "spec.jobTemplate.spec.template", _constrain({_CRON_JOBS}, operations)
        )
    if plain := chosen - {_CRON_JOBS}:
        yield Floor("defaults", "spec.template", _constrain(plain, operations))


def _is_about_pods(constraints: MatchResources) -> bool:
    selectors = (constraints.namespace_selector, constraints.object_selector)
    if any(s is not None and (s.match_labels or s.match_expressions) for s in selectors):
        return False
    if constraints.exclude_resource_rules or len(constraints.resource_rules) != 1:
        return False
    rule = constraints.resource_rules[0]
    about = (rule.resource_names, rule.api_groups, rule.api_versions, rule.resources)
    return about == ((), ("",), ("v1",), ("pods",))


def _constrain(resources: set[str], operations: tuple[str, ...]) -> MatchResources:
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
        # An API server asks about older versions in this one; a file of an older one is left alone.
        match_policy="Exact",
    )
