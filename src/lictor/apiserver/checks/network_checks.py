"""What is wrong with Services and with what leads to them?"""

import ipaddress
import re

from lictor.apiserver.checks.check_basics import (
    PROTOCOLS,
    Say,
    check_address,
    check_choice,
    check_named,
    check_port,
    check_same,
    check_selector,
    check_unique,
    need,
    say_all,
)
from lictor.apiserver.checks.name_rules import check_label, check_service_name, check_subdomain
from lictor.apiserver.checks.object_checks import check_labels
from lictor.apiserver.field_errors import forbidden, invalid, required
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import Json, JsonObject

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_NODE_PORTS = range(30_000, 32_768)
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_DOMAIN_PATH = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/\S+")


def check_service(service: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def check_ingress(ingress: JsonObject, old: JsonObject | None, say: Say) -> None:
    """An Ingress."""
    del old
    spec = read_object(ingress, "spec")
    if not spec.get("rules") and not spec.get("defaultBackend"):
        told = "either `defaultBackend` or `rules` must be specified"
        say(invalid("spec", ingress.get("spec"), told))
    if isinstance(backend := spec.get("defaultBackend"), dict):
        _check_backend(backend, "spec.defaultBackend", say)
    for index, rule in enumerate(read_list(spec, "rules")):
        path = f"spec.rules[{index}]"
        _check_host(read_text(rule, "host"), f"{path}.host", say)
        if isinstance(http := rule.get("http"), dict):
            _check_paths(read_list(http, "paths"), f"{path}.http.paths", say)
    for index, tls in enumerate(read_list(spec, "tls")):
        for number, host in enumerate(read_list(tls, "hosts")):
            _check_host(host, f"spec.tls[{index}].hosts[{number}]", say)


def _check_host(host: str, path: str, say: Say) -> None:
    check_named(host.removeprefix("*."), check_subdomain, path, say)


def _check_paths(paths: list[Json], path: str, say: Say) -> None:
    if not paths:
        say(required(path))
    for index, each in enumerate(paths):
        place = f"{path}[{index}]"
        kind, text = each.get("pathType"), read_text(each, "path")
        if not kind:
            say(required(f"{place}.pathType", "pathType must be specified"))
        check_choice(kind, _PATH_TYPES, f"{place}.pathType", say)
        if kind in ("Exact", "Prefix") and not text.startswith("/"):
            say(invalid(f"{place}.path", text, "must be an absolute path"))
        _check_backend(read_object(each, "backend"), f"{place}.backend", say)


def _check_backend(backend: JsonObject, path: str, say: Say) -> None:
    service = backend.get("service")
    if not isinstance(service, dict):
        if "resource" not in backend:
            say(invalid(path, "", "resource or service backend is required"))
        return
    need(service, ("name",), f"{path}.service", say)
    check_named(service.get("name"), check_service_name, f"{path}.service.name", say)
    port = read_object(service, "port")
    if not port:
        say(required(path, "port name or number is required"))


def check_network_policy(policy: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A NetworkPolicy."""
    del old
    spec = read_object(policy, "spec")
    check_selector(spec.get("podSelector"), "spec.podSelector", say)
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(read_list(spec, direction)):
            path = f"spec.{direction}[{index}]"
            for number, port in enumerate(read_list(rule, "ports")):
                place = f"{path}.ports[{number}]"
                check_choice(port.get("protocol"), PROTOCOLS, f"{place}.protocol", say)
                check_port(port.get("port"), f"{place}.port", say)
            for number, peer in enumerate(read_list(rule, peers)):
                _check_peer(peer, f"{path}.{peers}[{number}]", say)
    for index, kind in enumerate(read_list(spec, "policyTypes")):
        check_choice(kind, ("Ingress", "Egress"), f"spec.policyTypes[{index}]", say)


def _check_peer(peer: JsonObject, path: str, say: Say) -> None:
    selectors = [field for field in ("podSelector", "namespaceSelector") if field in peer]
    for field in selectors:
        check_selector(peer[field], f"{path}.{field}", say)
    block = peer.get("ipBlock")
    if block is None:
        if not selectors:
            say(required(path, "must specify a peer"))
        return
    if selectors:
        say(forbidden(path, "may not specify both ipBlock and another peer"))
    cidr = read_text(block, "cidr")
    try:
        ipaddress.ip_network(cidr)
    except ValueError:
        told = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        say(invalid(f"{path}.ipBlock.cidr", cidr, told))


def check_slice(endpoint_slice: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def check_endpoints(endpoints: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def check_ingress_class(ingress_class: JsonObject, old: JsonObject | None, say: Say) -> None:
    """An IngressClass."""
    spec = read_object(ingress_class, "spec")
    controller = read_text(spec, "controller")
    if not controller:
        say(required("spec.controller"))
    elif not _DOMAIN_PATH.fullmatch(controller):
        told = 'must be a domain-prefixed path (such as "acme.io/foo")'
        say(invalid("spec.controller", controller, told))
    before = None if old is None else read_object(old, "spec")
    check_same(spec, before, ("controller",), "spec", say)
