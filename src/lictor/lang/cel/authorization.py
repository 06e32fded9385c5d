"""Requests of Envoy and of web servers as their policies see them, and what their answers mean."""

from lictor.raw import Json, JsonObject

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
