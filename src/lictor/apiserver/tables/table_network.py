"""Rows of Services and of what leads to them."""

from datetime import datetime

from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.apiserver.tables.table_columns import (
    NONE,
    UNSET,
    age_of,
    build_layout,
    join_words,
    name_of,
    shorten_list,
    tell_labels,
    tell_selector,
)
from lictor.raw import Json, JsonObject

_MOST_WORDS = 3
_PENDING = "<pending>"


def _fill_service(service: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(service, "spec")
    addresses = read_list(spec, "clusterIPs")
    return [
        name_of(service),
        read_text(spec, "type"),
        addresses[0] if addresses else read_text(spec, "clusterIP") or NONE,
        _tell_outside(service, spec),
        join_words(map(_tell_port, read_list(spec, "ports"))) or NONE,
        age_of(service, now),
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
            found = _list_ingress(read_object(service, "status"))
            return join_words([*found, *own]) or _PENDING
        case _:
            return join_words(own) or NONE


def _list_ingress(status: JsonObject) -> list[str]:
    entries = read_list(read_object(status, "loadBalancer"), "ingress")
    return [read_text(each, "ip") or read_text(each, "hostname") for each in entries]


def _fill_ingress(ingress: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(ingress, "spec")
    hosts = [text for each in read_list(spec, "rules") if (text := read_text(each, "host"))]
    return [
        name_of(ingress),
        read_text(spec, "ingressClassName") or NONE,
        shorten_list(hosts, _MOST_WORDS) if hosts else "*",
        join_words(_list_ingress(read_object(ingress, "status"))),
        "80, 443" if read_list(spec, "tls") else "80",
        age_of(ingress, now),
    ]


def _fill_ingress_class(ingress_class: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(ingress_class, "spec")
    parameters = read_object(spec, "parameters")
    words = (read_text(parameters, "kind"), read_text(parameters, "apiGroup"))
    kind = ".".join(word for word in words if word)
    told = f"{kind}/{read_text(parameters, 'name')}" if parameters else NONE
    return [name_of(ingress_class), read_text(spec, "controller"), told, age_of(ingress_class, now)]


def _fill_network_policy(policy: JsonObject, now: datetime) -> list[Json]:
    selector = read_object(policy, "spec").get("podSelector") or {}
    return [name_of(policy), tell_selector(selector), age_of(policy, now)]


def _fill_endpoints(endpoints: JsonObject, now: datetime) -> list[Json]:
    places = []
    for subset in read_list(endpoints, "subsets"):
        addresses = [read_text(each, "ip") for each in read_list(subset, "addresses")]
        ports = read_list(subset, "ports")
        if ports:
            places += [f"{ip}:{port.get('port')}" for port in ports for ip in addresses]
        else:
            places += addresses
    return [name_of(endpoints), shorten_list(places, _MOST_WORDS), age_of(endpoints, now)]


def _fill_slice(endpoint_slice: JsonObject, now: datetime) -> list[Json]:
    ports = [
        str(each["port"]) if each.get("port") is not None else "*"
        for each in read_list(endpoint_slice, "ports")
    ]
    addresses = [
        address
        for each in read_list(endpoint_slice, "endpoints")
        for address in read_list(each, "addresses")
    ]
    return [
        name_of(endpoint_slice),
        read_text(endpoint_slice, "addressType"),
        shorten_list(ports, _MOST_WORDS) if ports else UNSET,
        shorten_list(addresses, _MOST_WORDS) if addresses else UNSET,
        age_of(endpoint_slice, now),
    ]


def _fill_address(address: JsonObject, now: datetime) -> list[Json]:
    parent = read_object(read_object(address, "spec"), "parentRef")
    words = (read_text(parent, field) for field in ("group", "resource", "namespace", "name"))
    return [
        name_of(address),
        "/".join(word for word in words if word) or NONE,
        age_of(address, now),
    ]


def _fill_range(service_range: JsonObject, now: datetime) -> list[Json]:
    ranges = read_list(read_object(service_range, "spec"), "cidrs")
    return [name_of(service_range), join_words(ranges), age_of(service_range, now)]


SERVICE = build_layout(
    "Name | Type | Cluster-IP | External-IP | Port(s) | Age | Selector!", _fill_service
)
INGRESS = build_layout("Name | Class | Hosts | Address | Ports | Age", _fill_ingress)
INGRESS_CLASS = build_layout("Name | Controller | Parameters | Age", _fill_ingress_class)
NETWORK_POLICY = build_layout("Name | Pod-Selector | Age", _fill_network_policy)
ENDPOINTS = build_layout("Name | Endpoints | Age", _fill_endpoints)
ENDPOINT_SLICE = build_layout("Name | AddressType | Ports | Endpoints | Age", _fill_slice)
# The last cell has no column: so it is in Kubernetes.
IP_ADDRESS = build_layout("Name | ParentRef", _fill_address)
SERVICE_CIDR = build_layout("Name | CIDRs | Age", _fill_range)
