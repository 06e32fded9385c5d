"""Labels and annotations of generated objects: policy, rule, trigger and clone source."""

import json
from collections.abc import Mapping

import msgspec

from lictor.core.model.result import SourceRef
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.update_requests import UpdateTrigger

MANAGED = "app.kubernetes.io/managed-by=kyverno"
MADE = f"{MANAGED},generate.kyverno.io/policy-name"
CLONE_SOURCE = "generate.kyverno.io/clone-source"
_PREFIX = "generate.kyverno.io"
# The behaviour on deletion of the policy, which is unavailable then.
_ON_DELETE = "lictor.io/on-policy-delete"
# A name can be longer than a label may be.
_TRIGGER_NAME = "lictor.io/trigger-name"
_SOURCE_NAME = "lictor.io/source-name"
# A hash of the target fields of the rule when it generated the object.
_AIM = "lictor.io/aim"


class GenerationUnit(msgspec.Struct, frozen=True):
    """One rule and one trigger: what is generated for them is reconciled together."""

    policy: str
    namespace: str
    # Empty for a policy in CEL.
    rule: str
    trigger: UpdateTrigger

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.policy, self.namespace, self.rule, self.trigger.uid


def mark_made(
    made: JsonObject,
    unit: GenerationUnit,
    source: SourceRef | None,
    *,
    goes_with_policy: bool,
    aim: str = "",
) -> JsonObject:
    """The object with its labels and annotations."""
    metadata = made.get("metadata") or {}
    labels = {**_read_texts(metadata.get("labels")), **_label_unit(unit)}
    labels.pop(CLONE_SOURCE, None)
    if source is not None:
        labels |= _label_source(source)
    notes: dict[str, str] = {
        **_read_texts(metadata.get("annotations")),
        _ON_DELETE: "delete" if goes_with_policy else "keep",
        _TRIGGER_NAME: unit.trigger.name,
    }
    if source is not None:
        notes[_SOURCE_NAME] = source.name
    if aim:
        notes[_AIM] = aim
    notes.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    return {**made, "metadata": {**metadata, "labels": labels, "annotations": notes}}


def _read_texts(given: Json) -> dict[str, str]:
    """Labels or annotations; a variable with a number or a boolean is no string."""
    if not isinstance(given, dict):
        return {}
    return {
        key: value if isinstance(value, str) else json.dumps(value) if value is not None else ""
        for key, value in given.items()
    }


def _label_unit(unit: GenerationUnit) -> dict[str, str]:
    group, _, version = unit.trigger.api_version.rpartition("/")
    labels = {
        "app.kubernetes.io/managed-by": "kyverno",
        f"{_PREFIX}/policy-name": unit.policy,
        f"{_PREFIX}/policy-namespace": unit.namespace,
        f"{_PREFIX}/trigger-version": version,
        f"{_PREFIX}/trigger-group": group,
        f"{_PREFIX}/trigger-kind": unit.trigger.kind,
        f"{_PREFIX}/trigger-namespace": unit.trigger.namespace,
        f"{_PREFIX}/trigger-uid": unit.trigger.uid,
    }
    if unit.rule:
        labels[f"{_PREFIX}/rule-name"] = unit.rule
    else:
        labels[f"{_PREFIX}/trigger-name"] = unit.trigger.name[:63].rstrip("-._")
    return labels


def _label_source(source: SourceRef) -> dict[str, str]:
    group, _, version = source.api_version.rpartition("/")
    return {
        f"{_PREFIX}/source-group": group,
        f"{_PREFIX}/source-version": version,
        f"{_PREFIX}/source-kind": source.kind,
        f"{_PREFIX}/source-namespace": source.namespace,
        f"{_PREFIX}/source-uid": source.uid,
    }


def read_unit(item: JsonObject) -> GenerationUnit | None:
    """The unit of an object; None if no policy generated it."""
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    policy = labels.get(f"{_PREFIX}/policy-name")
    # A namespaced policy generates nothing elsewhere: such labels are forged.
    own = labels.get(f"{_PREFIX}/policy-namespace")
    if not policy or (own and own != metadata.get("namespace")):
        return None
    notes = metadata.get("annotations") or {}
    group = labels.get(f"{_PREFIX}/trigger-group") or ""
    version = labels.get(f"{_PREFIX}/trigger-version") or ""
    trigger = UpdateTrigger(
        f"{group}/{version}" if group else version,
        str(labels.get(f"{_PREFIX}/trigger-kind") or ""),
        str(labels.get(f"{_PREFIX}/trigger-namespace") or ""),
        str(notes.get(_TRIGGER_NAME) or labels.get(f"{_PREFIX}/trigger-name") or ""),
        str(labels.get(f"{_PREFIX}/trigger-uid") or ""),
    )
    namespace = str(labels.get(f"{_PREFIX}/policy-namespace") or "")
    return GenerationUnit(
        str(policy), namespace, str(labels.get(f"{_PREFIX}/rule-name") or ""), trigger
    )


def belongs_to(item: JsonObject, unit: GenerationUnit) -> bool:
    """Whether an object was generated for this trigger: anyone can write another UID."""
    made_for = read_unit(item)
    if made_for is None or made_for.key != unit.key:
        return False
    own, wanted = made_for.trigger, unit.trigger
    # Kyverno's classic rules record no name.
    same_name = own.name in ("", wanted.name)
    return same_name and (own.kind, own.namespace) == (wanted.kind, wanted.namespace)


def read_source(item: JsonObject) -> SourceRef | None:
    """The source of a copy; None if it is no copy. Kyverno's copies record no name."""
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    uid = labels.get(f"{_PREFIX}/source-uid")
    if not uid:
        return None
    group = labels.get(f"{_PREFIX}/source-group") or ""
    version = labels.get(f"{_PREFIX}/source-version") or ""
    return SourceRef(
        f"{group}/{version}" if group else version,
        str(labels.get(f"{_PREFIX}/source-kind") or ""),
        str(labels.get(f"{_PREFIX}/source-namespace") or ""),
        str((metadata.get("annotations") or {}).get(_SOURCE_NAME) or ""),
        str(uid),
    )


def goes_with_policy(item: JsonObject) -> bool:
    """Is it deleted when its policy is?"""
    return (item["metadata"].get("annotations") or {}).get(_ON_DELETE) == "delete"


def read_aim(item: JsonObject) -> str:
    """The hash of the rule's target fields when it generated the object."""
    return str((item["metadata"].get("annotations") or {}).get(_AIM) or "")


class MetadataChanges(msgspec.Struct, frozen=True):
    """Labels and annotations to set, or to remove if they are None."""

    labels: Mapping[str, str | None] = {}
    annotations: Mapping[str, str | None] = {}

    def put_on(self, item: JsonObject) -> JsonObject:
        """The item with them."""
        metadata = dict(item["metadata"])
        for name, changes in (("labels", self.labels), ("annotations", self.annotations)):
            kept = {**(metadata.get(name) or {}), **changes}
            left = {key: text for key, text in kept.items() if text is not None}
            if left or name in metadata:
                metadata[name] = left
        return {**item, "metadata": metadata}


# The object is kept when its policy is deleted, and no longer belongs to any policy.
KEEP_ON_POLICY_DELETE = MetadataChanges(annotations={_ON_DELETE: "keep"})
RELEASE = MetadataChanges(
    labels=dict.fromkeys(
        f"{_PREFIX}/{name}" for name in ("policy-name", "policy-namespace", "rule-name")
    ),
    annotations=dict.fromkeys((_ON_DELETE, _TRIGGER_NAME, _SOURCE_NAME, _AIM)),
)
