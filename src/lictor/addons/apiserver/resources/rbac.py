"""Roles and their bindings, and the controller of aggregated ClusterRoles."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from lictor.addons.apiserver.admission.webhooks import compile_fit
from lictor.addons.apiserver.field_errors import Say, invalid, required, unsupported
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.resources.columns import build_columns
from lictor.addons.apiserver.resources.registry import BuiltinResource
from lictor.addons.apiserver.resources.validation import (
    check_choice,
    check_named,
    check_segment,
    check_subdomain,
    need,
)
from lictor.addons.apiserver.service_account_tokens import ACCOUNT_PREFIX, account_groups
from lictor.core.errors import CompileError, RefusedRequestError
from lictor.core.raw import Json, JsonObject

log = logging.getLogger(__name__)
AGGREGATOR = ApiUser(
    f"{ACCOUNT_PREFIX}kube-system:clusterrole-aggregation-controller",
    account_groups("kube-system"),
)
_CONFLICT = 409
_NOT_FOUND = 404
# Replaces a ClusterRole, as AGGREGATOR.
Write = Callable[[JsonObject], Awaitable[object]]


def gather_rules(role: JsonObject, roles: Iterable[JsonObject]) -> list[Json] | None:
    """The rules of all roles that one is made of; None where it is not made of others."""
    if not isinstance(role.get("aggregationRule"), dict):
        return None
    name = read_text(read_object(role, "metadata"), "name")
    known = sorted(roles, key=lambda each: read_text(read_object(each, "metadata"), "name"))
    gathered: dict[bytes, Json] = {}
    for selector in read_list(role["aggregationRule"], "clusterRoleSelectors"):
        try:
            fits = compile_fit(selector)
        except CompileError:
            # A selector that cannot be read selects nothing; the other ones still do.
            continue
        for other in known:
            metadata = read_object(other, "metadata")
            if read_text(metadata, "name") == name:
                continue
            if fits is None or fits(read_object(metadata, "labels")):
                for rule in read_list(other, "rules"):
                    gathered.setdefault(msgspec.json.encode(rule, order="deterministic"), rule)
    return list(gathered.values())


class RoleAggregation:
    """Keeps the rules of aggregated ClusterRoles; wakes up when a ClusterRole changes."""

    def __init__(self, reader: ObjectReader, write: Write) -> None:
        self._reader = reader
        self._write = write
        self._wake = asyncio.Event()
        self._wake.set()
        reader.on_change(_GROUP, "clusterroles", self._wake.set)

    async def run(self) -> None:
        """Keep them until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Write the roles whose parts have changed."""
        roles = self._reader.list(_GROUP, "clusterroles")
        for role in roles:
            rules = gather_rules(role, roles)
            if rules is None or rules == read_list(role, "rules"):
                continue
            try:
                await self._write({**role, "rules": rules})
            except RefusedRequestError as error:
                # Someone else was first: their change wakes us up again.
                if error.code not in (_CONFLICT, _NOT_FOUND):
                    name = read_text(read_object(role, "metadata"), "name")
                    log.warning("role not aggregated", extra={"role": name, "why": error.message})


def _set_binding_defaults(binding: JsonObject) -> None:
    reference = read_object(binding, "roleRef")
    if reference and not reference.get("apiGroup"):
        reference["apiGroup"] = _GROUP
    for subject in read_list(binding, "subjects"):
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _GROUP


_GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


def validate_role(role: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Role or a ClusterRole."""
    del old
    is_namespaced = role.get("kind") == "Role"
    for index, rule in enumerate(read_list(role, "rules")):
        _check_rule(rule, f"rules[{index}]", say, is_namespaced=is_namespaced)


def _check_rule(rule: JsonObject, path: str, say: Say, *, is_namespaced: bool) -> None:
    if not rule.get("verbs"):
        say(required(f"{path}.verbs", "verbs must contain at least one value"))
    urls = rule.get("nonResourceURLs")
    if urls:
        if is_namespaced:
            told = "namespaced rules cannot apply to non-resource URLs"
            say(invalid(f"{path}.nonResourceURLs", urls, told))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            told = "rules cannot apply to both regular resources and non-resource URLs"
            say(invalid(f"{path}.nonResourceURLs", urls, told))
        return
    if not rule.get("apiGroups"):
        say(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        say(required(f"{path}.resources", "resource rules must supply at least one resource"))


def validate_binding(binding: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A RoleBinding or a ClusterRoleBinding."""
    is_namespaced = binding.get("kind") == "RoleBinding"
    reference = read_object(binding, "roleRef")
    check_choice(reference.get("apiGroup"), (_GROUP,), "roleRef.apiGroup", say)
    kinds = ("Role", "ClusterRole") if is_namespaced else ("ClusterRole",)
    if reference.get("kind") not in kinds:
        say(unsupported("roleRef.kind", reference.get("kind") or "", kinds))
    need(reference, ("name",), "roleRef", say)
    for index, subject in enumerate(read_list(binding, "subjects")):
        _check_subject(subject, f"subjects[{index}]", say, is_namespaced=is_namespaced)
    if old is not None and reference != read_object(old, "roleRef"):
        fields = ("apiGroup", "kind", "name")
        shown = {f"{field[:1].upper()}{field[1:]}": read_text(reference, field) for field in fields}
        shown["APIGroup"] = shown.pop("ApiGroup")
        ordered = {key: shown[key] for key in ("APIGroup", "Kind", "Name")}
        say(invalid("roleRef", ordered, "cannot change roleRef"))


def _check_subject(subject: JsonObject, path: str, say: Say, *, is_namespaced: bool) -> None:
    kind = read_text(subject, "kind")
    need(subject, ("name",), path, say)
    match kind:
        case "ServiceAccount":
            check_named(subject.get("name"), check_subdomain, f"{path}.name", say)
            if subject.get("apiGroup"):
                say(unsupported(f"{path}.apiGroup", subject["apiGroup"], ("",)))
            if not is_namespaced:
                need(subject, ("namespace",), path, say)
        case "User" | "Group":
            check_choice(subject.get("apiGroup"), (_GROUP,), f"{path}.apiGroup", say)
        case _:
            say(unsupported(f"{path}.kind", kind, _SUBJECTS))


def _list_binding_cells(binding: JsonObject) -> list[Json]:
    reference = read_object(binding, "roleRef")
    subjects = read_list(binding, "subjects")
    return [
        f"{read_text(reference, 'kind')}/{read_text(reference, 'name')}",
        *(_list_subjects(subjects, kind) for kind in ("User", "Group")),
        ", ".join(
            f"{read_text(each, 'namespace')}/{read_text(each, 'name')}"
            for each in subjects
            if each.get("kind") == "ServiceAccount"
        ),
    ]


def _list_subjects(subjects: list[Json], kind: str) -> str:
    return ", ".join(read_text(each, "name") for each in subjects if each.get("kind") == kind)


BINDING = build_columns(
    "Name | Role | Age | Users! | Groups! | ServiceAccounts!", _list_binding_cells
)
RESOURCES = (
    *(
        BuiltinResource(
            _GROUP,
            kind,
            validate=validate_role,
            validate_name=check_segment,
            created_by_update=True,
        )
        for kind in ("Role", "ClusterRole")
    ),
    *(
        BuiltinResource(
            _GROUP,
            kind,
            set_defaults=_set_binding_defaults,
            validate=validate_binding,
            validate_name=check_segment,
            columns=BINDING,
            created_by_update=True,
        )
        for kind in ("RoleBinding", "ClusterRoleBinding")
    ),
)
