"""Roles and their bindings."""

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_text
from lictor.core.raw import Json, JsonObject


def forbid_paths(rule: CheckedField) -> None:
    """A rule of a Role is about resources."""
    if rule.get("nonResourceURLs"):
        rule.invalid("nonResourceURLs", "namespaced rules cannot apply to non-resource URLs")


def check_rule(rule: CheckedField) -> None:
    """Either resources, or paths."""
    if rule.get("nonResourceURLs"):
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            rule.invalid("nonResourceURLs", why)
        return
    for field, word in (("apiGroups", "api group"), ("resources", "resource")):
        rule.require(field, f"resource rules must supply at least one {word}")


def check_kept_role(reference: CheckedField) -> None:
    """A binding cannot change its role."""
    if reference.old is not None and reference.value != reference.old:
        fields = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
        shown = {name: reference.text(field) for name, field in fields.items()}
        reference.invalid("", "cannot change roleRef", shown)


def list_binding_cells(binding: JsonObject) -> list[Json]:
    """Users, groups and ServiceAccounts."""
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in read_list(binding, "subjects"):
        kind, name = read_text(subject, "kind"), read_text(subject, "name")
        shown = f"{read_text(subject, 'namespace')}/{name}" if kind == "ServiceAccount" else name
        names.setdefault(kind, []).append(shown)
    return [", ".join(names[kind]) for kind in ("User", "Group", "ServiceAccount")]
