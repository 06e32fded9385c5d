"""What is wrong with roles and with those who are given them?"""

from lictor.apiserver.checks.check_basics import Say, check_choice, check_named, need
from lictor.apiserver.checks.name_rules import check_subdomain
from lictor.apiserver.field_errors import invalid, required, unsupported
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import JsonObject

_GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


def check_role(role: JsonObject, old: JsonObject | None, say: Say) -> None:
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


def check_binding(binding: JsonObject, old: JsonObject | None, say: Say) -> None:
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
