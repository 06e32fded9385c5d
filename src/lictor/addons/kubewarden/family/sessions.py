"""Host calls and their answers, recorded and replayed: YAML as in kwctl."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
import yaml

from lictor.addons.kubewarden.family.host_calls import HostAnswers
from lictor.addons.kubewarden.family.host_requests import SESSION_NAMES, GetPluralName, HostRequest
from lictor.core.errors import HostCallError, LoadError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.yaml.build import parse_yaml_text
from lictor.core.lang.yaml.scalars import resolve_plain
from lictor.core.raw import Json

_NAMES: Mapping[type, str] = {made: name for name, made in SESSION_NAMES.items()}
# re: linear - the last part takes all that is left
_REQUEST = re.compile(r"\s*!(\w+)\s*(.*)", re.DOTALL)


class RecordedResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer: `Success` with a payload, or `Error` with a message."""

    type: str
    payload: str | None = None
    message: str | None = None


class RecordedExchange(msgspec.Struct, frozen=True):
    """One request and its answer."""

    type: str
    # YAML inside of YAML, with the name of the request as its tag.
    request: str
    response: RecordedResponse


class RecordingHost:
    """Forwards requests and records the answers. Not for several threads."""

    def __init__(self, inner: HostAnswers) -> None:
        self._inner = inner
        self._exchanges: list[RecordedExchange] = []

    def answer(self, request: HostRequest) -> bytes:
        try:
            answer = self._inner.answer(request)
        except HostCallError as error:
            self._note(request, RecordedResponse("Error", message=str(error)))
            raise
        self._note(request, RecordedResponse("Success", payload=answer.decode()))
        return answer

    def write(self) -> str:
        """The session as a file."""
        listed = msgspec.to_builtins(self._exchanges)
        for each in listed:
            each["request"] = _Block(each["request"])
        return _dump(listed)

    def _note(self, request: HostRequest, response: RecordedResponse) -> None:
        self._exchanges.append(RecordedExchange("Exchange", write_request(request), response))


class ReplayingHost:
    """Replays a session in its order; HostCallError for any other request."""

    def __init__(self, text: str, where: str = "") -> None:
        self._left = [_read_exchange(each, where) for each in _read_session(text, where)]

    def answer(self, request: HostRequest) -> bytes:
        if isinstance(request, GetPluralName) and not self._expects(GetPluralName):
            # Sessions of policies in gatekeeper mode do not have it, and it is no secret.
            return _guess_plural(request)
        if not self._left:
            raise HostCallError("Replay error: the list of recorded responses is empty")
        expected, response = self._left.pop(0)
        if expected != request:
            raise HostCallError(
                f"Replay error: unexpected request. Was expecting {_show(expected)}, "
                f"got {_show(request)} instead"
            )
        if response.type == "Error":
            raise HostCallError(response.message or "")
        return (response.payload or "").encode()

    def list_left(self) -> list[str]:
        """The requests that were not made."""
        return [_show(request) for request, _ in self._left]

    def _expects(self, kind: type[HostRequest]) -> bool:
        return bool(self._left) and isinstance(self._left[0][0], kind)


# --- requests in sessions


def write_request(request: HostRequest) -> str:
    """The request as YAML, with its name as the tag."""
    # All fields, those that are not set too.
    return f"!{_NAMES[type(request)]}\n{_dump(msgspec.to_builtins(request))}"


def _dump(document: Json) -> str:
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NEVER_FOLD
    )
    return text


def _read_session(text: str, where: str) -> list[RecordedExchange]:
    try:
        found = parse_yaml_text(text)
        # An empty file is an empty session.
        return msgspec.convert([] if found is None else found, list[RecordedExchange])
    except (ValueError, msgspec.ValidationError) as error:
        raise LoadError(f"not a session of host calls: {error}", where=where) from error


def _read_exchange(exchange: RecordedExchange, where: str) -> tuple[HostRequest, RecordedResponse]:
    response = exchange.response
    if exchange.type != "Exchange" or response.type not in ("Success", "Error"):
        raise LoadError("an exchange of another type than kwctl writes", where=where)
    return read_recorded_request(exchange.request, where), response


def read_recorded_request(text: str, where: str = "") -> HostRequest:
    """The request that a session names; LoadError where it cannot be read."""
    found = _REQUEST.fullmatch(text)
    kind = SESSION_NAMES.get(found[1]) if found else None
    if found is None or kind is None:
        raise LoadError(f"no request is known as {text[:80]!r}", where=where)
    try:
        return msgspec.convert(parse_yaml_text(found[2]), kind)
    except (ValueError, msgspec.ValidationError) as error:
        raise LoadError(f"request {found[1]}: {error}", where=where) from error


def _guess_plural(request: GetPluralName) -> bytes:
    group, _, version = request.api_version.rpartition("/")
    return orjson.dumps(builtin_names().of_kind(group, version, request.kind).resource)


def _show(request: HostRequest) -> str:
    return write_request(request).replace("\n", " ")[:1000].strip()


# --- YAML as kwctl writes it

_NEVER_FOLD = 2**31 - 1


class _Block(str):
    """Text that is written as a block."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes blocks as blocks, and the same object twice where it stands twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_block(dumper: yaml.SafeDumper, text: _Block) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Words that are numbers or truth values to other readers than PyYAML, such as `1e3`.
    style = None if "\n" in text or isinstance(resolve_plain(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(_Block, _represent_block)
_Dumper.add_representer(str, _represent_text)
