"""Lookups as rules may make them: never on the thread that answers requests."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from lictor.core.errors import OtherThreadError
from lictor.core.model.request import Request
from lictor.core.ports import (
    DEFAULT_ACCESS,
    ApiCall,
    GuestLogLine,
    Lookups,
    ObjectQuery,
    Registries,
    RegistryAccess,
    ResourceFacts,
)
from lictor.core.raw import Json, JsonObject


class GuardedLookups:
    """Passes questions on from any thread but that of the event loop.

    There a lookup would block all requests. It is noted and rejected, and the evaluator runs
    the rules again on another thread (see `evaluator`).
    """

    def __init__(
        self,
        inner: Lookups,
        find_namespace: Callable[[str], JsonObject | None] = lambda _: None,
        begin_request: Callable[[Request, float], None] = lambda *_: None,
    ) -> None:
        self._inner = inner
        self.begin_request = begin_request
        self._find_namespace = find_namespace
        self._thread = threading.get_ident()
        # Was a lookup tried on the loop's thread? The evaluator resets it.
        self.was_used = False

    def _let_pass(self) -> Lookups:
        if threading.get_ident() == self._thread:
            self.was_used = True
            raise OtherThreadError("lookup on the thread of the event loop")
        return self._inner

    def config_map(self, namespace: str, name: str) -> JsonObject:
        return self._let_pass().config_map(namespace, name)

    def call_api(self, call: ApiCall) -> Json:
        return self._let_pass().call_api(call)

    def global_reference(self, name: str) -> Json:
        return self._let_pass().global_reference(name)

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return self._let_pass().image_data(reference, access)

    def registries(self) -> Registries:
        return self._let_pass().registries()

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        if api_version == "v1" and kind == "Namespace":
            # Watched anyway: the one question that costs nothing.
            found = self._find_namespace(name)
            if found is not None:
                return found
        return self._let_pass().resource(api_version, kind, namespace, name)

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        return self._let_pass().resources(api_version, kind, namespace)

    def select_objects(self, query: ObjectQuery) -> Sequence[JsonObject]:
        return self._let_pass().select_objects(query)

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        return self._let_pass().describe_kind(api_version, kind)

    def resolve_host(self, host: str) -> tuple[str, ...]:
        return self._let_pass().resolve_host(host)

    def log_line(self, line: GuestLogLine) -> None:
        self._inner.log_line(line)

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        return self._inner.rule_values(policy, rule)

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        return self._inner.foreach_values(policy, rule, index)

    def now(self) -> datetime:
        return self._inner.now()
