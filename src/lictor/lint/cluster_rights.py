"""The rights that controllers need for a policy, compared with the given ClusterRoles."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Final

import msgspec

from lictor.core.errors import SyntaxFaultError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.model.finding import Finding
from lictor.core.model.program import Phase
from lictor.core.raw import Json
from lictor.core.report.json_text import render_json
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.lint.match import list_filters

if TYPE_CHECKING:
    from lictor.core.lang.cel.expression import Variables
    from lictor.core.lang.cel.program import Environment
    from lictor.core.lang.cel.syntax import CelNode, MapNode

_LABEL = "rbac.kyverno.io/aggregate-to-{}-controller"
_BACKGROUND: Final = "background"
_CLEANUP: Final = "cleanup"
_MAKING = ("create", "get")
_KEEPING = ("create", "delete", "get", "update")
_CHANGING = ("get", "update")
_DELETING = ("delete", "list")
# The verbs to find and watch objects; mostly granted anyway.
_OFFERED: Final = {
    _MAKING: ("list", "watch"),
    _KEEPING: ("list", "watch"),
    _CHANGING: ("list",),
    _DELETING: ("get",),
}


class NeededRights(msgspec.Struct, frozen=True):
    """Verbs for the objects of a kind, and the field that needs them."""

    at: Field
    group: str
    resource: str
    verbs: tuple[str, ...]
    controller: str = _BACKGROUND


def check_rights(policy: Field, roles: Iterable[Json], names: ResourceNames) -> Iterator[Finding]:
    """Rules that generate or change other objects, without a ClusterRole that grants it."""
    needs = [need for rule in policy["spec"]["rules"].each() for need in _list_needs(rule, names)]
    yield from _flag_missing(policy, needs, roles)


def check_cleanup_rights(
    policy: Field, roles: Iterable[Json], names: ResourceNames
) -> Iterator[Finding]:
    """The same for the deletions of a cleanup policy."""
    needs = [
        need
        for each in list_filters(policy["spec"]["match"])
        for kind in each["resources"]["kinds"].each()
        for need in _find_need(kind, kind.text, _DELETING, names)
    ]
    cleaning = [msgspec.structs.replace(need, controller=_CLEANUP) for need in needs]
    yield from _flag_missing(policy, cleaning, roles)


def check_cel_rights(
    policy: Field, roles: Iterable[Json], names: ResourceNames
) -> Iterator[Finding]:
    """The same for CEL policies that generate, change or delete other objects."""
    spec = policy["spec"]
    kind = registry().find(policy["apiVersion"].text.rpartition("/")[0], policy["kind"].text)
    needs: Iterable[NeededRights] = ()
    if kind is not None and kind.role is Role.DELETION:
        needs = _list_constrained(spec["matchConstraints"], _DELETING, names, _CLEANUP)
    elif kind is not None and kind.phases == (Phase.GENERATE,):
        needs = _list_generated(policy, kind, names)
    elif spec["evaluation"]["mutateExisting"]["enabled"].is_true:
        needs = _list_changed(policy, kind, names)
    yield from _flag_missing(policy, list(needs), roles)


def _flag_missing(
    policy: Field, needs: Iterable[NeededRights], roles: Iterable[Json]
) -> Iterator[Finding]:
    granted = [Field(role) for role in roles]
    missing = [need for need in needs if not _is_granted(need, granted)]
    if missing:
        # One for all rules: of two with the same name, the second would replace the first.
        message = (
            f"the {missing[0].controller} controller needs rights for this, and no ClusterRole "
            f"among the files gives them; apply this one: {render_role(policy, missing)}"
        )
        yield flag("missing-rights", missing[0].at.path, message)


# --- policies in CEL


def _list_constrained(
    constraints: Field, verbs: tuple[str, ...], names: ResourceNames, controller: str
) -> Iterator[NeededRights]:
    for rule in constraints["resourceRules"].each():
        for group, resource in product(rule["apiGroups"].texts, rule["resources"].texts):
            if "*" not in (group, resource) and names.of_resource(group, "", resource) is not None:
                yield NeededRights(rule, group, resource, verbs, controller)


def _list_changed(
    policy: Field, kind: PolicyKind | None, names: ResourceNames
) -> Iterator[NeededRights]:
    spec = policy["spec"]
    targets = spec["targetMatchConstraints"]
    if targets["expression"].text and kind is not None:
        for node in _list_nodes(policy, kind, [targets["expression"]]):
            yield from _find_read(node, targets, _CHANGING, names)
    else:
        chosen = targets if targets else spec["matchConstraints"]
        yield from _list_constrained(chosen, _CHANGING, names, _BACKGROUND)


def _list_generated(
    policy: Field, kind: PolicyKind, names: ResourceNames
) -> Iterator[NeededRights]:
    """The literal objects of expressions, and those that they copy."""
    from lictor.core.lang.cel.syntax import ListNode, MapNode

    spec = policy["spec"]
    at = spec["generate"]
    verbs = _KEEPING if spec["evaluation"]["synchronize"]["enabled"].is_true else _MAKING
    fields = [
        each["expression"] for part in ("variables", "generate") for each in spec[part].each()
    ]
    for root in _list_roots(policy, kind, fields):
        # A variable that contains only objects of the cluster is to be copied.
        yield from _find_read(root, at, verbs, names)
        for node in _walk(root):
            if isinstance(node, MapNode):
                yield from _find_need(at, _name_made(node), verbs, names)
            elif isinstance(node, ListNode):
                for part in node.elements:
                    yield from _find_read(part, at, verbs, names)


def _list_nodes(policy: Field, kind: PolicyKind, fields: list[Field]) -> Iterator["CelNode"]:
    for root in _list_roots(policy, kind, fields):
        yield from _walk(root)


def _list_roots(policy: Field, kind: PolicyKind, fields: list[Field]) -> Iterator["CelNode"]:
    """The expressions at these fields, as far as they compile."""
    from lictor.core.lang.cel.expression import check_tree
    from lictor.lint.cel_policies import choose_environment

    environment = choose_environment(policy, kind)
    declared = _declare(policy["spec"]["variables"], environment)
    if declared is None:
        return
    for field in fields:
        with suppress(SyntaxFaultError):
            yield check_tree(field.text, environment, declared)


def _declare(variables: Field, environment: "Environment") -> "Variables | None":
    """The variables of a policy; None if one of them does not compile."""
    from lictor.core.lang.cel.expression import NO_VARIABLES, declare_variable

    declared = NO_VARIABLES
    with suppress(SyntaxFaultError):
        for each in variables.each():
            declared = declare_variable(
                declared, each["name"].text, each["expression"].text, environment
            )
        return declared
    return None


def _walk(node: "CelNode") -> Iterator["CelNode"]:
    from lictor.core.lang.cel.syntax import list_children

    yield node
    for part in list_children(node):
        yield from _walk(part)


def _find_read(
    node: "CelNode", at: Field, verbs: tuple[str, ...], names: ResourceNames
) -> Iterator[NeededRights]:
    """`resource.Get("v1", "secrets", ...)` and the same with List."""
    from lictor.core.lang.cel.syntax import Call, Ident
    from lictor.lint.cel_inspection import read_text

    if not isinstance(node, Call) or node.function.lower() not in ("get", "list"):
        return
    if not isinstance(node.target, Ident) or node.target.name != "resource":
        return
    version, resource = map(read_text, node.args[:2])
    if version and resource:
        group = version.rpartition("/")[0]
        if names.of_resource(group, "", resource) is not None:
            yield NeededRights(at, group, resource, verbs)


def _name_made(node: "MapNode") -> str:
    """`policy/v1/PodDisruptionBudget` of a literal object; empty for others."""
    from lictor.lint.cel_inspection import read_entries, read_text

    found = read_entries(node)
    version, kind = read_text(found.get("apiVersion")), read_text(found.get("kind"))
    return f"{version}/{kind}" if version and kind else ""


# --- rules


def _list_needs(rule: Field, names: ResourceNames) -> Iterator[NeededRights]:
    generate = rule["generate"]
    verbs = _KEEPING if generate["synchronize"].is_true else _MAKING
    for body in (generate, *generate["foreach"].each()):
        for kind in body["cloneList"]["kinds"].texts or (_name_kind(body),):
            yield from _find_need(generate, kind, verbs, names)
    for target in rule["mutate"]["targets"].each():
        yield from _find_need(rule["mutate"]["targets"], _name_kind(target), _CHANGING, names)


def _name_kind(body: Field) -> str:
    version, kind = body["apiVersion"].text, body["kind"].text
    return f"{version}/{kind}" if version and kind else kind


def _find_need(
    at: Field, text: str, verbs: tuple[str, ...], names: ResourceNames
) -> Iterator[NeededRights]:
    if not text or "{{" in text or has_wildcard(text):
        return
    selector = parse_kind_selector(text)
    known = [each for each in names.known if each.kind == selector.kind]
    found = [each for each in known if selector.group in ("*", each.group)]
    if found:
        yield NeededRights(at, found[0].group, found[0].resource, verbs)


def _is_granted(need: NeededRights, roles: list[Field]) -> bool:
    return all(any(_grants(role, need, verb) for role in roles) for verb in need.verbs)


def _grants(role: Field, need: NeededRights, verb: str) -> bool:
    if role["metadata"]["labels"][_LABEL.format(need.controller)].text != "true":
        return False
    wanted = (("apiGroups", need.group), ("resources", need.resource), ("verbs", verb))
    return any(
        all({text, "*"} & set(each[name].texts) for name, text in wanted)
        for each in role["rules"].each()
    )


def render_role(policy: Field, needs: Iterable[NeededRights]) -> str:
    """A ClusterRole with these rights, in one line for `kubectl apply -f -`."""
    listed = list(needs)
    controller = listed[0].controller
    merged: dict[tuple[str, str], set[str]] = {}
    for need in listed:
        offered = (*need.verbs, *_OFFERED[need.verbs])
        merged.setdefault((need.group, need.resource), set()).update(offered)
    name = f"{policy['metadata']['name'].text or 'policy'}-{controller}"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {_LABEL.format(controller): "true"}},
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": sorted(verbs)}
            for (group, resource), verbs in merged.items()
        ],
    }
    return render_json(role)
