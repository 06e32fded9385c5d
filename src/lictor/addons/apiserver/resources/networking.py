"""Ingress, IngressClass, NetworkPolicy, IPAddress and ServiceCIDR."""

import ipaddress
import re
from datetime import datetime

from lictor.addons.apiserver.field_checks import (
    PROTOCOLS,
    CheckedField,
    check_service_name,
    check_subdomain,
    take_any_name,
)
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import WHOLE_METADATA, BuiltinResource
from lictor.addons.apiserver.resources.service import list_ingress_addresses
from lictor.addons.apiserver.table_columns import (
    NONE,
    age_of,
    build_columns,
    build_timed_columns,
    join_words,
    name_of,
    shorten_list,
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


def _validate_ingress(ingress: CheckedField) -> None:
    spec = ingress.at("spec")
    if not spec.get("rules") and not spec.get("defaultBackend"):
        why = "either `defaultBackend` or `rules` must be specified"
        ingress.invalid("spec", why)
    if isinstance(spec.get("defaultBackend"), dict):
        _check_backend(spec.at("defaultBackend"))
    for rule in spec.items("rules"):
        _check_host(rule, "host", rule.text("host"))
        if isinstance(rule.get("http"), dict):
            _check_paths(rule.at("http"))
    for tls in spec.items("tls"):
        for host in tls.items("hosts"):
            _check_host(host, "", host.value)


def _check_host(field: CheckedField, name: str, host: str) -> None:
    field.named(name, check_subdomain, host.removeprefix("*."))


def _check_paths(http: CheckedField) -> None:
    if not http.list("paths"):
        http.required("paths")
    for path in http.items("paths"):
        kind, text = path.get("pathType"), path.text("path")
        if not kind:
            path.required("pathType", "pathType must be specified")
        path.choice("pathType", _PATH_TYPES)
        if kind in ("Exact", "Prefix") and not text.startswith("/"):
            path.invalid("path", "must be an absolute path", text)
        _check_backend(path.at("backend"))


def _check_backend(backend: CheckedField) -> None:
    if not isinstance(backend.get("service"), dict):
        if "resource" not in backend.value:
            backend.invalid("", "resource or service backend is required", "")
        return
    service = backend.at("service")
    service.need("name")
    service.named("name", check_service_name)
    if not service.at("port").value:
        backend.required("", "port name or number is required")


def _validate_network_policy(policy: CheckedField) -> None:
    spec = policy.at("spec")
    spec.selector("podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.items(direction):
            for port in rule.items("ports"):
                port.choice("protocol", PROTOCOLS)
                port.port("port")
            for peer in rule.items(peers):
                _check_peer(peer)
    for kind in spec.items("policyTypes"):
        kind.choice("", ("Ingress", "Egress"))


def _check_peer(peer: CheckedField) -> None:
    selectors = [field for field in ("podSelector", "namespaceSelector") if field in peer.value]
    for field in selectors:
        peer.selector(field)
    if peer.get("ipBlock") is None:
        if not selectors:
            peer.required("", "must specify a peer")
        return
    if selectors:
        peer.forbid("", "may not specify both ipBlock and another peer")
    block = peer.at("ipBlock")
    try:
        ipaddress.ip_network(block.text("cidr"))
    except ValueError:
        why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        block.invalid("cidr", why, block.text("cidr"))


def _validate_ingress_class(ingress_class: CheckedField) -> None:
    spec = ingress_class.at("spec")
    controller = spec.text("controller")
    if not controller:
        spec.required("controller")
    elif not _DOMAIN_PATH.fullmatch(controller):
        spec.invalid("controller", 'must be a domain-prefixed path (such as "acme.io/foo")')
    spec.same("controller")


def _list_ingress_cells(ingress: JsonObject) -> list[Json]:
    spec = read_object(ingress, "spec")
    hosts = [text for each in read_list(spec, "rules") if (text := read_text(each, "host"))]
    return [
        shorten_list(hosts, "*"),
        join_words(list_ingress_addresses(read_object(ingress, "status"))),
        "80, 443" if read_list(spec, "tls") else "80",
    ]


def _list_ingress_class_cells(ingress_class: JsonObject) -> list[Json]:
    parameters = read_object(read_object(ingress_class, "spec"), "parameters")
    words = (read_text(parameters, "kind"), read_text(parameters, "apiGroup"))
    kind = ".".join(word for word in words if word)
    return [f"{kind}/{read_text(parameters, 'name')}" if parameters else NONE]


def _fill_address(address: JsonObject, now: datetime) -> list[Json]:
    parent = read_object(read_object(address, "spec"), "parentRef")
    words = (read_text(parent, field) for field in ("group", "resource", "namespace", "name"))
    return [
        name_of(address),
        "/".join(word for word in words if word) or NONE,
        age_of(address, now),
    ]


INGRESS = build_columns(
    "Name | Class=spec.ingressClassName?<none> | Hosts | Address | Ports | Age", _list_ingress_cells
)
INGRESS_CLASS = build_columns(
    "Name | Controller=spec.controller | Parameters | Age", _list_ingress_class_cells
)
NETWORK_POLICY = build_columns("Name | Pod-Selector=~spec.podSelector | Age")
# The last cell has no column: so it is in Kubernetes.
IP_ADDRESS = build_timed_columns("Name | ParentRef", _fill_address)
SERVICE_CIDR = build_columns("Name | CIDRs=,spec.cidrs | Age")
_GROUP = "networking.k8s.io"
RESOURCES = (
    BuiltinResource(
        _GROUP,
        "Ingress",
        set_defaults=_set_ingress_defaults,
        validate=_validate_ingress,
        columns=INGRESS,
        counts_generations=True,
    ),
    BuiltinResource(
        _GROUP,
        "IngressClass",
        set_defaults=_set_ingress_class_defaults,
        validate=_validate_ingress_class,
        columns=INGRESS_CLASS,
        counts_generations=True,
    ),
    BuiltinResource(
        _GROUP,
        "NetworkPolicy",
        set_defaults=_set_network_policy_defaults,
        validate=_validate_network_policy,
        columns=NETWORK_POLICY,
        counts_generations=True,
    ),
    BuiltinResource(_GROUP, "IPAddress", validate_name=take_any_name, columns=IP_ADDRESS),
    BuiltinResource(_GROUP, "ServiceCIDR", columns=SERVICE_CIDR, status_keeps=WHOLE_METADATA),
)
