"""Checks for access to the node: namespaces, ports, paths, sysctls, probes, volumes."""

from collections.abc import Callable

from lictor.core.evaluate.pod_security.pod import CheckedPod, PodContainer, ProbeHandler, Volume
from lictor.core.evaluate.pod_security.violation import (
    Violation,
    count_noun,
    forbid,
    name_containers,
    quote,
)

SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
SYSCTLS_1_27 = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_1_29 = SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SYSCTLS_1_32 = SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
SYSCTLS_1_37 = SYSCTLS_1_32 | {
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
}

# In the evaluation order for a volume with several sources: attribute -> name in the API.
RESTRICTED_SOURCES = {
    "host_path": "hostPath",
    "gce_persistent_disk": "gcePersistentDisk",
    "aws_elastic_block_store": "awsElasticBlockStore",
    "git_repo": "gitRepo",
    "nfs": "nfs",
    "iscsi": "iscsi",
    "glusterfs": "glusterfs",
    "rbd": "rbd",
    "flex_volume": "flexVolume",
    "cinder": "cinder",
    "cephfs": "cephfs",
    "flocker": "flocker",
    "fc": "fc",
    "azure_file": "azureFile",
    "vsphere_volume": "vsphereVolume",
    "quobyte": "quobyte",
    "azure_disk": "azureDisk",
    "photon_persistent_disk": "photonPersistentDisk",
    "portworx_volume": "portworxVolume",
    "scale_io": "scaleIO",
    "storageos": "storageos",
}


def check_host_namespaces(pod: CheckedPod) -> Violation | None:
    """The pod shares no namespace with its node."""
    spec = pod.spec
    if not (spec.host_network or spec.host_pid or spec.host_ipc):
        return None
    flags = (
        ("hostNetwork", spec.host_network),
        ("hostPID", spec.host_pid),
        ("hostIPC", spec.host_ipc),
    )
    shared = [field for field, is_set in flags if is_set]
    return Violation(
        "hostNamespaces",
        "Host Namespaces",
        "host namespaces",
        ", ".join(f"{field}=true" for field in shared),
        tuple(forbid(f"spec.{field}", found=True) for field in shared),
    )


def check_host_paths(pod: CheckedPod) -> Violation | None:
    """No volume is a folder of the node."""
    if not pod.spec.volumes:
        return None
    found = {
        at: (volume.name, volume.host_path.path)
        for at, volume in enumerate(pod.spec.volumes)
        if volume.host_path is not None
    }
    if not found:
        return None
    names = [name for name, _ in found.values()]
    return Violation(
        "hostPathVolumes",
        "HostPath Volumes",
        "hostPath volumes",
        f"{count_noun('volume', names)} {quote(names)}",
        tuple(forbid(f"spec.volumes[{at}].hostPath", path) for at, (_, path) in found.items()),
    )


def check_host_ports(pod: CheckedPod) -> Violation | None:
    """No container opens a port of the node."""
    found = [
        (at, index, port.host_port)
        for at, container in enumerate(pod.containers)
        if container.ports
        for index, port in enumerate(container.ports)
        if port.host_port
    ]
    if not found:
        return None
    names = [pod.containers[at].name for at in dict.fromkeys(at for at, _, _ in found)]
    ports = sorted({str(port) for _, _, port in found})
    return Violation(
        "hostPorts",
        "Host Ports",
        "hostPort",
        f"{name_containers(names)} {'uses' if len(names) == 1 else 'use'}"
        f" {count_noun('hostPort', ports)} {', '.join(ports)}",
        tuple(forbid(f"{pod.path(at)}.ports[{i}].hostPort", port) for at, i, port in found),
    )


def _find_hosts(container: PodContainer) -> list[str]:
    hooks = container.lifecycle
    handlers: tuple[ProbeHandler | None, ...] = (
        container.liveness_probe,
        container.readiness_probe,
        container.startup_probe,
        hooks.post_start if hooks else None,
        hooks.pre_stop if hooks else None,
    )
    hosts = []
    for handler in handlers:
        if handler is not None:
            if handler.http_get is not None and handler.http_get.host:
                hosts.append(handler.http_get.host)
            if handler.tcp_socket is not None and handler.tcp_socket.host:
                hosts.append(handler.tcp_socket.host)
    return hosts


def check_probe_hosts(pod: CheckedPod) -> Violation | None:
    """No probe or hook makes the kubelet connect to another host."""
    found = [(each.name, hosts) for each in pod.containers if (hosts := _find_hosts(each))]
    if not found:
        return None
    names = sorted({name for name, _ in found})
    every = sorted({host for _, hosts in found for host in hosts})
    return Violation(
        "hostProbesAndHostLifecycle",
        "",
        "probe or lifecycle host",
        f"{name_containers(names)} {'uses' if len(names) == 1 else 'use'}"
        f" {count_noun('probe or lifecycle host', every)} {quote(every)}",
    )


def _is_restricted(volume: Volume) -> bool:
    return (
        volume.config_map is None
        and volume.empty_dir is None
        and volume.secret is None
        and volume.projected is None
        and volume.persistent_volume_claim is None
        and volume.downward_api is None
        and volume.csi is None
        and volume.ephemeral is None
        and volume.image is None
    )


def _name_source(volume: Volume) -> str:
    for attribute, name in RESTRICTED_SOURCES.items():
        if getattr(volume, attribute) is not None:
            return name
    return "unknown"


def check_volume_types(pod: CheckedPod) -> Violation | None:
    """Every volume is of a type that the restricted level allows."""
    if not pod.spec.volumes:
        return None
    found = {at: v for at, v in enumerate(pod.spec.volumes) if _is_restricted(v)}
    if not found:
        return None
    names = [volume.name for volume in found.values()]
    types = sorted({_name_source(volume) for volume in found.values()})
    return Violation(
        "restrictedVolumes",
        "Volume Types",
        "restricted volume types",
        f"{count_noun('volume', names)} {quote(names)} {'uses' if len(names) == 1 else 'use'}"
        f" {count_noun('restricted volume type', types)} {quote(types)}",
        tuple(forbid(f"spec.volumes[{at}].{_name_source(v)}") for at, v in found.items()),
    )


def compile_sysctl_check(allowed: frozenset[str]) -> Callable[[CheckedPod], Violation | None]:
    """A check that the pod sets no sysctls but these."""

    def check_sysctls(pod: CheckedPod) -> Violation | None:
        if not pod.context.sysctls:
            return None
        found = {
            at: sysctl.name or ""
            for at, sysctl in enumerate(pod.context.sysctls)
            if sysctl.name not in allowed
        }
        if not found:
            return None
        return Violation(
            "sysctls",
            "Sysctls",
            "forbidden sysctls",
            ", ".join(found.values()),
            tuple(forbid(f"spec.securityContext.sysctls[{at}].name", v) for at, v in found.items()),
        )

    return check_sysctls
