"""What is wrong with the metadata of an object, of whatever kind? Names, labels, annotations."""

from lictor.apiserver.checks.name_rules import (
    NameRule,
    check_label_value,
    check_qualified,
    check_subdomain,
)
from lictor.apiserver.field_errors import Cause, invalid, required, too_long
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import JsonObject

_MAX_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = frozenset(("orphan", "foregroundDeletion", "kubernetes"))
_OWNER_FIELDS = (
    ("apiVersion", "version must not be empty"),
    ("kind", "must not be empty"),
    ("name", "must not be empty"),
    ("uid", "must not be empty"),
)


def check_metadata(
    document: JsonObject,
    old: JsonObject | None,
    rule: NameRule = check_subdomain,
    *,
    takes_any_finalizer: bool = False,
) -> list[Cause]:
    """Everything that is wrong. Names of objects that are there already are let be."""
    metadata = read_object(document, "metadata")
    causes = [] if old is not None else _check_name(metadata, rule)
    causes += check_labels(read_object(metadata, "labels"), "metadata.labels")
    causes += check_annotations(read_object(metadata, "annotations"), "metadata.annotations")
    if "ownerReferences" in metadata:
        causes += _check_owners(metadata)
    if "finalizers" in metadata:
        causes += _check_finalizers(metadata, takes_any=takes_any_finalizer)
    return causes


def _check_name(metadata: JsonObject, rule: NameRule) -> list[Cause]:
    name, prefix = read_text(metadata, "name"), read_text(metadata, "generateName")
    causes = []
    if prefix:
        # What comes behind a dash is still to be made.
        shown = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        causes += [invalid("metadata.generateName", prefix, why) for why in rule(shown)]
    if not name:
        return [*causes, required("metadata.name", "name or generateName is required")]
    return [*causes, *(invalid("metadata.name", name, why) for why in rule(name))]


def check_labels(labels: JsonObject, path: str) -> list[Cause]:
    """Keys and values of labels."""
    causes: list[Cause] = []
    for key, value in labels.items():
        causes += [invalid(path, key, why) for why in check_qualified(key)]
        if isinstance(value, str):
            causes += [invalid(path, value, why) for why in check_label_value(value)]
    return causes


def check_annotations(annotations: JsonObject, path: str) -> list[Cause]:
    """Keys of annotations, and how much they are together."""
    causes: list[Cause] = []
    size = 0
    for key, value in annotations.items():
        causes += [invalid(path, key, why) for why in check_qualified(key.lower())]
        size += len(key) + (len(value.encode()) if isinstance(value, str) else 0)
    if size > _MAX_ANNOTATIONS:
        causes.append(too_long(path, _MAX_ANNOTATIONS))
    return causes


def _check_owners(metadata: JsonObject) -> list[Cause]:
    path = "metadata.ownerReferences"
    owners = read_list(metadata, "ownerReferences")
    causes = [
        invalid(f"{path}.{field}", "", why)
        for owner in owners
        for field, why in _OWNER_FIELDS
        if not read_text(owner, field)
    ]
    controllers = [
        f"{read_text(each, 'kind')}/{read_text(each, 'name')}"
        for each in owners
        if isinstance(each, dict) and each.get("controller") is True
    ]
    if len(controllers) > 1:
        told = 'Only one reference can have Controller set to true. Found "true" in references for'
        causes.append(invalid(path, owners, f"{told} {controllers[0]} and {controllers[1]}"))
    return causes


def _check_finalizers(metadata: JsonObject, *, takes_any: bool) -> list[Cause]:
    path = "metadata.finalizers"
    causes: list[Cause] = []
    for index, name in enumerate(read_list(metadata, "finalizers")):
        causes += [invalid(path, name, why) for why in check_qualified(str(name))]
        if "/" not in str(name) and name not in _STANDARD_FINALIZERS and not takes_any:
            told = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid(f"{path}[{index}]", name, told))
    return causes
