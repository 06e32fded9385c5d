"""Answers to a request that Envoy asks about: `envoy.Denied(403).WithBody("no").Response()`."""

from collections.abc import Callable

from lictor.lang.cel.declaration import Overload, function, member
from lictor.raw import Json, JsonObject

_OK = "EnvoyOk"
_DENIED = "EnvoyDenied"
_RESPONSE = "EnvoyResponse"


def _allowed() -> JsonObject:
    return {}


def _denied(code: int) -> JsonObject:
    return {"status": {"code": code}}


def _header(key: str, value: str) -> JsonObject:
    return {"header": {"key": key, "value": value}}


def _parameter(key: str, value: str) -> JsonObject:
    return {"key": key, "value": value}


def _keep_empty(header: JsonObject, flag: bool = True) -> JsonObject:  # noqa: FBT001, FBT002
    return {**header, "keepEmptyValue": flag}


def _adding(field: str) -> Callable[[JsonObject, Json], JsonObject]:
    return lambda answer, item: {**answer, field: [*answer.get(field, ()), item]}


def _adding_pair(field: str, make: Callable[[str, str], JsonObject]) -> Callable[..., JsonObject]:
    add = _adding(field)
    return lambda answer, key, value: add(answer, make(key, value))


def _respond(status: int, field: str) -> Callable[[JsonObject], JsonObject]:
    return lambda answer: {"status": {"code": status}, field: answer}


def _with_message(response: JsonObject, message: str) -> JsonObject:
    return {**response, "status": {**response.get("status", {}), "message": message}}


def _with_header(name: str, kind: str, field: str) -> tuple[Overload, Overload]:
    return (
        member(name, f"{kind}, EnvoyHeader -> {kind}", _adding(field)),
        member(name, f"{kind}, string, string -> {kind}", _adding_pair(field, _header)),
    )


OVERLOADS = (
    function("envoy.Allowed", f"-> {_OK}", _allowed),
    function("envoy.Denied", f"int -> {_DENIED}", _denied),
    function("envoy.Header", "string, string -> EnvoyHeader", _header),
    function("envoy.QueryParam", "string, string -> EnvoyParameter", _parameter),
    member(
        "WithBody",
        f"{_DENIED}, string -> {_DENIED}",
        lambda answer, body: {**answer, "body": body},
    ),
    *_with_header("WithHeader", _OK, "headers"),
    *_with_header("WithHeader", _DENIED, "headers"),
    *_with_header("WithResponseHeader", _OK, "responseHeadersToAdd"),
    member("WithoutHeader", f"{_OK}, string -> {_OK}", _adding("headersToRemove")),
    member("WithQueryParam", f"{_OK}, EnvoyParameter -> {_OK}", _adding("queryParametersToSet")),
    member(
        "WithQueryParam",
        f"{_OK}, string, string -> {_OK}",
        _adding_pair("queryParametersToSet", _parameter),
    ),
    member("WithoutQueryParam", f"{_OK}, string -> {_OK}", _adding("queryParametersToRemove")),
    member("KeepEmptyValue", "EnvoyHeader -> EnvoyHeader", _keep_empty),
    member("KeepEmptyValue", "EnvoyHeader, bool -> EnvoyHeader", _keep_empty),
    member("Response", f"{_OK} -> {_RESPONSE}", _respond(0, "okResponse")),
    # Envoy's own number for a permission that is denied.
    member("Response", f"{_DENIED} -> {_RESPONSE}", _respond(7, "deniedResponse")),
    member("WithMessage", f"{_RESPONSE}, string -> {_RESPONSE}", _with_message),
    member(
        "WithMetadata",
        f"{_RESPONSE}, dyn -> {_RESPONSE}",
        lambda response, metadata: {**response, "dynamicMetadata": metadata},
    ),
)
