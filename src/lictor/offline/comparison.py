"""Is a resource that a policy made the one that a test file expects? If not, how do they differ?"""

from lictor.raw import Json, JsonObject
from lictor.report.yaml_text import render_yaml

_OWN_LABEL_PREFIX = "generate.kyverno.io/"
_MANAGED_BY = "app.kubernetes.io/managed-by"


def same_resource(actual: JsonObject, expected: JsonObject) -> bool:
    """Whether both say the same: nulls, empty maps, empty lists and our own labels say nothing."""
    return _same(_tidy(_fix_labels(actual)), _tidy(_fix_labels(expected)))


def describe_difference(actual: JsonObject, expected: JsonObject) -> str:
    """The lines in which two resources differ: `-` only in expected, `+` only in actual."""
    import difflib

    wanted, found = (_lines(_fix_labels(resource)) for resource in (expected, actual))
    return "\n".join(difflib.unified_diff(wanted, found, "expected", "actual", lineterm="", n=2))


def _lines(resource: JsonObject) -> list[str]:
    return render_yaml(resource).splitlines()


def _fix_labels(resource: JsonObject) -> JsonObject:
    """A copy without the labels that mark a generated object, but with the one all of them have."""
    metadata = resource.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    labels = metadata.get("labels")
    labels = labels if isinstance(labels, dict) else {}
    kept = {k: v for k, v in labels.items() if not str(k).startswith(_OWN_LABEL_PREFIX)}
    kept.setdefault(_MANAGED_BY, "kyverno")
    return {**resource, "metadata": {**metadata, "labels": kept}}


def _tidy(node: Json) -> Json:
    if isinstance(node, dict):
        kept = {key: value for key, item in node.items() if (value := _tidy(item)) is not None}
        return kept or None
    if isinstance(node, list):
        return [value for item in node if (value := _tidy(item)) is not None] or None
    return node


def _same(left: Json, right: Json) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    # To Python, true is 1; to JSON it is not.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)
