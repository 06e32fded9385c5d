"""What deletions show of themselves to Prometheus, under Kyverno's names."""

from functools import cache
from typing import TYPE_CHECKING

from lictor.cluster.resource import Resource
from lictor.compile.cleanup import CleanupProgram

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge

_POLICY_LABELS = ("policy_type", "policy_namespace", "policy_name")
_MORE_LABELS = ("resource_namespace", "deletion_propagation")
_TTL_LABELS = ("resource_group", "resource_version", "resource_resource")


def count_deleted(program: CleanupProgram, resource: Resource, namespace: str) -> None:
    """A policy deleted an object."""
    _count_policy("deletedobjects", program, resource, namespace)


def count_failed(program: CleanupProgram, resource: Resource, namespace: str) -> None:
    """A policy could not list a collection, or not delete an object."""
    _count_policy("errors", program, resource, namespace)


def count_expired(resource: Resource, namespace: str) -> None:
    """An object was deleted as its time to live was over."""
    _ttl_counter("deletedobjects").labels(*_name(resource), namespace).inc()


def count_unexpired(resource: Resource, namespace: str) -> None:
    """An object whose time to live is over could not be deleted."""
    _ttl_counter("errors").labels(*_name(resource), namespace).inc()


def show_ttl_watch(resource: Resource) -> None:
    """Objects of this collection are deleted when their time is over."""
    _ttl_gauge().labels(*_name(resource)).set(1)


def hide_ttl_watch(resource: Resource) -> None:
    """No more."""
    _ttl_gauge().labels(*_name(resource)).set(0)


def _name(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


def _count_policy(what: str, program: CleanupProgram, resource: Resource, namespace: str) -> None:
    policy = program.policy
    is_cel = policy.kind.endswith("DeletingPolicy")
    _policy_counter("deleting" if is_cel else "cleanup", what).labels(
        policy.kind,
        policy.namespace,
        policy.name,
        resource.plural if is_cel else resource.kind,
        namespace,
        program.propagation,
    ).inc()


@cache
def _policy_counter(controller: str, what: str) -> "Counter":
    from prometheus_client import Counter

    thing = "resource" if controller == "deleting" else "resource_kind"
    return Counter(
        f"kyverno_{controller}_controller_{what}",
        _describe(what),
        (*_POLICY_LABELS, thing, *_MORE_LABELS),
    )


@cache
def _ttl_counter(what: str) -> "Counter":
    from prometheus_client import Counter

    return Counter(
        f"kyverno_ttl_controller_{what}", _describe(what), (*_TTL_LABELS, "resource_namespace")
    )


@cache
def _ttl_gauge() -> "Gauge":
    from prometheus_client import Gauge

    return Gauge(
        "kyverno_ttl_controller_info",
        "Collections in which objects are deleted when their time to live is over.",
        _TTL_LABELS,
        multiprocess_mode="livemax",
    )


def _describe(what: str) -> str:
    return "Number of deleted objects." if what == "deletedobjects" else "Number of failures."
