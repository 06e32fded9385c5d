"""Reports and viewers for tests of the page's index."""

from lictor.addons.web.records import Viewer, VisibleNamespaces
from lictor.core.raw import JsonObject

EVERYTHING = VisibleNamespaces(all_namespaces=True, cluster_wide=True)


def see_all(*clusters: str) -> Viewer:
    """Someone who may see all of these clusters."""
    return Viewer("admin", {cluster: EVERYTHING for cluster in clusters or ("here",)})


def see_namespaces(*names: str, cluster: str = "here") -> Viewer:
    """Someone who may see some namespaces."""
    return Viewer("dev", {cluster: VisibleNamespaces(names=frozenset(names))})


def entry(policy: str, status: str, **fields: object) -> JsonObject:
    """One entry of a report."""
    return {
        "source": "kyverno",
        "policy": policy,
        "rule": f"{policy}-rule",
        "result": status,
        "message": f"{policy} says {status}",
        **fields,
    }


def report(name: str, namespace: str, *results: JsonObject, **fields: object) -> JsonObject:
    """A PolicyReport on a Pod of the same name; a ClusterPolicyReport where there is no namespace.

    Its scope is in the same namespace.
    """
    kind = "PolicyReport" if namespace else "ClusterPolicyReport"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": kind,
        "metadata": metadata,
        "scope": {"apiVersion": "v1", "kind": "Pod", "uid": f"{name}-uid", **metadata},
        "results": list(results),
        **fields,
    }
