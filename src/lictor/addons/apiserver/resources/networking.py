"""Ingress, IngressClass, NetworkPolicy and IPAddress."""

import ipaddress
from datetime import datetime

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.name_rules import check_label, check_subdomain
from lictor.addons.apiserver.resources.service import list_ingress_addresses
from lictor.addons.apiserver.table_columns import (
    NONE,
    age_of,
    join_words,
    name_of,
    shorten_list,
)
from lictor.core.raw import Json, JsonObject


def set_policy_types_default(spec: JsonObject) -> None:
    """The directions that a NetworkPolicy is about."""
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def check_rules(ingress: CheckedField) -> None:
    """An Ingress has rules or a default backend."""
    spec = ingress.at("spec")
    if not spec.get("rules") and not spec.get("defaultBackend"):
        ingress.invalid("spec", "either `defaultBackend` or `rules` must be specified")


def check_host(rule: CheckedField) -> None:
    """The host of a rule."""
    rule.named("host", check_subdomain, rule.text("host").removeprefix("*."))


def check_tls_host(host: CheckedField) -> None:
    """A host of a certificate."""
    host.named("", check_subdomain, host.value.removeprefix("*."))


def check_path(path: CheckedField) -> None:
    """Some types of paths are absolute."""
    text = path.text("path")
    if path.get("pathType") in ("Exact", "Prefix") and not text.startswith("/"):
        path.invalid("path", "must be an absolute path", text)


def check_backend(backend: CheckedField) -> None:
    """A Service with a port, or another resource."""
    if not isinstance(backend.get("service"), dict):
        if "resource" not in backend.value:
            backend.invalid("", "resource or service backend is required", "")
        return
    service = backend.at("service")
    service.need("name")
    service.named("name", check_label)
    if not service.at("port").value:
        backend.required("", "port name or number is required")


def check_peer(peer: CheckedField) -> None:
    """Selectors, or a range of addresses."""
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


def list_ingress_cells(ingress: JsonObject) -> list[Json]:
    """Hosts, addresses and ports."""
    spec = read_object(ingress, "spec")
    hosts = [text for each in read_list(spec, "rules") if (text := read_text(each, "host"))]
    return [
        shorten_list(hosts, "*"),
        join_words(list_ingress_addresses(read_object(ingress, "status"))),
        "80, 443" if read_list(spec, "tls") else "80",
    ]


def list_ingress_class_cells(ingress_class: JsonObject) -> list[Json]:
    """The parameters."""
    parameters = read_object(read_object(ingress_class, "spec"), "parameters")
    words = (read_text(parameters, "kind"), read_text(parameters, "apiGroup"))
    kind = ".".join(word for word in words if word)
    return [f"{kind}/{read_text(parameters, 'name')}" if parameters else NONE]


def fill_address(address: JsonObject, now: datetime) -> list[Json]:
    """A row."""
    parent = read_object(read_object(address, "spec"), "parentRef")
    words = (read_text(parent, field) for field in ("group", "resource", "namespace", "name"))
    return [
        name_of(address),
        "/".join(word for word in words if word) or NONE,
        age_of(address, now),
    ]
