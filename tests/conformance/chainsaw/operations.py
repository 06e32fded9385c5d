"""The operations that a step may name: each returns its outputs or raises why it failed."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from chainsaw import asserting, running, writing
from chainsaw.api import ApiError
from chainsaw.case import Object
from chainsaw.expressions import Bindings, ExpressionError, bind_all
from chainsaw.surroundings import OperationFailedError, Surroundings

from lictor.core.errors import LictorError

Run = Callable[[Surroundings, Object, Bindings], dict[str, Any]]

OPERATIONS: Mapping[str, Run] = {
    "apply": partial(writing.write_objects, writing.prepare_apply),
    "create": partial(writing.write_objects, writing.prepare_create),
    "update": partial(writing.write_objects, writing.prepare_update),
    "patch": partial(writing.write_objects, writing.prepare_patch),
    "delete": writing.delete_objects,
    "assert": asserting.assert_objects,
    "error": asserting.refuse_objects,
    "script": running.run_script,
    "command": running.run_program,
    "sleep": running.sleep,
    "wait": running.wait,
    "get": running.show("get"),
    "describe": running.show("describe"),
    "events": running.show("get", "events"),
    "podLogs": running.show("logs"),
}


def run_operation(at: Surroundings, entry: Object, bindings: Bindings) -> dict[str, Any]:
    """Run one entry of a step; returns the bindings that it puts out."""
    name = find_name(entry)
    operation = entry[name] or {}
    try:
        return OPERATIONS[name](at, operation, bind_all(bindings, operation.get("bindings") or ()))
    except (ApiError, ExpressionError, LictorError, TimeoutError, OSError) as error:
        raise OperationFailedError(str(error)) from error


def find_name(entry: Object) -> str:
    """Which operation an entry is."""
    for name in OPERATIONS:
        if name in entry:
            return name
    raise OperationFailedError(f"no such operation: {', '.join(entry)}")


def describe_operation(entry: Object) -> str:
    """An operation in a few words, for a report."""
    name = find_name(entry)
    operation = entry[name] or {}
    what = operation.get("file") or (operation.get("ref") or {}).get("name")
    resource = operation.get("resource")
    if not what and isinstance(resource, dict):
        what = resource.get("kind")
    return f"{name} {what}" if what else name
