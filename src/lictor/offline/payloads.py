"""Payloads: JSON that is no Kubernetes resource, read from files and judged as it is."""

from collections.abc import Iterable, Iterator

import msgspec

from lictor.errors import LoadError
from lictor.load.yaml import iter_documents
from lictor.model.request import GroupVersionKind, Request
from lictor.offline.sources import Text, read_any
from lictor.raw import JsonObject

_NO_KIND = GroupVersionKind("", "", "")


class Payload(msgspec.Struct, frozen=True):
    """One document of a file, under the path by which the user calls it."""

    path: str
    body: JsonObject

    def make_request(self, mode: str) -> Request:
        """The payload for policies of a mode; its kind is never what it says of itself."""
        if mode == "JSON":
            return Request(kind=_NO_KIND, object=self.body)
        from lictor.compile.cel.authorizing import REQUEST_KINDS

        return Request(kind=REQUEST_KINDS[mode], object=self.body)


def load_payloads(paths: Iterable[str]) -> Iterator[Payload]:
    """The payloads of files, one for each document."""
    for path in paths:
        yield from parse_payloads(read_any(path))


def parse_payloads(text: Text) -> Iterator[Payload]:
    """The payloads of one file."""
    found = False
    for document in iter_documents(text.content, text.path):
        found = True
        if not isinstance(document.body, dict):
            raise LoadError("a payload is an object", where=f"{text.path}:{document.line}")
        yield Payload(text.path, document.body)
    if not found:
        raise LoadError("there is no payload in this file", where=text.path)
