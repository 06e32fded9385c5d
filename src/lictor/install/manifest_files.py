"""The manifests in `manifests/*.yaml`: YAML with a tag for each placeholder.

- `!value PATH`: a value of the chart
- `!optional PATH ...`: the first of these values that is not empty, or no field
- `!when`: a part with conditions
- `!extended`, `!extended-map`, `!replaceable`: a list or map that values extend or replace
- `!labels COMPONENT`, `!label-set`: the labels of an object; `!match COMPONENT`: those of selectors
- `!arguments`: a command line; `!computed NAME`: fields that are computed from many values
- `!rules`: the rules of a role, each as text: `group: resources: verbs`
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from lictor.core.families.family import PolicyKind, Role
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
# Stands for all kinds of policies and exceptions in `!rules`.
_POLICIES = "POLICIES"


class _ManifestLoader(yaml.CSafeLoader):
    """Constructs placeholders from tags."""


def load_manifests(name: str, words: dict[str, str] | None = None) -> list[Json]:
    """The manifests of a file, after words in it are replaced."""
    text = (_FOLDER / name).read_text(encoding="utf-8")
    for word, replacement in (words or {}).items():
        text = text.replace(word, replacement)
    found: list[Json] = yaml.load(text, _ManifestLoader)  # noqa: S506  (a SafeLoader)
    return found


def build_rule(group: str, resources: str, verbs: str, names: Sequence[str] = ()) -> JsonObject:
    """A rule of a role; resources and verbs are separated by spaces, `core` is the core group."""
    rule: JsonObject = {
        "apiGroups": ["" if group == "core" else group],
        "resources": resources.split(),
        "verbs": verbs.split(),
    }
    return {**rule, "resourceNames": list(names)} if names else rule


def _read_rules(lines: Sequence[Json]) -> list[Json]:
    rules: list[Json] = []
    for line in lines:
        if not isinstance(line, str):
            rules.append(line)
            continue
        group, *rest = line.split(": ")
        if group == _POLICIES:
            rules.extend(_list_policy_rules(rest[0]))
        else:
            rules.append(build_rule(group, *rest))
    return rules


def _construct_rules(loader: yaml.CSafeLoader, node: yaml.SequenceNode) -> list[Json]:
    return _read_rules(loader.construct_sequence(node, deep=True))


def _list_policy_rules(verbs: str) -> list[Json]:
    kinds: dict[str, list[PolicyKind]] = {}
    for kind in registry().with_role(Role.POLICY, Role.DELETION, Role.EXCEPTION):
        kinds.setdefault(kind.group, []).append(kind)
    return [
        build_rule(group, " ".join(kind.plural for kind in some), verbs)
        for group, some in kinds.items()
    ]


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
