"""Service, Endpoints and EndpointSlice: addresses and ports.

The address of a Service follows from its name, so that it stays when the Service is written again.
"""

from hashlib import sha256

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.name_rules import check_label, check_subdomain
from lictor.addons.apiserver.table_columns import NONE, UNSET, join_words, shorten_list
from lictor.core.raw import Json, JsonObject

_CLUSTER = "Cluster"
_NODE_PORTS = range(30_000, 32_768)
# 10.96.0.0/16; the first addresses are for Services that everyone knows, such as `kubernetes`.
_NETWORK = "10.96"
_RESERVED = 256
_ADDRESSES = 65_536 - _RESERVED - 1


def set_service_defaults(service: JsonObject) -> None:
    """Addresses and ports."""
    spec = service["spec"]
    for port in read_list(spec, "ports"):
        if port.get("targetPort") in (None, "", 0) and "port" in port:
            port["targetPort"] = port["port"]
    if spec["type"] != "ExternalName":
        _set_addresses_defaults(service, spec)
    _set_exposure_defaults(service, spec)


def _set_addresses_defaults(service: JsonObject, spec: JsonObject) -> None:
    spec.setdefault("internalTrafficPolicy", _CLUSTER)
    if not spec.get("clusterIP"):
        given = read_list(spec, "clusterIPs")
        spec["clusterIP"] = given[0] if given else _choose_address(service)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    # The endpoints of a headless Service without a selector may have any family.
    is_open = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if is_open else "SingleStack")
    is_single = spec["ipFamilyPolicy"] == "SingleStack" or not is_open
    spec.setdefault("ipFamilies", ["IPv4"] if is_single else ["IPv4", "IPv6"])


def _set_exposure_defaults(service: JsonObject, spec: JsonObject) -> None:
    if spec["type"] not in ("NodePort", "LoadBalancer"):
        return
    spec.setdefault("externalTrafficPolicy", _CLUSTER)
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec.get("allocateLoadBalancerNodePorts", True):
        for port in read_list(spec, "ports"):
            if not port.get("nodePort"):
                text = f"{port.get('port')}/{port.get('protocol')}"
                port["nodePort"] = _NODE_PORTS[_number(service, text) % len(_NODE_PORTS)]


def _choose_address(service: JsonObject) -> str:
    number = _RESERVED + _number(service, "address") % _ADDRESSES
    return f"{_NETWORK}.{number >> 8}.{number & 255}"


def _number(service: JsonObject, what: str) -> int:
    """Always the same number for the same thing of the same Service."""
    metadata = read_object(service, "metadata")
    name = f"{read_text(metadata, 'namespace')}/{read_text(metadata, 'name')}/{what}"
    return int.from_bytes(sha256(name.encode()).digest()[:8])


def check_addresses(spec: CheckedField) -> None:
    """Addresses and ports of a Service."""
    kind, address, ports = spec.get("type"), spec.text("clusterIP"), spec.items("ports")
    if not ports and address != "None" and kind != "ExternalName":
        spec.required("ports")
    if kind == "ExternalName":
        spec.need("externalName")
        spec.named("externalName", check_subdomain, spec.text("externalName").removesuffix("."))
    elif kind in ("LoadBalancer", "NodePort") and address == "None":
        why = f"may not be set to 'None' for {kind} services"
        spec.invalid("clusterIPs[0]", why, "None")
    elif address and address != "None":
        spec.address("clusterIPs[0]", address)
    for port in ports:
        _check_service_port(port, needs_name=len(ports) > 1)


def check_kept_address(spec: CheckedField) -> None:
    """An address cannot be changed."""
    before = spec.old or {}
    addresses, kept = spec.list("clusterIPs"), read_list(before, "clusterIPs")
    both = "ExternalName" not in (spec.get("type"), before.get("type"))
    if kept and addresses and both and addresses[0] != kept[0]:
        spec.invalid("clusterIPs[0]", "may not change once set", addresses)


def _check_service_port(port: CheckedField, *, needs_name: bool) -> None:
    if needs_name and not port.get("name"):
        port.required("name")
    port.named("name", check_label)
    port.port("port", port.get("port") or 0)
    port.choice("protocol", ("TCP", "UDP", "SCTP"))
    port.port("targetPort")
    if port.get("nodePort") and port.get("nodePort") not in _NODE_PORTS:
        why = "provided port is not in the valid range. The range of valid ports is 30000-32767"
        port.invalid("nodePort", why)


def check_port_number(port: CheckedField) -> None:
    """A port without a number has none."""
    port.port("port", port.get("port") or 0)


def check_endpoints(endpoint_slice: CheckedField) -> None:
    """The endpoints of a slice."""
    for endpoint in endpoint_slice.items("endpoints"):
        endpoint.require("addresses", "must contain at least 1 address")
        if endpoint_slice.get("addressType") in ("IPv4", "IPv6"):
            for address in endpoint.items("addresses"):
                address.address("")


def check_subset(subset: CheckedField) -> None:
    """A subset of Endpoints."""
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        subset.required("", "must specify `addresses` or `notReadyAddresses`")


def list_service_cells(service: JsonObject) -> list[Json]:
    """Addresses and ports."""
    spec = read_object(service, "spec")
    addresses = read_list(spec, "clusterIPs")
    return [
        addresses[0] if addresses else read_text(spec, "clusterIP") or NONE,
        _format_outside(service, spec),
        join_words(map(_format_port, read_list(spec, "ports"))) or NONE,
    ]


def _format_port(port: JsonObject) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol')}"


def _format_outside(service: JsonObject, spec: JsonObject) -> str:
    own = [*read_list(spec, "externalIPs")]
    match spec.get("type"):
        case "ExternalName":
            return read_text(spec, "externalName")
        case "LoadBalancer":
            found = list_ingress_addresses(read_object(service, "status"))
            return join_words([*found, *own]) or "<pending>"
        case _:
            return join_words(own) or NONE


def list_ingress_addresses(status: JsonObject) -> list[str]:
    """The addresses of the load balancer in a status."""
    entries = read_list(read_object(status, "loadBalancer"), "ingress")
    return [read_text(each, "ip") or read_text(each, "hostname") for each in entries]


def list_endpoints_cells(endpoints: JsonObject) -> list[Json]:
    """Addresses with ports."""
    places = []
    for subset in read_list(endpoints, "subsets"):
        addresses = [read_text(each, "ip") for each in read_list(subset, "addresses")]
        ports = read_list(subset, "ports")
        if ports:
            places += [f"{ip}:{port.get('port')}" for port in ports for ip in addresses]
        else:
            places += addresses
    return [shorten_list(places)]


def list_slice_cells(endpoint_slice: JsonObject) -> list[Json]:
    """Ports and addresses."""
    ports = [
        str(each["port"]) if each.get("port") is not None else "*"
        for each in read_list(endpoint_slice, "ports")
    ]
    addresses = [
        address
        for each in read_list(endpoint_slice, "endpoints")
        for address in read_list(each, "addresses")
    ]
    return [shorten_list(ports, UNSET), shorten_list(addresses, UNSET)]
