"""Finds what a rule needs that is not in the request, before its first request.

A rule that may make lookups is evaluated on a thread, where it may block. A false positive costs
a little time; after a false negative, the rule is evaluated again on a thread.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec
import orjson
from msgspec.structs import replace

from lictor.core.model.program import CompiledRule, Needs
from lictor.core.raw import Json

_LOOKUP_ENTRIES = frozenset(("configMap", "apiCall", "globalReference", "imageRegistry"))
# CEL functions that query a cluster, a registry or a service; `params` come from a cluster.
_LOOKUP_TEXT = re.compile(
    r"\bauthorizer\b|\b(?:resource|http|globalContext|image|jwks)\s*\.\s*"
    r"(?:get|list|post|client|fetch|togvr)|\"paramKind\":",
    re.IGNORECASE,
)
_IMAGES_TEXT = re.compile(
    r"\b(?:verifyImageSignatures|verifyAttestationSignatures|getImageData|image\s*\.\s*get)"
    r"|\"(?:verifyImages|imageRegistry|manifests)\":",
    re.IGNORECASE,
)
_ROLES_TEXT = re.compile(r"\b(?:clusterRoles|roles)\b")


def find_rule_needs(rule: msgspec.Struct) -> Needs:
    """The needs of a classic rule: some context entries make lookups.

    Given the spec of a policy, returns the needs of all of its rules.
    """
    text = msgspec.json.encode(rule).decode()
    looks_up = '"context":' in text and any(map(_looks_up, _list_entries(orjson.loads(text))))
    if not looks_up and '"cel":' in text:
        looks_up = _LOOKUP_TEXT.search(text) is not None
    return _combine(looks_up=looks_up, text=text)


def find_policy_needs(spec: msgspec.Struct) -> Needs:
    """The needs of every rule of a CEL policy."""
    text = msgspec.json.encode(spec).decode()
    return _combine(looks_up=_LOOKUP_TEXT.search(text) is not None, text=text)


def state_needs(rules: Iterable[CompiledRule], spec: msgspec.Struct) -> tuple[CompiledRule, ...]:
    """The rules of a CEL policy, with the needs of its expressions."""
    needs = find_policy_needs(spec)
    return tuple(replace(rule, needs=needs) if needs else rule for rule in rules)


def _combine(*, looks_up: bool, text: str) -> Needs:
    needs = Needs.LOOKUPS if looks_up else Needs.NOTHING
    if "oles" in text and _ROLES_TEXT.search(text):
        needs |= Needs.ROLES
    # Each of these expressions contains one of these words; most policies have none.
    lowered = text.lower()
    may_ask = "image" in lowered or "verifyattest" in lowered or '"manifests":' in lowered
    return needs | Needs.IMAGES if may_ask and _IMAGES_TEXT.search(text) else needs


def _list_entries(node: Json) -> Iterator[Json]:
    """The entries of every context in a rule: the rule's, and those of each foreach."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "context" and isinstance(value, list | tuple):
                yield from value
            else:
                yield from _list_entries(value)
    elif isinstance(node, list | tuple):
        for each in node:
            yield from _list_entries(each)


def _looks_up(entry: Json) -> bool:
    return isinstance(entry, dict) and not _LOOKUP_ENTRIES.isdisjoint(entry)
