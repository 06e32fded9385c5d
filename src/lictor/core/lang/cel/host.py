"""The external functions of expressions: plain callables, passed to each evaluation."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from random import SystemRandom
from typing import NoReturn

import msgspec

from lictor.core.errors import NotProvidedError
from lictor.core.lang.networks import BLOCKED_HOSTS, BLOCKED_NETWORKS
from lictor.core.raw import Json, JsonObject


class HttpCall(msgspec.Struct, frozen=True):
    """One call of `http.get` or `http.post`; it returns a status code and the decoded JSON."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: Json = None
    ca_bundle: str = ""


class AuthorizerCheck(msgspec.Struct, frozen=True):
    """The query of `authorizer…check(verb)`; empty fields are not given."""

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    service_account: tuple[str, str] | None = None
    field_selector: str = ""
    label_selector: str = ""
    # The user of the request; a service account that is named replaces it.
    user: str = ""
    groups: tuple[str, ...] = ()


class AuthorizerDecision(msgspec.Struct, frozen=True):
    """The decision of the authorizer, and its reason."""

    allowed: bool
    reason: str = ""
    error: str = ""


def _absent(what: str) -> Callable[..., NoReturn]:
    def refuse(*_given: Json) -> NoReturn:
        raise NotProvidedError(f"no {what} is available")

    return refuse


_no_cluster = _absent("cluster")
_no_global_context = _absent("global context")
_no_registry = _absent("registry")
_no_network = _absent("network")
_no_verifier = _absent("verifier of signatures")
_no_authorizer = _absent("authorizer")


@dataclass(frozen=True, slots=True)
class HostFunctions:
    """The callables. One that finds nothing raises LookupFailedError; an unset one always does.

    `get_resource(api_version, resource, namespace, name)` returns None for a missing resource;
    `list_resources(api_version, resource, namespace, labels)` returns a List object;
    `post_resource(api_version, resource, namespace, object)` returns the created object;
    `find_resource(api_version, kind)` returns (group, version, resource);
    `http(call)` returns (status code, JSON or None); its implementation must resolve names and
    refuse those for which `core.lang.networks.find_blocked_network` finds one of `blocked_urls`;
    `verify_signatures(image, attestors)` and `verify_attestations(image, attestation, attestors)`
    return how many attestors are verified, `attestation_payload(image, attestation)` its content;
    `choose(n)` returns a random number below n;
    `generate(namespace, objects)` records the objects that a policy generates;
    `namespace` is that of a namespaced policy, empty for others.
    """

    get_resource: Callable[[str, str, str, str], JsonObject | None] = _no_cluster
    list_resources: Callable[[str, str, str, Mapping[str, str]], JsonObject] = _no_cluster
    post_resource: Callable[[str, str, str, JsonObject], JsonObject] = _no_cluster
    find_resource: Callable[[str, str], tuple[str, str, str]] = _no_cluster
    global_context: Callable[[str, str], Json] = _no_global_context
    image_data: Callable[[str], JsonObject] = _no_registry
    http: Callable[[HttpCall], tuple[int, Json]] = _no_network
    generate: Callable[[str, Sequence[JsonObject]], None] = _no_cluster
    verify_signatures: Callable[[str, Sequence[Json]], int] = _no_verifier
    verify_attestations: Callable[[str, str, Sequence[Json]], int] = _no_verifier
    attestation_payload: Callable[[str, str], Json] = _no_verifier
    authorize: Callable[[AuthorizerCheck], AuthorizerDecision] = _no_authorizer
    choose: Callable[[int], int] = SystemRandom().randrange
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    namespace: str = ""
    allows_http: bool = True
    blocked_urls: tuple[str, ...] = (*BLOCKED_NETWORKS, *BLOCKED_HOSTS)
    allowed_urls: tuple[str, ...] = ()


NO_HOST_FUNCTIONS = HostFunctions()

# Functions get their arguments only; this is the host of the evaluation that calls them.
current_host: ContextVar[HostFunctions] = ContextVar("current_host", default=NO_HOST_FUNCTIONS)
