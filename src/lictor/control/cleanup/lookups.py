"""The outside world as one sweep sees it: asked once for each thing, however many objects ask."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from threading import Lock
from typing import TypeVar

import msgspec

from lictor.errors import LookupFailedError
from lictor.ports import ApiCall, Lookups
from lictor.raw import Json, JsonObject

T = TypeVar("T")

# A context that names the object under judgement asks something else each time: keep the latest.
_MAX_KEPT = 200


class SweepLookups:
    """Remembers answers, and failures too: a service that is away is not waited for again."""

    def __init__(self, world: Lookups) -> None:
        self._world = world
        self._kept: OrderedDict[Hashable, Json] = OrderedDict()
        self._lock = Lock()

    def _remember(self, key: Hashable, ask: Callable[[], T]) -> T:
        with self._lock:
            found = self._kept.get(key, self)
        if found is self:
            try:
                found = ask()
            except LookupFailedError as error:
                found = error
            with self._lock:
                self._kept[key] = found
                if len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
        if isinstance(found, LookupFailedError):
            raise found
        return found  # type: ignore[no-any-return]

    def config_map(self, namespace: str, name: str) -> JsonObject:
        key = ("config_map", namespace, name)
        return self._remember(key, lambda: self._world.config_map(namespace, name))

    def call_api(self, call: ApiCall) -> Json:
        key = ("call", msgspec.json.encode(call))
        return self._remember(key, lambda: self._world.call_api(call))

    def global_reference(self, name: str, namespace: str) -> Json:
        key = ("global", name, namespace)
        return self._remember(key, lambda: self._world.global_reference(name, namespace))

    def image_data(self, reference: str) -> JsonObject:
        return self._remember(("image", reference), lambda: self._world.image_data(reference))

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        key = ("resource", api_version, kind, namespace, name)
        return self._remember(key, lambda: self._world.resource(api_version, kind, namespace, name))

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        key = ("resources", api_version, kind, namespace)
        return self._remember(key, lambda: self._world.resources(api_version, kind, namespace))

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        return self._world.rule_values(policy, rule)

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        return self._world.foreach_values(policy, rule, index)

    def now(self) -> datetime:
        return self._world.now()
