"""What the controllers show of themselves to Prometheus, under Kyverno's names where it has one."""

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge


def show_controller(name: str) -> None:
    """Let the counters of a controller exist, at zero."""
    _count("reconcile").labels(name)
    _count("requeue").labels(name)
    _count("drop").labels(name)


def count_reconcile(name: str) -> None:
    """A run began."""
    _count("reconcile").labels(name).inc()


def count_requeue(name: str) -> None:
    """A run failed and will be repeated."""
    _count("requeue").labels(name).inc()


def show_heartbeat(stamp: str, *, healthy: bool) -> None:
    """When a webhook answered last, and whether that is well."""
    try:
        moment = datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        moment = 0.0
    _gauge("last_answer_timestamp_seconds", "When a webhook answered last.").set(moment)
    _gauge("healthy", "1 while the webhooks answer.").set(1 if healthy else 0)


# On first use: the multi-process mode is chosen by the environment when the library is imported.
@cache
def _count(what: str) -> "Counter":
    from prometheus_client import Counter, disable_created_metrics

    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not say
    return Counter(f"kyverno_controller_{what}", f"Number of {what}s.", ("controller_name",))


@cache
def _gauge(what: str, words: str) -> "Gauge":
    from prometheus_client import Gauge

    return Gauge(f"lictor_webhook_{what}", words, multiprocess_mode="mostrecent")
