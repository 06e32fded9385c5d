"""Kubernetes' `authorizer…check("get")`, and answers to requests of Envoy and web servers.

A check of the authorizer is built up as a map of what is asked; only `check` asks the authorizer.
"""

from collections.abc import Callable

from lictor.core.errors import FunctionError
from lictor.core.lang.cel.host import AuthorizerCheck, current_host
from lictor.core.lang.cel.library.kubernetes_texts import FORMATS
from lictor.core.lang.cel.types import Overload, function, member
from lictor.core.raw import Json, JsonObject


def _ask_path(asked: JsonObject, path: str) -> JsonObject:
    if not path.strip():
        raise FunctionError("path must not be empty")
    return {**asked, "path": path}


def _ask_resource(asked: JsonObject, resource: str) -> JsonObject:
    if not resource.strip():
        raise FunctionError("resource must not be empty")
    return {**asked, "resource": resource}


def _ask_as(asked: JsonObject, namespace: str, name: str) -> JsonObject:
    if FORMATS["dns1123Subdomain"](name):
        raise FunctionError("Invalid service account name")
    if FORMATS["dns1123Label"](namespace):
        raise FunctionError("Invalid service account namespace")
    return {**asked, "service_account": [namespace, name]}


def _check(asked: JsonObject, verb: str) -> JsonObject:
    account, groups = asked.get("service_account"), asked.get("groups") or ()
    rest = {key: text for key, text in asked.items() if key not in ("service_account", "groups")}
    question = AuthorizerCheck(
        verb,
        service_account=tuple(account) if account else None,
        groups=tuple(groups),
        **rest,
    )
    answer = current_host.get().authorize(question)
    return {"allowed": answer.allowed, "reason": answer.reason, "error": answer.error}


def _asking(field: str) -> Json:
    return lambda asked, value: {**asked, field: value}


def request_resource(asked: JsonObject, caller: JsonObject) -> JsonObject:
    """The value of `authorizer.requestResource`: a check of what the request itself is about.

    `asked` has group, resource, subresource, namespace and name; `caller` user and groups.
    """
    return {"kubernetes.authorization.ResourceCheck": {**caller, **asked}}


def authorizer(caller: JsonObject) -> JsonObject:
    """The value of `authorizer`; the caller has `user` and `groups`, or is not known."""
    return {"kubernetes.authorization.Authorizer": caller}


AUTHORIZER_OVERLOADS = (
    member("path", "Authorizer, string -> PathCheck", _ask_path),
    member("group", "Authorizer, string -> GroupCheck", _asking("group")),
    member("serviceAccount", "Authorizer, string, string -> Authorizer", _ask_as),
    member("resource", "GroupCheck, string -> ResourceCheck", _ask_resource),
    member("subresource", "ResourceCheck, string -> ResourceCheck", _asking("subresource")),
    member("namespace", "ResourceCheck, string -> ResourceCheck", _asking("namespace")),
    member("name", "ResourceCheck, string -> ResourceCheck", _asking("name")),
    member(
        "fieldSelector",
        "ResourceCheck, string -> ResourceCheck",
        _asking("field_selector"),
    ),
    member(
        "labelSelector",
        "ResourceCheck, string -> ResourceCheck",
        _asking("label_selector"),
    ),
    member("check", "PathCheck, string -> Decision", _check),
    member("check", "ResourceCheck, string -> Decision", _check),
    member("allowed", "Decision -> bool", lambda decision: decision["allowed"]),
    member("reason", "Decision -> string", lambda decision: decision["reason"]),
    member("errored", "Decision -> bool", lambda decision: bool(decision["error"])),
    member("error", "Decision -> string", lambda decision: decision["error"]),
)


ENVOY_RESPONSE = "envoy.service.auth.v3.CheckResponse"
HTTP_RESPONSE = "http.CheckResponse"

_HTTP_TEXTS = ("method", "host", "protocol", "scheme", "path", "fragment")
_ENVOY_TEXTS = (
    "id", "method", "path", "host", "scheme", "query", "fragment", "protocol", "body",
)  # fmt: skip


def complete_envoy_request(payload: Json) -> JsonObject:
    """A CheckRequest with the fields that it leaves out; they read as empty, as in any protobuf."""
    attributes = _object(_object(payload).get("attributes"))
    request = _object(attributes.get("request"))
    web = _object(request.get("http"))
    texts = dict.fromkeys(_ENVOY_TEXTS, "")
    whole = {"headers": {}, "size": 0, **texts, **_snake(web)}
    return {
        **_object(payload),
        "attributes": {
            "source": {},
            "destination": {},
            "context_extensions": {},
            "metadata_context": {},
            **_snake(attributes),
            "request": {**_snake(request), "http": whole},
        },
    }


def complete_http_request(payload: Json) -> JsonObject:
    """A request to a web server with the fields that it leaves out."""
    attributes = _object(_object(payload).get("attributes"))
    texts = dict.fromkeys(_HTTP_TEXTS, "")
    empty = {"header": {}, "query": {}, "contentLength": 0, "body": ""}
    return {**_object(payload), "attributes": {**empty, **texts, **attributes}}


def read_answer(answer: Json) -> JsonObject | None:
    """What a policy answered, without the name of its type; None where it has no opinion."""
    if not isinstance(answer, dict):
        return None
    return _object(answer.get(ENVOY_RESPONSE) or answer.get(HTTP_RESPONSE))


def is_allowed(answer: JsonObject) -> bool:
    """Whether an answer that was read lets the request pass."""
    if "status" in answer:
        return bool(_object(answer["status"]).get("code", 0) == 0)
    return "ok" in answer


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _snake(fields: JsonObject) -> JsonObject:
    """Names of fields as protobuf has them; JSON may have either form."""
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name): value
        for name, value in fields.items()
    }


def _get_values(attributes: Json, field: str, key: str) -> list[str]:
    values = attributes.get(field) if isinstance(attributes, dict) else None
    if not isinstance(values, dict):
        raise FunctionError(f"no such overload: a request without {field}")
    found = values.get(key) or []
    return [str(value) for value in found] if isinstance(found, list) else [str(found)]


def _get_header(attributes: Json, name: str) -> list[str]:
    # As Go writes the names of headers: Content-Type.
    canonical = "-".join(part.capitalize() for part in name.split("-"))
    return _get_values(attributes, "header", canonical)


WEB_REQUEST_OVERLOADS = (
    function("http.Allowed", "-> HttpOk", dict),
    function("http.Denied", "string -> HttpDenied", lambda reason: {"reason": reason}),
    member("Header", "dyn, string -> list<string>", _get_header),
    member("QueryParam", "dyn, string -> list<string>", lambda a, k: _get_values(a, "query", k)),
    member("Response", "HttpOk -> HttpResponse", lambda ok: {"ok": ok}),
    member("Response", "HttpDenied -> HttpResponse", lambda denied: {"denied": denied}),
)


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


ENVOY_OVERLOADS = (
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
