"""Which rights do the controllers need for a policy, and does a given ClusterRole grant them?"""

from collections.abc import Iterable, Iterator

import msgspec

from lictor.kubernetes.resource_names import ResourceNames
from lictor.lang.kind_selector import parse_kind_selector
from lictor.lang.wildcard import has_wildcard
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.model.finding import Finding
from lictor.raw import Json
from lictor.report.json_text import render_json

_LABEL = "rbac.kyverno.io/aggregate-to-background-controller"
_MAKING = ("create", "get")
_KEEPING = ("create", "delete", "get", "update")
_CHANGING = ("get", "update")


class NeededRights(msgspec.Struct, frozen=True):
    """Verbs for the objects of a kind, and the field that asks for them."""

    at: Field
    group: str
    resource: str
    verbs: tuple[str, ...]


def check_rights(policy: Field, roles: Iterable[Json], names: ResourceNames) -> Iterator[Finding]:
    """Rules that make or change other objects, without a ClusterRole that lets them."""
    granted = [Field(role) for role in roles]
    rules = policy["spec"]["rules"].each()
    needs = [
        need
        for rule in rules
        for need in _list_needs(rule, names)
        if not _is_granted(need, granted)
    ]
    if needs:
        # One for all rules: of two with the same name, the second would replace the first.
        message = (
            "the background controller needs rights for this, and no ClusterRole among the "
            f"files gives them; apply this one: {render_role(policy, needs)}"
        )
        yield flag("missing-rights", needs[0].at.path, message)


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
    if role["metadata"]["labels"][_LABEL].text != "true":
        return False
    wanted = (("apiGroups", need.group), ("resources", need.resource), ("verbs", verb))
    return any(
        all({text, "*"} & set(each[name].texts) for name, text in wanted)
        for each in role["rules"].each()
    )


def render_role(policy: Field, needs: Iterable[NeededRights]) -> str:
    """A ClusterRole with these rights, in one line that `kubectl apply -f -` takes."""
    merged: dict[tuple[str, str], set[str]] = {}
    for need in needs:
        merged.setdefault((need.group, need.resource), set()).update(need.verbs)
    name = f"{policy['metadata']['name'].text or 'policy'}-background"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {_LABEL: "true"}},
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": sorted(verbs)}
            for (group, resource), verbs in merged.items()
        ],
    }
    return render_json(role)
