"""Service, Endpoints and EndpointSlice: defaults, validation, columns.

The address of a Service follows from its name, so that it stays when the Service is written again.
"""

from hashlib import sha256

from lictor.addons.apiserver.field_errors import Say, invalid, required
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.columns import (
    NONE,
    UNSET,
    build_columns,
    join_words,
    shorten_list,
    tell_labels,
)
from lictor.addons.apiserver.resources.registry import BuiltinResource, select_by
from lictor.addons.apiserver.resources.validation import (
    PROTOCOLS,
    check_address,
    check_choice,
    check_label,
    check_labels,
    check_named,
    check_port,
    check_same,
    check_service_name,
    check_subdomain,
    check_unique,
    need,
    say_all,
)
from lictor.core.raw import Json, JsonObject

_CLUSTER = "Cluster"
_FIRST_NODE_PORT = 30_000
_NODE_PORT_COUNT = 2_768
_AFFINITY_SECONDS = 10_800
# 10.96.0.0/16; the first addresses are for Services that everyone knows, such as `kubernetes`.
_NETWORK = "10.96"
_RESERVED = 256
_ADDRESSES = 65_536 - _RESERVED - 1


def set_service_defaults(service: JsonObject) -> None:
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
        _set_addresses_defaults(service, spec)
    _set_exposure_defaults(service, spec)
    service.setdefault("status", {}).setdefault("loadBalancer", {})


def _set_addresses_defaults(service: JsonObject, spec: JsonObject) -> None:
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
                port["nodePort"] = _FIRST_NODE_PORT + _number(service, text) % _NODE_PORT_COUNT


def _choose_address(service: JsonObject) -> str:
    number = _RESERVED + _number(service, "address") % _ADDRESSES
    return f"{_NETWORK}.{number >> 8}.{number & 255}"


def _number(service: JsonObject, what: str) -> int:
    """Always the same number for the same thing of the same Service."""
    metadata = read_object(service, "metadata")
    name = f"{read_text(metadata, 'namespace')}/{read_text(metadata, 'name')}/{what}"
    return int.from_bytes(sha256(name.encode()).digest()[:8])


def _set_endpoints_defaults(endpoints: JsonObject) -> None:
    for subset in read_list(endpoints, "subsets"):
        for port in read_list(subset, "ports"):
            port.setdefault("protocol", "TCP")


def _set_slice_defaults(endpoint_slice: JsonObject) -> None:
    for port in read_list(endpoint_slice, "ports"):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")
    for endpoint in read_list(endpoint_slice, "endpoints"):
        endpoint.setdefault("conditions", {})


_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_NODE_PORTS = range(30_000, 32_768)


def validate_service(service: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Service."""
    spec = read_object(service, "spec")
    kind, address = spec.get("type"), read_text(spec, "clusterIP")
    ports = read_list(spec, "ports")
    if not ports and address != "None" and kind != "ExternalName":
        say(required("spec.ports"))
    if kind == "ExternalName":
        need(spec, ("externalName",), "spec", say)
        check_named(
            read_text(spec, "externalName").removesuffix("."),
            check_subdomain,
            "spec.externalName",
            say,
        )
    elif kind in ("LoadBalancer", "NodePort") and address == "None":
        told = f"may not be set to 'None' for {kind} services"
        say(invalid("spec.clusterIPs[0]", "None", told))
    elif address and address != "None":
        check_address(address, "spec.clusterIPs[0]", say)
    for index, port in enumerate(ports):
        _check_service_port(port, f"spec.ports[{index}]", say, needs_name=len(ports) > 1)
    check_unique((read_text(each, "name") for each in ports), "spec.ports", "name", say)
    say_all(check_labels(read_object(spec, "selector"), "spec.selector"), say)
    check_choice(spec.get("sessionAffinity"), ("ClientIP", "None"), "spec.sessionAffinity", say)
    check_choice(kind, _TYPES, "spec.type", say)
    outside = spec.get("externalTrafficPolicy")
    check_choice(outside, ("Cluster", "Local"), "spec.externalTrafficPolicy", say)
    _check_address_change(spec, old, say)


def _check_service_port(port: JsonObject, path: str, say: Say, *, needs_name: bool) -> None:
    if needs_name and not port.get("name"):
        say(required(f"{path}.name"))
    check_named(port.get("name"), check_label, f"{path}.name", say)
    check_port(port.get("port") or 0, f"{path}.port", say)
    check_choice(port.get("protocol"), PROTOCOLS, f"{path}.protocol", say)
    check_port(port.get("targetPort"), f"{path}.targetPort", say)
    node = port.get("nodePort")
    if node and node not in _NODE_PORTS:
        told = "provided port is not in the valid range. The range of valid ports is 30000-32767"
        say(invalid(f"{path}.nodePort", node, told))


def _check_address_change(spec: JsonObject, old: JsonObject | None, say: Say) -> None:
    before = read_object(old, "spec")
    addresses, kept = read_list(spec, "clusterIPs"), read_list(before, "clusterIPs")
    both = "ExternalName" not in (spec.get("type"), before.get("type"))
    if kept and addresses and both and addresses[0] != kept[0]:
        say(invalid("spec.clusterIPs[0]", addresses, "may not change once set"))


def validate_slice(endpoint_slice: JsonObject, old: JsonObject | None, say: Say) -> None:
    """An EndpointSlice."""
    kind = endpoint_slice.get("addressType")
    need(endpoint_slice, ("addressType",), "", say)
    check_choice(kind, ("FQDN", "IPv4", "IPv6"), "addressType", say)
    for index, port in enumerate(read_list(endpoint_slice, "ports")):
        check_choice(port.get("protocol"), sorted(PROTOCOLS), f"ports[{index}].protocol", say)
    for index, endpoint in enumerate(read_list(endpoint_slice, "endpoints")):
        path = f"endpoints[{index}].addresses"
        addresses = read_list(endpoint, "addresses")
        if not addresses:
            say(required(path, "must contain at least 1 address"))
        for number, address in enumerate(addresses):
            if kind in ("IPv4", "IPv6"):
                check_address(address, f"{path}[{number}]", say)
    check_same(endpoint_slice, old, ("addressType",), "", say)


def validate_endpoints(endpoints: JsonObject, old: JsonObject | None, say: Say) -> None:
    """Endpoints."""
    del old
    for index, subset in enumerate(read_list(endpoints, "subsets")):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            say(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for number, address in enumerate(read_list(subset, "addresses")):
            check_address(address.get("ip"), f"{path}.addresses[{number}].ip", say)
        for number, port in enumerate(read_list(subset, "ports")):
            check_port(port.get("port") or 0, f"{path}.ports[{number}].port", say)


_PENDING = "<pending>"


def _list_service_cells(service: JsonObject) -> list[Json]:
    spec = read_object(service, "spec")
    addresses = read_list(spec, "clusterIPs")
    return [
        addresses[0] if addresses else read_text(spec, "clusterIP") or NONE,
        _tell_outside(service, spec),
        join_words(map(_tell_port, read_list(spec, "ports"))) or NONE,
        tell_labels(read_object(spec, "selector")),
    ]


def _tell_port(port: JsonObject) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol')}"


def _tell_outside(service: JsonObject, spec: JsonObject) -> str:
    own = [*read_list(spec, "externalIPs")]
    match spec.get("type"):
        case "ExternalName":
            return read_text(spec, "externalName")
        case "LoadBalancer":
            found = list_ingress_addresses(read_object(service, "status"))
            return join_words([*found, *own]) or _PENDING
        case _:
            return join_words(own) or NONE


def list_ingress_addresses(status: JsonObject) -> list[str]:
    """Addresses of a load balancer, as a status tells them."""
    entries = read_list(read_object(status, "loadBalancer"), "ingress")
    return [read_text(each, "ip") or read_text(each, "hostname") for each in entries]


def _list_endpoints_cells(endpoints: JsonObject) -> list[Json]:
    places = []
    for subset in read_list(endpoints, "subsets"):
        addresses = [read_text(each, "ip") for each in read_list(subset, "addresses")]
        ports = read_list(subset, "ports")
        if ports:
            places += [f"{ip}:{port.get('port')}" for port in ports for ip in addresses]
        else:
            places += addresses
    return [shorten_list(places)]


def _list_slice_cells(endpoint_slice: JsonObject) -> list[Json]:
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


SERVICE = build_columns(
    "Name | Type=spec.type | Cluster-IP | External-IP | Port(s) | Age | Selector!",
    _list_service_cells,
)
ENDPOINTS = build_columns("Name | Endpoints | Age", _list_endpoints_cells)
ENDPOINT_SLICE = build_columns(
    "Name | AddressType=addressType | Ports | Endpoints | Age", _list_slice_cells
)
RESOURCES = (
    BuiltinResource(
        "",
        "Service",
        set_defaults=set_service_defaults,
        validate=validate_service,
        validate_name=check_service_name,
        columns=SERVICE,
        selectable_fields=select_by("spec.clusterIP", "spec.type"),
        created_by_update=True,
        returned_when_deleted=True,
    ),
    BuiltinResource(
        "",
        "Endpoints",
        set_defaults=_set_endpoints_defaults,
        validate=validate_endpoints,
        columns=ENDPOINTS,
        created_by_update=True,
    ),
    BuiltinResource(
        "discovery.k8s.io",
        "EndpointSlice",
        set_defaults=_set_slice_defaults,
        validate=validate_slice,
        columns=ENDPOINT_SLICE,
        counts_generations=True,
    ),
)
