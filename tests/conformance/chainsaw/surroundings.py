"""What an operation needs to know: the cluster, where its test lies, how patient to be."""

import glob
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainsaw.api import Api, Key
from chainsaw.case import Object, read_objects
from chainsaw.durations import parse_seconds
from chainsaw.expressions import Bindings, fill, find_mismatches

POLL = 0.05


class OperationFailedError(Exception):
    """Why an operation did not do what the test says."""


@dataclass(frozen=True)
class Surroundings:
    """The place of one step of one test."""

    api: Api
    folder: Path
    namespace: str
    wrap: Callable[..., list[str]]
    """Makes a command run inside the cluster's network."""
    environment: Mapping[str, str]
    timeouts: Mapping[str, float]
    templating: bool
    grace: int | None
    longest: float | None = None
    """No operation waits longer than this, whatever the test says."""
    rewrite: Callable[[Any], Any] = lambda body: body
    """Changes each object of the test before it is used."""
    created: list[Key] = field(default_factory=list)
    """What this step made, in order; deleted when the test ends."""

    def seconds(self, kind: str, operation: Object) -> float:
        """How long an operation may take."""
        given = operation.get("timeout")
        seconds = parse_seconds(given) if given else self.timeouts[kind]
        return seconds if self.longest is None else min(seconds, self.longest)

    def deadline(self, kind: str, operation: Object) -> float:
        """The same as a time of the monotonic clock."""
        return time.monotonic() + self.seconds(kind, operation)

    def fills(self, operation: Object) -> bool:
        """Tell whether expressions in the operation's objects are replaced."""
        given = operation.get("template")
        return self.templating if given is None else bool(given)

    def read_bodies(self, operation: Object, bindings: Bindings) -> list[Object]:
        """The objects that an operation names, by a file or as they are."""
        if operation.get("resource") is not None:
            return [self.rewrite(operation["resource"])]
        pattern = fill(operation.get("file", ""), bindings)
        files = sorted(glob.glob(str(self.folder / pattern), include_hidden=True))
        bodies = [self.rewrite(body) for file in files for body in read_objects(Path(file))]
        if not bodies:
            raise OperationFailedError(f"no objects in {pattern}")
        return bodies

    def place(self, body: Object) -> Object:
        """An object of a namespaced kind without a namespace goes to that of the test."""
        metadata = body.get("metadata") or {}
        if metadata.get("namespace") or not self.api.is_namespaced(body):
            return body
        return {**body, "metadata": {**metadata, "namespace": self.namespace}}


def read_outputs(operation: Object, bindings: Bindings, value: Any) -> dict[str, Any]:
    """What an operation puts out under names of its own."""
    outputs: dict[str, Any] = {}
    for output in operation.get("outputs") or ():
        match = output.get("match")
        if match is not None and find_mismatches(match, value, {}):
            continue
        name = fill(output["name"], {**bindings, **outputs})
        outputs[name] = fill(output["value"], {**bindings, **outputs}, value)
    return outputs
