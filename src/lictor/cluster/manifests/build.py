"""An installation -> all its manifests, in an order in which they can be applied."""

from lictor.cluster.manifests.config_maps import build_config_maps, check_settings
from lictor.cluster.manifests.crds import build_crds
from lictor.cluster.manifests.installation import (
    Installation,
    build_cluster_object,
    check_installation,
)
from lictor.cluster.manifests.rights import build_rights
from lictor.cluster.manifests.workloads import build_workloads
from lictor.raw import JsonObject

_POD_SECURITY = "pod-security.kubernetes.io"


def build_manifests(installation: Installation) -> list[JsonObject]:
    """Everything that an installation is made of.

    Webhook configurations and certificates are not among it: the controllers make them when they
    can answer, so that a cluster is never told to ask someone who is not there.
    """
    check_installation(installation)
    check_settings(installation.settings)
    crds = [] if installation.skip_crds else build_crds(open_reports=installation.open_reports)
    return [
        build_namespace(installation),
        *crds,
        *build_rights(installation),
        *build_config_maps(installation),
        *build_workloads(installation),
    ]


def build_namespace(installation: Installation) -> JsonObject:
    """The Namespace, in which only Pods as careful as ours may run."""
    namespace = build_cluster_object(
        installation, "v1/Namespace", installation.namespace, "namespace"
    )
    for mode in ("enforce", "warn"):
        namespace["metadata"]["labels"][f"{_POD_SECURITY}/{mode}"] = "restricted"
    return namespace
