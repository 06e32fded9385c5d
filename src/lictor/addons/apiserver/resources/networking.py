"""Ingress, IngressClass, NetworkPolicy, IPAddress and ServiceCIDR."""

import ipaddress
import re
from datetime import datetime

from lictor.addons.apiserver.field_errors import Say, forbidden, invalid, required
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.columns import (
    NONE,
    age_of,
    build_columns,
    build_timed_columns,
    join_words,
    name_of,
    shorten_list,
    tell_selector,
)
from lictor.addons.apiserver.resources.registry import WHOLE_METADATA, BuiltinResource
from lictor.addons.apiserver.resources.service import list_ingress_addresses
from lictor.addons.apiserver.resources.validation import (
    PROTOCOLS,
    check_choice,
    check_named,
    check_port,
    check_same,
    check_selector,
    check_service_name,
    check_subdomain,
    need,
    take_any_name,
)
from lictor.core.raw import Json, JsonObject


def _set_network_policy_defaults(policy: JsonObject) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    for direction in ("ingress", "egress"):
        for rule in read_list(spec, direction):
            for port in read_list(rule, "ports"):
                port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _set_ingress_class_defaults(ingress_class: JsonObject) -> None:
    parameters = read_object(read_object(ingress_class, "spec"), "parameters")
    if parameters:
        parameters.setdefault("scope", "Cluster")


def _set_ingress_defaults(ingress: JsonObject) -> None:
    ingress.setdefault("status", {}).setdefault("loadBalancer", {})


_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_DOMAIN_PATH = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/\S+")


def validate_ingress(ingress: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def validate_network_policy(policy: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def validate_ingress_class(ingress_class: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def _list_ingress_cells(ingress: JsonObject) -> list[Json]:
    spec = read_object(ingress, "spec")
    hosts = [text for each in read_list(spec, "rules") if (text := read_text(each, "host"))]
    return [
        read_text(spec, "ingressClassName") or NONE,
        shorten_list(hosts, "*"),
        join_words(list_ingress_addresses(read_object(ingress, "status"))),
        "80, 443" if read_list(spec, "tls") else "80",
    ]


def _list_ingress_class_cells(ingress_class: JsonObject) -> list[Json]:
    parameters = read_object(read_object(ingress_class, "spec"), "parameters")
    words = (read_text(parameters, "kind"), read_text(parameters, "apiGroup"))
    kind = ".".join(word for word in words if word)
    return [f"{kind}/{read_text(parameters, 'name')}" if parameters else NONE]


def _list_network_policy_cells(policy: JsonObject) -> list[Json]:
    return [tell_selector(read_object(policy, "spec").get("podSelector") or {})]


def _fill_address(address: JsonObject, now: datetime) -> list[Json]:
    parent = read_object(read_object(address, "spec"), "parentRef")
    words = (read_text(parent, field) for field in ("group", "resource", "namespace", "name"))
    return [
        name_of(address),
        "/".join(word for word in words if word) or NONE,
        age_of(address, now),
    ]


def _list_range_cells(service_range: JsonObject) -> list[Json]:
    return [join_words(read_list(read_object(service_range, "spec"), "cidrs"))]


INGRESS = build_columns("Name | Class | Hosts | Address | Ports | Age", _list_ingress_cells)
INGRESS_CLASS = build_columns(
    "Name | Controller=spec.controller | Parameters | Age", _list_ingress_class_cells
)
NETWORK_POLICY = build_columns("Name | Pod-Selector | Age", _list_network_policy_cells)
# The last cell has no column: so it is in Kubernetes.
IP_ADDRESS = build_timed_columns("Name | ParentRef", _fill_address)
SERVICE_CIDR = build_columns("Name | CIDRs | Age", _list_range_cells)
_GROUP = "networking.k8s.io"
RESOURCES = (
    BuiltinResource(
        _GROUP,
        "Ingress",
        set_defaults=_set_ingress_defaults,
        validate=validate_ingress,
        columns=INGRESS,
        counts_generations=True,
    ),
    BuiltinResource(
        _GROUP,
        "IngressClass",
        set_defaults=_set_ingress_class_defaults,
        validate=validate_ingress_class,
        columns=INGRESS_CLASS,
        counts_generations=True,
    ),
    BuiltinResource(
        _GROUP,
        "NetworkPolicy",
        set_defaults=_set_network_policy_defaults,
        validate=validate_network_policy,
        columns=NETWORK_POLICY,
        counts_generations=True,
    ),
    BuiltinResource(_GROUP, "IPAddress", validate_name=take_any_name, columns=IP_ADDRESS),
    BuiltinResource(_GROUP, "ServiceCIDR", columns=SERVICE_CIDR, status_keeps=WHOLE_METADATA),
)
