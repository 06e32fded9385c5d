"""Operations that write: apply, create, update, patch and delete, tried until they go as expected."""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from chainsaw.api import ApiError, Key, NotFoundError, key_of
from chainsaw.case import Object
from chainsaw.expressions import Bindings, ExpressionError, fill, find_mismatches
from chainsaw.surroundings import POLL, OperationFailedError, Surroundings, read_outputs

# Looks at what is there and returns the call that writes; what the call raises can be expected.
Prepare = Callable[[Surroundings, Object], Callable[[], Any]]

_POD_PATHS = {
    "Pod": ("spec",),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "Job"), ("spec", "template", "spec")
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}


def write_objects(
    prepare: Prepare, at: Surroundings, operation: Object, bindings: Bindings
) -> dict[str, Any]:
    """Write each object of the operation; all are tried, even where one fails."""
    outputs: dict[str, Any] = {}
    faults = []
    for given in at.read_bodies(operation, bindings):
        body = _set_grace(given, at.grace)
        if at.fills(operation):
            body = fill(body, bindings, body)
        try:
            outputs |= _write_patiently(prepare, at, operation, bindings, at.place(body))
        except OperationFailedError as fault:
            faults.append(str(fault))
    if faults:
        raise OperationFailedError("; ".join(faults))
    return outputs


def _write_patiently(
    prepare: Prepare, at: Surroundings, operation: Object, bindings: Bindings, body: Object
) -> dict[str, Any]:
    deadline = at.deadline("apply", operation)
    judged: list[str] = []
    while True:
        time.sleep(POLL)
        try:
            write = prepare(at, body)
        except ApiError as error:
            # What was wrong with a write says more than that a second one cannot be tried.
            wrong = judged or [str(error)]
        else:
            known = {**bindings, "error": _call(write)}
            wrong = judged = judge(operation, known, body)
            if not wrong:
                return read_outputs(operation, known, body)
        if time.monotonic() > deadline:
            raise OperationFailedError(f"{key_of(body)}: {'; '.join(wrong)}")


def _call(write: Callable[[], Any]) -> str | None:
    try:
        write()
    except ApiError as error:
        return str(error)
    return None


def judge(operation: Object, bindings: Bindings, body: Object) -> list[str]:
    """What is wrong with the result of a write: as the expectations say, else its error."""
    matched, wrong = False, []
    for expectation in operation.get("expect") or ():
        try:
            match = expectation.get("match")
            if match is not None and find_mismatches(match, body, {}):
                continue
            matched = True
            wrong += find_mismatches(expectation["check"], body, bindings)
        except ExpressionError as fault:
            matched = True
            wrong.append(str(fault))
    if matched:
        said = bindings["error"]
        return [*wrong, f"the server said: {said}"] if wrong else []
    return [bindings["error"]] if bindings["error"] else []


def prepare_apply(at: Surroundings, body: Object) -> Callable[[], Any]:
    """Create what is not there; merge into what is."""
    try:
        actual = at.api.get(key_of(body))
    except NotFoundError:
        return partial(_create, at, body)
    return partial(at.api.merge, _with_version(body, actual))


def prepare_create(at: Surroundings, body: Object) -> Callable[[], Any]:
    """Create what must not be there."""
    key = key_of(body)
    if key.name:
        try:
            at.api.get(key)
        except NotFoundError:
            pass
        else:
            raise ApiError(0, "the resource already exists in the cluster")
    return partial(_create, at, body)


def prepare_update(at: Surroundings, body: Object) -> Callable[[], Any]:
    """Replace what must be there."""
    return partial(at.api.update, _with_version(body, at.api.get(key_of(body))))


def prepare_patch(at: Surroundings, body: Object) -> Callable[[], Any]:
    """Merge into what must be there."""
    return partial(at.api.merge, _with_version(body, at.api.get(key_of(body))))


def _create(at: Surroundings, body: Object) -> None:
    made = at.api.create(body)
    key = key_of(body)
    at.created.append(Key(key.version, key.kind, key.namespace, made["metadata"]["name"]))


def _with_version(body: Object, actual: Object) -> Object:
    version = actual["metadata"]["resourceVersion"]
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}


def _set_grace(body: Object, seconds: int | None) -> Object:
    path = _POD_PATHS.get(str(body.get("kind")))
    return _set_at(body, path, seconds) if seconds and path else body


def _set_at(body: Object, path: tuple[str, ...], seconds: int) -> Object:
    if not path:
        return {**body, "terminationGracePeriodSeconds": seconds}
    return {**body, path[0]: _set_at(body.get(path[0]) or {}, path[1:], seconds)}


def delete_objects(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, Any]:
    """Delete each object and wait until it is gone; what is not there is fine."""
    deadline = at.deadline("delete", operation)
    bodies = [_refer(operation["ref"])] if "ref" in operation else None
    for given in bodies or at.read_bodies(operation, bindings):
        body = at.place(fill(given, bindings, given) if at.fills(operation) else given)
        keys = [key for actual in read_objects_like(at, body) if (key := key_of(actual))]
        for key in keys:
            known = {**bindings, "error": _call(partial(_delete, at, operation, key))}
            if wrong := judge(operation, known, body):
                raise OperationFailedError(f"{key}: {'; '.join(wrong)}")
            if known["error"] is None:
                at.api.wait_gone(key, deadline)
    return {}


def _delete(at: Surroundings, operation: Object, key: Key) -> None:
    with contextlib.suppress(NotFoundError):
        at.api.delete(key, propagation=operation.get("deletionPropagationPolicy") or "Background")


def _refer(reference: Object) -> Object:
    metadata = {
        name: reference[name] for name in ("name", "namespace", "labels") if reference.get(name)
    }
    return {
        "apiVersion": reference["apiVersion"],
        "kind": reference["kind"],
        "metadata": metadata,
    }


def read_objects_like(at: Surroundings, body: Object) -> list[Object]:
    """The object of that name, or all with those labels where there is no name."""
    key = key_of(body)
    if not key.name:
        labels = (body.get("metadata") or {}).get("labels")
        return at.api.list(key, labels)
    try:
        return [at.api.get(key)]
    except NotFoundError:
        return []
