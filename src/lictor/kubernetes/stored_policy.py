"""A policy as stored in the API server, and values derived from it."""

import sys
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec.structs import replace

from lictor.core.families.family import PolicyKind
from lictor.core.families.registry import registry
from lictor.core.load.policies import Loaded, has_errors, load_object
from lictor.core.model.finding import Finding
from lictor.core.model.metadata import PolicyRecord
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.cache import drop_managed_fields
from lictor.kubernetes.resource import Resource

_T = TypeVar("_T")
# Conditions that mark a policy as ready, of all families.
_READY = frozenset(("Ready", "WebhookConfigured", "PolicyActive"))

# What the API server changes with every write.
_VOLATILE = frozenset(("managedFields", "resourceVersion"))


def is_ready(document: JsonObject) -> bool:
    """Whether the status of a policy reports it as ready."""
    status = document.get("status") or {}
    conditions = (status.get("conditionStatus") or status).get("conditions") or ()
    return any(each["type"] in _READY and each["status"] == "True" for each in conditions)


def keep_policy(item: JsonObject) -> JsonObject:
    """A policy with shared texts: policies of many teams are mostly equal.

    Equal texts become one object. Texts in metadata are mostly unique.
    """
    if isinstance(item.get("status"), dict):
        item["status"] = condense_status(item["status"])
    metadata = drop_managed_fields(item).get("metadata")
    found = [item.get("spec")]
    if isinstance(metadata, dict):
        found += [metadata.get("annotations"), metadata.get("labels")]
    shared: list[Json] = [each for each in found if isinstance(each, dict)]
    # The author of a policy determines its depth.
    while shared:
        node = shared.pop()
        pairs = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in pairs:
            if isinstance(value, str):
                node[key] = sys.intern(value)
            elif isinstance(value, dict | list):
                shared.append(value)
    return item


def condense_status(status: JsonObject) -> JsonObject:
    """A status with a digest of the rules of autogen: they are only compared, and large."""
    made = status.get("autogen")
    if not isinstance(made, dict) or not made:
        return status
    try:
        text = orjson.dumps(made, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Too deep: whoever may write statuses has written it.
        return status
    return {**status, "autogen": {"digest": blake2b(text, digest_size=16).hexdigest()}}


def read_policy(
    kind: Resource,
    document: JsonObject,
    before: "Mapping[tuple[Resource, str], StoredPolicy]",
    *,
    always_ignore: bool,
) -> "StoredPolicy":
    """A policy with its record; loaded again only if it has changed."""
    known = before.get((kind, str(document["metadata"].get("uid"))))
    if known is not None and known.document is document:
        return known
    if known is not None and _strip(known.document) == _strip(document):
        if "spec" in document:
            # The record holds parts of the former spec: an equal copy would take as much memory.
            document["spec"] = known.document["spec"]
        return replace(known, document=document)
    loaded = load_object(document, f"{kind.kind}/{document['metadata']['name']}")
    return StoredPolicy(kind, document, _first_record(loaded), loaded.problems, always_ignore)


def _strip(document: JsonObject) -> JsonObject:
    """The document without what lictor writes itself: the status, and the resulting versions."""
    metadata = {key: each for key, each in document["metadata"].items() if key not in _VOLATILE}
    return {**document, "metadata": metadata, "status": None}


def _first_record(loaded: Loaded) -> PolicyRecord | None:
    if has_errors(loaded.problems):
        return None
    return loaded.records[0] if loaded.documents else None


class StoredPolicy(msgspec.Struct, frozen=True, dict=True, eq=False):
    """A stored policy, with its record if it can be loaded."""

    resource: Resource
    document: JsonObject
    record: PolicyRecord | None
    problems: tuple[Finding, ...] = ()
    # The installation may change every failure policy to Ignore.
    always_ignore: bool = False
    # By function; a copy with another status shares it.
    _derived: dict[Hashable, Any] = msgspec.field(default_factory=dict)

    def derive(self, question: Hashable, work_out: Callable[[], _T]) -> _T:
        """A value derived from the policy without its status; computed once for each function."""
        if question not in self._derived:
            self._derived[question] = work_out()
        found: _T = self._derived[question]
        return found

    @cached_property
    def kind(self) -> PolicyKind:
        """The declaration of its kind."""
        return registry().get(self.resource.group, self.resource.kind)

    @cached_property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @cached_property
    def namespace(self) -> str:
        return str(self.document["metadata"].get("namespace") or "")

    @cached_property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @cached_property
    def unique_name(self) -> str:
        """The name of its separate webhook path; empty if it has none."""
        path = self.kind.path
        if path is None or not path.per_policy:
            return ""
        return path.name_policy(self.namespace, self.name)

    @cached_property
    def uid(self) -> str:
        return str(self.document["metadata"].get("uid") or "")

    @cached_property
    def generation(self) -> int:
        return int(self.document["metadata"].get("generation") or 0)

    @cached_property
    def failure_policy(self) -> str:
        """What the API server does without an answer: Fail or Ignore."""
        # A policy that only triggers background work must not block requests.
        if self.always_ignore:
            return "Ignore"
        if self.kind.failure_policy:
            return self.kind.failure_policy
        spec = self.document.get("spec") or {}
        own = (spec.get("webhookConfiguration") or {}).get("failurePolicy")
        return str(own or spec.get("failurePolicy") or "Fail")

    @cached_property
    def admission(self) -> bool:
        """Whether it is evaluated at admission."""
        return self._enabled("admission")

    @cached_property
    def background(self) -> bool:
        """Whether it is evaluated for existing objects."""
        return self._enabled("background")

    @cached_property
    def is_native(self) -> bool:
        """Whether a generated Kubernetes admission policy does its work."""
        status = self.document.get("status") or {}
        made = status.get("validatingadmissionpolicy") or {}
        return bool(status.get("generated") or made.get("generated"))

    def _enabled(self, when: str) -> bool:
        spec = self.document.get("spec") or {}
        chosen = (spec.get("evaluation") or {}).get(when) or {}
        return spec.get(when) is not False and chosen.get("enabled") is not False
