"""Kubernetes' authorizer: checks are built step by step, and the host decides them."""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

from cel2.faults import CelError, no_overload
from cel2.functions import Implementation, Library
from cel2.library.formats import FORMATS
from cel2.values import Opaque, Value


class Check(msgspec.Struct, frozen=True):
    """What the authorizer is to decide; `service_account` is namespace and name."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    service_account: tuple[str, str] | None = None


class Decision(msgspec.Struct, frozen=True):
    """What the authorizer decided."""

    allowed: bool = False
    reason: str = ""
    error: str = ""


Authorize: TypeAlias = Callable[[Check], Decision]


class _Stage(Opaque):
    authorize: Authorize
    check: Check

    def equals(self, _: Value) -> bool:
        raise no_overload()


class Authorizer(_Stage):
    """The value of `authorizer`."""

    type_name: ClassVar[str] = "kubernetes.authorization.Authorizer"


class _PathCheck(_Stage):
    type_name: ClassVar[str] = "kubernetes.authorization.PathCheck"


class _GroupCheck(_Stage):
    type_name: ClassVar[str] = "kubernetes.authorization.GroupCheck"


class ResourceCheck(_Stage):
    """The value of `authorizer.requestResource`, and of checks of resources."""

    type_name: ClassVar[str] = "kubernetes.authorization.ResourceCheck"


class _DecisionValue(Opaque):
    decision: Decision
    type_name: ClassVar[str] = "kubernetes.authorization.Decision"


def make_authorizer(authorize: Authorize) -> Authorizer:
    """The value for the variable `authorizer`."""
    return Authorizer(authorize, Check())


def _require(text: str, name: str) -> str:
    if not text.strip():
        raise CelError(f"{name} must not be empty")
    return text


def _as_service_account(stage: Authorizer, namespace: str, name: str) -> Authorizer:
    if FORMATS["dns1123Subdomain"](name):
        raise CelError("Invalid service account name")
    if FORMATS["dns1123Label"](namespace):
        raise CelError("Invalid service account namespace")
    return Authorizer(stage.authorize, replace(stage.check, service_account=(namespace, name)))


def _decide(stage: _Stage, verb: str) -> _DecisionValue:
    return _DecisionValue(stage.authorize(replace(stage.check, verb=verb)))


def _set(field: str) -> Implementation:
    def run(stage: ResourceCheck, text: str) -> ResourceCheck:
        return ResourceCheck(stage.authorize, replace(stage.check, **{field: text}))

    return run


def _path(stage: Authorizer, path: str) -> _PathCheck:
    return _PathCheck(stage.authorize, replace(stage.check, path=_require(path, "path")))


def _group(stage: Authorizer, group: str) -> _GroupCheck:
    return _GroupCheck(stage.authorize, replace(stage.check, group=group))


def _resource(stage: _GroupCheck, resource: str) -> ResourceCheck:
    check = replace(stage.check, resource=_require(resource, "resource"))
    return ResourceCheck(stage.authorize, check)


_A = "kubernetes.authorization."
AUTHORIZATION = Library(
    (f"{_A}Authorizer::path(string) -> {_A}PathCheck", _path),
    (f"{_A}Authorizer::group(string) -> {_A}GroupCheck", _group),
    (f"{_A}Authorizer::serviceAccount(string, string) -> {_A}Authorizer", _as_service_account),
    (f"{_A}GroupCheck::resource(string) -> {_A}ResourceCheck", _resource),
    (f"{_A}ResourceCheck::subresource(string) -> {_A}ResourceCheck", _set("subresource")),
    (f"{_A}ResourceCheck::namespace(string) -> {_A}ResourceCheck", _set("namespace")),
    (f"{_A}ResourceCheck::name(string) -> {_A}ResourceCheck", _set("name")),
    (f"{_A}PathCheck::check(string) -> {_A}Decision", _decide),
    (f"{_A}ResourceCheck::check(string) -> {_A}Decision", _decide),
    (f"{_A}Decision::errored() -> bool", lambda value: bool(value.decision.error)),
    (f"{_A}Decision::error() -> string", lambda value: value.decision.error),
    (f"{_A}Decision::allowed() -> bool", lambda value: value.decision.allowed),
    (f"{_A}Decision::reason() -> string", lambda value: value.decision.reason),
)
SELECTORS = Library(
    (f"{_A}ResourceCheck::fieldSelector(string) -> {_A}ResourceCheck", _set("field_selector")),
    (f"{_A}ResourceCheck::labelSelector(string) -> {_A}ResourceCheck", _set("label_selector")),
)
