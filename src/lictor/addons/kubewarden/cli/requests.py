"""The request and the settings of a policy: files and text into JSON."""

import orjson

from lictor.addons.kubewarden.cli.metadata_files import read_only_document
from lictor.addons.kubewarden.server.reviews import UnreadableBodyError, read_admission
from lictor.cli.inputs.sources import STDIN, read_stdin
from lictor.core.errors import LoadError
from lictor.core.files import read_bytes
from lictor.core.raw import Json, JsonObject

_REVIEW = "AdmissionReview"


def read_settings(path: str, text: str) -> JsonObject:
    """Settings from a file of YAML or JSON, else from JSON text; nothing at all is no settings."""
    if path:
        where, body = path, read_only_document(read_bytes(path), path)
    else:
        where, body = "--settings-json", _parse_json(text.encode() or b"null", "--settings-json")
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise LoadError("settings must be a mapping of names to values", where=where)
    return body


def read_request(path: str) -> Json:
    """The JSON of a file, or of standard input; a review is taken for its request."""
    content = read_stdin().content if path == STDIN else read_bytes(path)
    where = "standard input" if path == STDIN else path
    body = _parse_json(content, where)
    is_review = isinstance(body, dict) and body.get("kind") == _REVIEW and "request" in body
    return body["request"] if is_review else body


def check_request(request: Json, where: str) -> Json:
    """The request with the fields that Kubernetes knows; LoadError where it is none."""
    try:
        return read_admission(orjson.dumps({"request": request}))
    except UnreadableBodyError as error:
        hint = "a policy evaluates an admission request, or a review that contains one"
        raise LoadError(f"{error.why}: {hint}", where=where) from error


def _parse_json(content: bytes, where: str) -> Json:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise LoadError(f"no JSON: {error}", where=where) from error
    except RecursionError as error:
        raise LoadError("the JSON is nested too deeply", where=where) from error
