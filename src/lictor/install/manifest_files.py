"""The manifests in `manifests/*.yaml`: YAML with a tag for each placeholder.

- `!value PATH`: a value of the chart
- `!optional PATH ...`: the first of these values that is not empty, or no field
- `!when`: a part with conditions
- `!extended`, `!extended-map`, `!replaceable`: a list or map that values extend or replace
- `!labels COMPONENT`, `!label-set`: the labels of an object; `!match COMPONENT`: those of selectors
- `!arguments`: a command line; `!computed NAME`: fields that are computed from many values
- `!rules`: the rules of a role, as lines of text: `group: resources: verbs`
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import yaml

from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.raw import Json, JsonObject
from lictor.install.installation import TEMPLATE, match_labels
from lictor.install.placeholders import (
    ArgumentList,
    ComputedMap,
    ConditionalPart,
    ExtendedList,
    ExtendedMap,
    LabelSet,
    OptionalValueAt,
    ReplaceableList,
    ValueAt,
)

_FOLDER = Path(__file__).parent / "manifests"


class _ManifestLoader(yaml.CSafeLoader):
    """Constructs placeholders from tags."""


def load_manifests(name: str, words: dict[str, str] | None = None) -> Json:
    """The manifests of a file, after words in it are replaced."""
    text = (_FOLDER / name).read_text(encoding="utf-8")
    for word, replacement in (words or {}).items():
        text = text.replace(word, replacement)
    return yaml.load(text, _ManifestLoader)  # noqa: S506  (a SafeLoader)


def read_rules(lines: Iterable[Json]) -> list[Json]:
    """The rules of a role; entries that are no text stay as they are."""
    rules: list[Json] = []
    for entry in lines:
        if isinstance(entry, str):
            for line in entry.splitlines():
                rules += _read_rule(line)
        else:
            rules.append(entry)
    return rules


def _read_rule(line: str) -> Iterable[JsonObject]:
    """`group: resources: verbs: names`, without a group and resources for kinds of policies."""
    if line.startswith("#"):
        return
    words = line.split(": ")
    choice, _, part = words[0].partition("/")
    if choice in _KINDS:
        for group, plurals in _list_plurals(_KINDS[choice]).items():
            resources = [f"{plural}/{part}" if part else plural for plural in plurals]
            yield _build_rule(group, resources, words[1])
    else:
        group, named, verbs, *names = words
        yield _build_rule(group, named.split(), verbs, *names)


def _build_rule(group: str, resources: Sequence[str], verbs: str, names: str = "") -> JsonObject:
    rule: JsonObject = {
        "apiGroups": ["" if group == "core" else group],
        "resources": list(resources),
        "verbs": [verb for word in verbs.split() for verb in _VERBS.get(word, (word,))],
    }
    return {**rule, "resourceNames": names.split()} if names else rule


def _list_plurals(is_chosen: Callable[[PolicyKind], bool]) -> dict[str, list[str]]:
    """The names of kinds by group."""
    found: dict[str, list[str]] = {}
    for kind in filter(is_chosen, registry().kinds):
        found.setdefault(kind.group, []).append(kind.plural)
    return found


def _construct_rules(loader: yaml.CSafeLoader, node: yaml.SequenceNode) -> list[Json]:
    return read_rules(loader.construct_sequence(node, deep=True))


def _is_policy(kind: PolicyKind) -> bool:
    return kind.role in (Role.POLICY, Role.DELETION) and not kind.is_native


def _is_served(kind: PolicyKind) -> bool:
    """Does it name the server which evaluates it, or is it such a server?"""
    return kind.role is Role.SERVER or (kind.path is not None and kind.path.per_policy)


_VERBS = {
    "read": ("get", "list", "watch"),
    "write": ("create", "update", "patch", "delete"),
}
# What the words of `!rules` stand for. Kinds that Kubernetes has itself are only among ALL.
_KINDS: dict[str, Callable[[PolicyKind], bool]] = {
    "ALL": lambda kind: kind.role in (Role.POLICY, Role.DELETION, Role.EXCEPTION),
    "POLICIES": _is_policy,
    "LISTED": lambda kind: _is_policy(kind) and kind.is_listed,
    "EXCEPTIONS": lambda kind: kind.role is Role.EXCEPTION and not kind.is_native,
    "SERVERS": lambda kind: kind.role is Role.SERVER and not kind.is_native,
    "SERVED": _is_served,
}


def _add_scalar(tag: str, build: Callable[[str], Json]) -> None:
    def construct(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> Json:
        return build(str(loader.construct_scalar(node)))

    _ManifestLoader.add_constructor(tag, construct)


def _add_map(tag: str, build: Callable[..., Json]) -> None:
    """A mapping whose fields are those of a placeholder."""

    def construct(loader: yaml.CSafeLoader, node: yaml.MappingNode) -> Json:
        fields = loader.construct_mapping(node, deep=True)
        # Records are frozen: lists of paths, conditions and words are tuples.
        plural = ("paths", "conditions", "command")
        return build(
            **{str(name): tuple(part) if name in plural else part for name, part in fields.items()}
        )

    _ManifestLoader.add_constructor(tag, construct)


_add_scalar("!value", ValueAt)
_add_scalar("!optional", lambda text: OptionalValueAt(tuple(text.split())))
_add_scalar("!labels", LabelSet)
_add_scalar("!match", lambda component: match_labels(TEMPLATE, component))
_add_scalar("!computed", ComputedMap)
_add_map("!when", ConditionalPart)
_add_map("!replaceable", ReplaceableList)
_add_map("!extended", ExtendedList)
_add_map("!extended-map", ExtendedMap)
_add_map("!label-set", LabelSet)
_add_map("!arguments", ArgumentList)
_ManifestLoader.add_constructor("!rules", _construct_rules)
