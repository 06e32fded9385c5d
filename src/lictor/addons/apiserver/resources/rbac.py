"""Roles and their bindings."""

from lictor.addons.apiserver.field_checks import CheckedField, check_segment, check_subdomain
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import BuiltinResource
from lictor.addons.apiserver.table_columns import build_columns
from lictor.core.raw import Json, JsonObject


def _set_binding_defaults(binding: JsonObject) -> None:
    reference = read_object(binding, "roleRef")
    if reference and not reference.get("apiGroup"):
        reference["apiGroup"] = _GROUP
    for subject in read_list(binding, "subjects"):
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _GROUP


_GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


def _validate_role(role: CheckedField) -> None:
    for rule in role.items("rules"):
        _check_rule(rule, is_namespaced=role.get("kind") == "Role")


def _check_rule(rule: CheckedField, *, is_namespaced: bool) -> None:
    if not rule.get("verbs"):
        rule.required("verbs", "verbs must contain at least one value")
    if rule.get("nonResourceURLs"):
        if is_namespaced:
            why = "namespaced rules cannot apply to non-resource URLs"
            rule.invalid("nonResourceURLs", why)
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            rule.invalid("nonResourceURLs", why)
        return
    for field, word in (("apiGroups", "api group"), ("resources", "resource")):
        if not rule.get(field):
            rule.required(field, f"resource rules must supply at least one {word}")


def _validate_binding(binding: CheckedField) -> None:
    is_namespaced = binding.get("kind") == "RoleBinding"
    reference = binding.at("roleRef")
    reference.choice("apiGroup", (_GROUP,))
    kinds = ("Role", "ClusterRole") if is_namespaced else ("ClusterRole",)
    if reference.get("kind") not in kinds:
        reference.unsupported("kind", kinds, reference.get("kind") or "")
    reference.need("name")
    for subject in binding.items("subjects"):
        _check_subject(subject, is_namespaced=is_namespaced)
    if reference.old is not None and reference.value != reference.old:
        fields = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
        shown = {name: reference.text(field) for name, field in fields.items()}
        reference.invalid("", "cannot change roleRef", shown)


def _check_subject(subject: CheckedField, *, is_namespaced: bool) -> None:
    subject.need("name")
    match subject.text("kind"):
        case "ServiceAccount":
            subject.named("name", check_subdomain)
            if subject.get("apiGroup"):
                subject.unsupported("apiGroup", ("",))
            if not is_namespaced:
                subject.need("namespace")
        case "User" | "Group":
            subject.choice("apiGroup", (_GROUP,))
        case kind:
            subject.unsupported("kind", _SUBJECTS, kind)


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
            validate=_validate_role,
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
            validate=_validate_binding,
            validate_name=check_segment,
            columns=BINDING,
            created_by_update=True,
        )
        for kind in ("RoleBinding", "ClusterRoleBinding")
    ),
)
