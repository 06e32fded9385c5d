"""Defaults of Services, and the addresses and ports that they are given.

An address follows from the Service's name, so that it stays when the Service is written again.
"""

from hashlib import sha256

from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import JsonObject

_CLUSTER = "Cluster"
_FIRST_NODE_PORT = 30_000
_NODE_PORTS = 2_768
_AFFINITY_SECONDS = 10_800
# 10.96.0.0/16; the first addresses are for Services that everyone knows, such as `kubernetes`.
_NETWORK = "10.96"
_RESERVED = 256
_ADDRESSES = 65_536 - _RESERVED - 1


def complete_service(service: JsonObject) -> None:
    """A Service."""
    spec = service.setdefault("spec", {})
    if not spec.get("type"):
        spec["type"] = "ClusterIP"
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
    for port in read_list(spec, "ports"):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, "", 0) and "port" in port:
            port["targetPort"] = port["port"]
    if spec["type"] != "ExternalName":
        _complete_addresses(service, spec)
    _complete_exposure(service, spec)
    service.setdefault("status", {}).setdefault("loadBalancer", {})


def _complete_addresses(service: JsonObject, spec: JsonObject) -> None:
    spec.setdefault("internalTrafficPolicy", _CLUSTER)
    if not spec.get("clusterIP"):
        given = read_list(spec, "clusterIPs")
        spec["clusterIP"] = given[0] if given else _choose_address(service)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    # A headless Service without a selector stands for whatever its author puts behind it.
    is_open = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if is_open else "SingleStack")
    is_single = spec["ipFamilyPolicy"] == "SingleStack" or not is_open
    spec.setdefault("ipFamilies", ["IPv4"] if is_single else ["IPv4", "IPv6"])


def _complete_exposure(service: JsonObject, spec: JsonObject) -> None:
    if spec["type"] not in ("NodePort", "LoadBalancer"):
        return
    spec.setdefault("externalTrafficPolicy", _CLUSTER)
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec.get("allocateLoadBalancerNodePorts", True):
        for port in read_list(spec, "ports"):
            if not port.get("nodePort"):
                text = f"{port.get('port')}/{port.get('protocol')}"
                port["nodePort"] = _FIRST_NODE_PORT + _number(service, text) % _NODE_PORTS


def _choose_address(service: JsonObject) -> str:
    number = _RESERVED + _number(service, "address") % _ADDRESSES
    return f"{_NETWORK}.{number >> 8}.{number & 255}"


def _number(service: JsonObject, what: str) -> int:
    """Always the same number for the same thing of the same Service."""
    metadata = read_object(service, "metadata")
    name = f"{read_text(metadata, 'namespace')}/{read_text(metadata, 'name')}/{what}"
    return int.from_bytes(sha256(name.encode()).digest()[:8])
