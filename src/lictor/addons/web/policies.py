"""The policies of clusters and files as text, and where their rules stand in it."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
import orjson

from lictor.addons.web.records import ShownPolicy
from lictor.core.errors import LictorError
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.lang.yaml.nodes import compose, find_node
from lictor.core.lang.yaml.plain_json import YamlFault
from lictor.core.load.policies import has_errors, is_list, load_object
from lictor.core.model.metadata import PolicyRecord
from lictor.core.raw import Json, JsonObject
from lictor.core.report.yaml_text import render_yaml
from lictor.kubernetes.stored_policy import is_ready

# Added by the API server, not by the author.
_NOT_WRITTEN = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# In longer ones no rule is marked: finding it takes seconds.
_LONGEST_MARKED = 256 * 1024
# Where policies without named rules contain their checks.
_UNNAMED = ("validations", "mutations", "generate", "variables", "conditions")
# Names that results have for what was made from a rule.
_MADE_FROM = ("{}", "autogen-{}", "autogen-cronjob-{}")


class StoredText(msgspec.Struct, frozen=True, dict=True):
    """A policy or an exception: few are looked at, so the document is kept as bytes."""

    kind: PolicyKind
    namespace: str
    name: str
    document: bytes
    # From the status, which is not part of the document.
    is_ready: bool | None = None

    def load(self) -> JsonObject:
        found: JsonObject = orjson.loads(self.document)
        return found

    @cached_property
    def mode(self) -> str:
        """What it does with what breaks it; empty for very long ones, which take long to read."""
        is_short = len(self.document) <= _LONGEST_MARKED
        return _read_mode(self.kind, self.load()) if is_short else ""


def find_kind(document: Json, *roles: Role) -> PolicyKind | None:
    """The kind of policy that a document is of; None where it is no such policy."""
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return None
    group = str(document.get("apiVersion") or "").rpartition("/")[0]
    found = registry().find(group, str(document.get("kind") or ""))
    return found if found is not None and found.role in roles else None


def list_objects(body: Json) -> Iterator[JsonObject]:
    """The object that a document is, or those in a list."""
    if not isinstance(body, dict):
        return
    if is_list(body):
        for item in body["items"]:
            yield from list_objects(item)
    else:
        yield body


def store_text(kind: PolicyKind, document: JsonObject) -> StoredText:
    """A document as it is kept: what its author wrote."""
    metadata = {k: v for k, v in document["metadata"].items() if k not in _NOT_WRITTEN}
    notes = metadata.get("annotations")
    if isinstance(notes, dict):
        metadata["annotations"] = {k: v for k, v in notes.items() if k != _LAST_APPLIED}
    created = {"creationTimestamp": document["metadata"].get("creationTimestamp")}
    if kind.role is Role.EXCEPTION and created["creationTimestamp"]:
        # When an exception ends may be counted from its beginning.
        metadata |= created
    kept = {k: v for k, v in document.items() if k != "status"} | {"metadata": metadata}
    name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
    return StoredText(kind, namespace, name, write_document(kept), _read_readiness(document))


def write_document(document: JsonObject) -> bytes:
    """The document as it is stored; any YAML value can be written."""
    try:
        return orjson.dumps(document)
    except TypeError:
        # Halves of characters, and numbers of more than 64 bits.
        return json.dumps(document, ensure_ascii=False).encode(errors="replace")


class PolicyTexts:
    """Policies by cluster and by the name that results have for them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[tuple[str, str], StoredText]] = {}

    def put(self, cluster: str, kind: PolicyKind, document: JsonObject) -> None:
        text = store_text(kind, document)
        self._found.setdefault((cluster, _name_in_reports(text)), {})[kind.key] = text

    def drop(self, cluster: str, kind: PolicyKind, document: JsonObject) -> None:
        key = cluster, _name_in_reports(store_text(kind, document))
        same_name = self._found.get(key, {})
        same_name.pop(kind.key, None)
        if not same_name:
            self._found.pop(key, None)

    def list_all(self) -> Iterator[tuple[str, str]]:
        """The cluster and the name of each, in order."""
        return iter(sorted(self._found))

    def find(self, cluster: str, name: str) -> StoredText | None:
        """The policy of this name; of several kinds, the first in the order of families."""
        found = self._found.get((cluster, name))
        if not found:
            return None
        order = [kind.key for kind in registry().kinds]
        return found[min(found, key=order.index)]


def _name_in_reports(text: StoredText) -> str:
    path = text.kind.path
    if path is not None and path.per_policy:
        return path.name_policy(text.namespace, text.name)
    return f"{text.namespace}/{text.name}" if text.namespace else text.name


def show_policy(cluster: str, text: StoredText) -> ShownPolicy:
    """A policy as pages show it: written as YAML, with the lines of its rules."""
    document = text.load()
    written = render_yaml(document)
    notes = document["metadata"].get("annotations")
    return ShownPolicy(
        cluster=cluster,
        kind=text.kind.kind,
        namespace=text.namespace,
        name=text.name,
        family=text.kind.family.name,
        text=written,
        rule_lines=dict(_find_rules(document, written)),
        annotations={str(k): str(v) for k, v in notes.items()} if isinstance(notes, dict) else {},
    )


def _find_rules(document: JsonObject, written: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each rule's lines under all names that results have for it; "" for rules without names."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return
    root = _compose(written)
    rules = spec.get("rules")
    for number, rule in enumerate(rules if isinstance(rules, list) else ()):
        name = rule.get("name") if isinstance(rule, dict) else None
        lines = _find_lines(root, ("spec", "rules", number))
        for form in _MADE_FROM if isinstance(name, str) and lines else ():
            yield form.format(name), lines
    parts = [_find_lines(root, ("spec", part)) for part in _UNNAMED if spec.get(part)]
    if parts and not rules:
        yield "", parts[0]


def _compose(written: str) -> Json:
    """The nodes of a text; None where it has none, or would keep others waiting."""
    if len(written) > _LONGEST_MARKED:
        return None
    try:
        return next(compose(written), None)
    except YamlFault:
        return None


def _find_lines(root: Json, path: Sequence[str | int]) -> tuple[int, int]:
    """The first and the last line of a field, from 1."""
    if root is None:
        return 1, 1
    node = find_node(root, tuple(path))
    first, after = node.start_mark.line, node.end_mark.line
    # A block ends where the next token begins.
    return first + 1, after if after > first else first + 1


# --- mode and readiness


def _read_readiness(document: JsonObject) -> bool | None:
    """Does the status report that a policy is in force? None if it has no such status."""
    try:
        status = document.get("status") or {}
        held = status.get("conditionStatus") or status
        if isinstance(held.get("ready"), bool):
            return bool(held["ready"])
        return is_ready(document) if held.get("conditions") else None
    except (AttributeError, KeyError, TypeError):
        # No API server has verified the objects of files.
        return None


def _read_mode(kind: PolicyKind, document: JsonObject) -> str:
    """The mode as the policy states it; empty where it refuses nothing, or cannot be read."""
    try:
        loaded = load_object(document, kind.kind)
    except LictorError:
        return ""
    if not loaded.documents or has_errors(loaded.problems):
        return ""
    return _describe_mode(kind, loaded.records[0])


def _describe_mode(kind: PolicyKind, record: PolicyRecord) -> str:
    spec = getattr(record, "spec", None)
    rules = getattr(spec, "rules", ())
    if kind.has_named_rules and not any(each.validate or each.verify_images for each in rules):
        return ""
    if mode := kind.family.read_mode(record):
        return mode.capitalize()
    actions = getattr(spec, "validation_actions", None)
    # Where none is written, it is Deny.
    return "" if actions is None else ", ".join(actions) or "Deny"
