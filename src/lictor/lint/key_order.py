"""Checks the order of keys against that of Kubernetes' documentation.

Only keys with a usual order are compared; the others may be anywhere.
"""

from collections.abc import Iterator, Sequence

from lictor.core.model.finding import FieldPath, Finding
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.documents import LintObject

CHECK = "unsorted-keys"
_TOP = ("apiVersion", "kind", "metadata", "policies", "resources", "spec", "results", "status")
_METADATA = ("name", "generateName", "namespace", "labels", "annotations")
_SPEC = ("matchConstraints", "matchConditions", "variables", "rules", "validations", "mutations")
_RULE = (
    "name", "match", "exclude", "context", "preconditions", "celPreconditions",
    "validate", "mutate", "generate", "verifyImages",
)  # fmt: skip
_BODY = ("failureAction", "message", "foreach", "pattern", "anyPattern", "deny", "cel")
_FILTER = ("kinds", "names", "namespaces", "operations", "selector")
_NAMED = ("name", "expression", "message", "messageExpression")
_CONDITION = ("key", "operator", "value")
_ANY = None
# A path, in which None matches any step, and the keys there in their order.
_PLACES: tuple[tuple[tuple[str | None, ...], tuple[str, ...]], ...] = (
    ((), _TOP),
    (("metadata",), _METADATA),
    (("spec",), _SPEC),
    (("spec", "rules", _ANY), _RULE),
    (("spec", "rules", _ANY, "validate"), _BODY),
    (("spec", "rules", _ANY, "match", _ANY, _ANY, "resources"), _FILTER),
    (("spec", "rules", _ANY, "exclude", _ANY, _ANY, "resources"), _FILTER),
    (("spec", "matchConditions", _ANY), _NAMED),
    (("spec", "variables", _ANY), _NAMED),
    (("spec", "validations", _ANY), _NAMED),
)
_CONDITIONS = ("preconditions", "conditions")


def check_order(item: LintObject) -> Iterator[Finding]:
    """Objects of a policy, or of a file of the command line, with keys in another order."""
    if item.record is None and not item.is_offline:
        return
    for path, node in _walk(item.body, ()):
        wanted = find_order(path, node)
        misplaced = next(_list_misplaced(list(node), wanted), None)
        if misplaced is not None:
            key, before = misplaced
            usual = ", ".join(name for name in wanted if name in node)
            message = f'"{key}" comes before "{before}": the usual order is {usual}'
            yield item.locate(flag(CHECK, (*path, key), message))


def find_order(path: FieldPath, node: dict[str, Json]) -> tuple[str, ...]:
    """The keys with a usual order in the object at a path."""
    if set(_CONDITION[:2]) <= set(node) and any(step in _CONDITIONS for step in path):
        return _CONDITION
    for place, keys in _PLACES:
        if len(place) == len(path) and all(
            step is _ANY or step == given for step, given in zip(place, path, strict=True)
        ):
            return keys
    return ()


def sort_keys(keys: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The keys in their usual order; those without one keep their positions."""
    known = iter(sorted((key for key in keys if key in wanted), key=wanted.index))
    return [next(known) if key in wanted else key for key in keys]


def _list_misplaced(keys: list[str], wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Keys that should be where another one is, and the other."""
    for key, usual in zip(keys, sort_keys(keys, wanted), strict=True):
        if key != usual:
            yield usual, key


def _walk(node: Json, path: FieldPath) -> Iterator[tuple[FieldPath, dict[str, Json]]]:
    if isinstance(node, dict):
        if all(isinstance(key, str) for key in node):
            yield path, node
        for key, value in node.items():
            yield from _walk(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _walk(value, (*path, index))
