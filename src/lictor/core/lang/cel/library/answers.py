"""Answers of policies to requests of Envoy and of web servers."""

from collections.abc import Callable
from typing import Any

from lictor.core.lang.cel.faults import CelError
from lictor.core.lang.cel.functions import Implementation, Library
from lictor.core.lang.cel.library.plain import emit
from lictor.core.lang.cel.library.structs import Answer
from lictor.core.lang.cel.values import Value
from lictor.core.raw import Json, JsonObject

ENVOY_RESPONSE = "envoy.service.auth.v3.CheckResponse"
HTTP_RESPONSE = "http.CheckResponse"


def _get_values(attributes: Value, field: str, key: str) -> list[str]:
    values = attributes.get(field) if isinstance(attributes, dict) else None
    if not isinstance(values, dict):
        raise CelError(f"no such overload: a request without {field}")
    found = values.get(key) or []
    return [str(value) for value in found] if isinstance(found, list) else [str(found)]


def _get_header(attributes: Value, name: str) -> list[str]:
    # As Go writes the names of headers: Content-Type.
    canonical = "-".join(part.capitalize() for part in name.split("-"))
    return _get_values(attributes, "header", canonical)


def _make(kind: str, build: Callable[..., JsonObject]) -> Implementation:
    """An answer from fields that are given as plain values."""
    return lambda *args: Answer(kind, build(*map(_fields_of, args)))


def _fields_of(value: Value) -> Any:
    return value.fields if isinstance(value, Answer) else emit(value)


HTTP_OK, HTTP_DENIED = "http.CheckResponseOk", "http.CheckResponseDenied"
WEB_ANSWERS = Library(
    (f"http.Allowed() -> {HTTP_OK}", _make(HTTP_OK, dict)),
    (
        f"http.Denied(string) -> {HTTP_DENIED}",
        _make(HTTP_DENIED, lambda reason: {"reason": reason}),
    ),
    ("dyn::Header(string) -> list(string)", _get_header),
    (
        "dyn::QueryParam(string) -> list(string)",
        lambda attributes, key: _get_values(attributes, "query", key),
    ),
    (
        f"{HTTP_OK}::Response() -> {HTTP_RESPONSE}",
        _make(HTTP_RESPONSE, lambda allowed: {"ok": allowed}),
    ),
    (
        f"{HTTP_DENIED}::Response() -> {HTTP_RESPONSE}",
        _make(HTTP_RESPONSE, lambda denied: {"denied": denied}),
    ),
)


_OK = "envoy.service.auth.v3.OkHttpResponse"
_DENIED = "envoy.service.auth.v3.DeniedHttpResponse"
_HEADER = "envoy.config.core.v3.HeaderValueOption"
_PARAMETER = "envoy.config.core.v3.QueryParameter"


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


_METHODS: tuple[tuple[str, str, str, Callable[..., JsonObject]], ...] = (
    (_DENIED, "WithBody(string)", _DENIED, lambda answer, body: {**answer, "body": body}),
    *[
        row
        for kind, name, field in (
            (_OK, "WithHeader", "headers"),
            (_DENIED, "WithHeader", "headers"),
            (_OK, "WithResponseHeader", "responseHeadersToAdd"),
        )
        for row in (
            (kind, f"{name}({_HEADER})", kind, _adding(field)),
            (kind, f"{name}(string, string)", kind, _adding_pair(field, _header)),
        )
    ],
    (_OK, "WithoutHeader(string)", _OK, _adding("headersToRemove")),
    (_OK, f"WithQueryParam({_PARAMETER})", _OK, _adding("queryParametersToSet")),
    (
        _OK,
        "WithQueryParam(string, string)",
        _OK,
        _adding_pair("queryParametersToSet", _parameter),
    ),
    (_OK, "WithoutQueryParam(string)", _OK, _adding("queryParametersToRemove")),
    (_HEADER, "KeepEmptyValue()", _HEADER, _keep_empty),
    (_HEADER, "KeepEmptyValue(bool)", _HEADER, _keep_empty),
    (_OK, "Response()", ENVOY_RESPONSE, _respond(0, "okResponse")),
    # Envoy's own number for a permission that is denied.
    (_DENIED, "Response()", ENVOY_RESPONSE, _respond(7, "deniedResponse")),
    (ENVOY_RESPONSE, "WithMessage(string)", ENVOY_RESPONSE, _with_message),
    (
        ENVOY_RESPONSE,
        "WithMetadata(dyn)",
        ENVOY_RESPONSE,
        lambda response, metadata: {**response, "dynamicMetadata": metadata},
    ),
)
ENVOY_ANSWERS = Library(
    (f"envoy.Allowed() -> {_OK}", _make(_OK, dict)),
    (f"envoy.Denied(int) -> {_DENIED}", _make(_DENIED, lambda code: {"status": {"code": code}})),
    (f"envoy.Header(string, string) -> {_HEADER}", _make(_HEADER, _header)),
    (f"envoy.QueryParam(string, string) -> {_PARAMETER}", _make(_PARAMETER, _parameter)),
    *[
        (f"{receiver}::{call} -> {result}", _make(result, build))
        for receiver, call, result, build in _METHODS
    ],
)
