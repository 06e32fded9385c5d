"""The outer wrappings of certificates: PEM blocks, and the attributes of a request in DER."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator

from lictor.core.raw import Json

_BEGIN = re.compile(r"-----BEGIN (.*)-----")
_HEADER = re.compile(r"^[^\n:]+:[^\n]*\n", re.MULTILINE)
_SEQUENCE, _SET, _OCTETS, _IDENTIFIER, _BOOLEAN, _ATTRIBUTES = 0x30, 0x31, 0x04, 0x06, 0x01, 0xA0


def read_pem(text: str) -> tuple[str, bytes]:
    """Find the first PEM block; ValueError where there is none."""
    for label, lines in _read_blocks(text):
        body = "".join(_HEADER.sub("", lines).split())
        try:
            return label, b64decode(body, validate=True)
        except ValueError:
            continue
    raise ValueError("failed to decode PEM block")


def list_pem_blocks(text: str) -> list[tuple[str, bytes]]:
    """All blocks of a text, with their labels; ValueError for one that is not base64."""
    blocks = [
        (label, "".join(_HEADER.sub("", lines).split())) for label, lines in _read_blocks(text)
    ]
    return [(label, b64decode(body, validate=True)) for label, body in blocks]


def _read_blocks(text: str) -> Iterator[tuple[str, str]]:
    """The labels and lines of blocks; one that begins before another has ended takes its place."""
    label, lines = "", list[str]()
    for line in text.split("\n"):
        marker = line.rstrip(" \t\r")
        if begin := _BEGIN.fullmatch(marker):
            label, lines = begin[1], []
        elif marker == f"-----END {label}-----" and label:
            yield label, "".join(lines)
            label = ""
        else:
            lines.append(f"{line}\n")


def read_request_attributes(request: bytes) -> Json:
    """List the attributes of a request that are sets of typed values: the requested extensions."""
    try:
        return _read_attributes(request) or None
    except (IndexError, ValueError):
        return None


def _read_attributes(request: bytes) -> list[Json]:
    (_, body), *_ = _read_elements(request)
    attributes = next((data for tag, data in _read_elements(body) if tag == _ATTRIBUTES), b"")
    described = (_read_attribute(data) for _, data in _read_elements(attributes))
    return [attribute for attribute in described if attribute is not None]


def _read_attribute(data: bytes) -> Json:
    (_, identifier), (tag, values) = _read_elements(data)
    outer = list(_read_elements(values)) if tag == _SET else []
    if not outer or any(kind != _SEQUENCE for kind, _ in outer):
        return None
    lists = [[_read_pair(pair) for kind, pair in _read_elements(v)] for _, v in outer]
    if any(pair is None for pairs in lists for pair in pairs):
        return None
    return {"Type": _read_identifier(identifier), "Value": lists}


def _read_pair(data: bytes) -> Json:
    """Read an identifier and its value; a mark of being critical in between makes it no pair."""
    elements = list(_read_elements(data))
    if len(elements) != 2 or elements[0][0] != _IDENTIFIER or elements[1][0] != _OCTETS:
        return None
    value = b64encode(elements[1][1]).decode()
    return {"Type": _read_identifier(elements[0][1]), "Value": value}


def _read_elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        yield tag, data[position : position + length]
        position += length


def _read_identifier(data: bytes) -> list[int]:
    numbers, current = [], 0
    for octet in data:
        current = current << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(current)
            current = 0
    first = min(numbers[0] // 40, 2)
    return [first, numbers[0] - 40 * first, *numbers[1:]]
