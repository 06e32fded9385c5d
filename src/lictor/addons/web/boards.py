"""Boards: filters that were saved under names, in a file or in a ConfigMap of the cluster.

    - name: payments
      title: Team payments
      filter: {labels: team=payments, severity: [critical, high]}

A filter has the parameters of the page's addresses, or is such an address's query itself. It only
chooses among what a viewer may see.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from lictor.addons.web.pages.addresses import (
    LIST_PARTS,
    TEXT_PARTS,
    WITHIN,
    find_unreadable,
    read_filter,
)
from lictor.addons.web.records import Board
from lictor.core.errors import LoadError
from lictor.core.files import read_bytes
from lictor.core.load.yaml import Document, iter_documents
from lictor.core.raw import Json
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import CONFIG_MAP

log = logging.getLogger(__name__)

# The entry of the ConfigMap.
ENTRY: Final = "boards.yaml"
_MOST_BOARDS: Final = 200
_MOST_VALUES: Final = 100
_LONGEST_TEXT: Final = 1000
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PARAMETERS: Final = frozenset((*LIST_PARTS, *TEXT_PARTS, WITHIN))
_FIELDS: Final = frozenset(("name", "title", "description", "filter"))


def read_boards(text: str | bytes, source: str) -> tuple[Board, ...]:
    """The boards of a file; LoadError names the position of an invalid one."""
    found: dict[str, Board] = {}
    for document in iter_documents(text, source):
        entries = document.body
        if not isinstance(entries, list):
            raise LoadError("expected a list of boards", where=document.where())
        for number, entry in enumerate(entries):
            board = _read_board(document, number, entry)
            if board.name in found:
                raise _fault(document, f"there are two boards {board.name}", number, "name")
            found[board.name] = board
    if len(found) > _MOST_BOARDS:
        raise LoadError(f"{len(found)} boards; at most {_MOST_BOARDS}", where=source)
    return tuple(found.values())


def _fault(document: Document, message: str, *path: str | int) -> LoadError:
    return LoadError(message, where=document.where(path))


def _read_board(document: Document, number: int, entry: Json) -> Board:
    if not isinstance(entry, dict):
        raise _fault(document, "a board has a name and a filter", number)
    for field in entry:
        if field not in _FIELDS:
            known = ", ".join(sorted(_FIELDS))
            raise _fault(document, f"unknown field {field}; a board has {known}", number, field)
    name, title, description = (
        _read_text(document, number, entry, field) for field in ("name", "title", "description")
    )
    if not _NAME.fullmatch(name):
        message = "name: write lower case letters, digits and hyphens, at most 63"
        raise _fault(document, message, number, "name")
    pairs = list(_list_pairs(document, number, entry.get("filter")))
    if not any(value for _, value in pairs):
        raise _fault(document, "filter: a board without a filter is everything", number)
    wrong = find_unreadable(pairs)
    if wrong:
        raise _fault(document, f"filter: {wrong[0]}", number, "filter")
    return Board(name, read_filter(pairs), title, description)


def _read_text(document: Document, number: int, entry: Mapping[str, Json], field: str) -> str:
    value = entry.get(field, "")
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        message = f"{field}: write a text of at most {_LONGEST_TEXT} characters"
        raise _fault(document, message, number, field)
    return value


def _list_pairs(document: Document, number: int, chosen: Json) -> Iterator[tuple[str, str]]:
    if isinstance(chosen, str):
        pairs = _split_query(chosen)
    elif isinstance(chosen, dict):
        pairs = [(key, each) for key, value in chosen.items() for each in _as_list(value)]
    else:
        raise _fault(document, "filter: write parameters, or the query of an address", number)
    if len(pairs) > _MOST_VALUES:
        raise _fault(document, f"filter: at most {_MOST_VALUES} values", number, "filter")
    for key, value in pairs:
        if key not in _PARAMETERS:
            # Left out, it would show more than was meant.
            known = ", ".join(sorted(_PARAMETERS))
            message = f"filter: no parameter {key}; there are {known}"
            raise _fault(document, message, number, "filter")
        if not isinstance(value, str):
            raise _fault(document, f"filter: {key} takes texts", number, "filter", key)
        yield key, value


def _split_query(text: str) -> list[tuple[str, Json]]:
    try:
        return list(parse_qsl(text.lstrip("?"), max_num_fields=_MOST_VALUES))
    except ValueError:
        return [("", text)] * (_MOST_VALUES + 1)


def _as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


def read_boards_file(path: Path) -> tuple[Board, ...]:
    """The boards of a file given by the user; LoadError if it contains none."""
    return read_boards(read_bytes(str(path)), str(path))


class ClusterBoards:
    """Boards of a ConfigMap, as they are now. `run` keeps them in step until cancelled."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._source = f"ConfigMap {namespace}/{name}, {ENTRY}"
        self._boards: tuple[Board, ...] = ()
        self._cache = Cache(client, CONFIG_MAP, namespace=namespace, fields=f"metadata.name={name}")
        self._cache.listen(self._on_change)

    def list(self) -> tuple[Board, ...]:
        return self._boards

    async def run(self) -> None:
        await self._cache.run()

    def _on_change(self, change: Change) -> None:
        data = change.object.get("data") or {}
        text = data.get(ENTRY) or "" if change.type is not ChangeType.DELETED else ""
        try:
            self._boards = read_boards(text, self._source)
        except LoadError as error:
            # Valid boards remain in use until the file is repaired.
            log.warning("boards unreadable", extra={"why": str(error)[:500]})
