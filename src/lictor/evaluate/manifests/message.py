"""The signed text in an annotation: packed YAML into the manifests that it holds."""

import re
from base64 import b64decode
from collections.abc import Iterator

from lictor.errors import EvaluationError
from lictor.evaluate.manifests.archive import read_archive, unpack_gzip
from lictor.lang.yaml.build import parse_yaml_text
from lictor.raw import Json, JsonObject

_FOREIGN = re.compile(r"[^A-Za-z0-9+/=]")
_PADDED = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_SUFFIXES = (".yaml", ".yml")
_SEPARATOR = b"---"


def decode_base64(text: str) -> bytes:
    """Go's base64, which lets line ends be; ValueError for what is none."""
    plain = text.replace("\n", "").replace("\r", "")
    if len(plain) % 4 or not _PADDED.fullmatch(plain):
        foreign = _FOREIGN.search(plain)
        at = foreign.start() if foreign else len(plain) // 4 * 4
        raise ValueError(f"illegal base64 data at input byte {at}")
    return b64decode(plain)


def decode_message(text: str) -> bytes:
    """The bytes that were signed: what the annotation holds, unpacked once where it is packed."""
    try:
        packed = decode_base64(text)
    except ValueError as error:
        raise EvaluationError(
            f"failed to decode base64 message in the annotation: {error}"
        ) from None
    try:
        return unpack_gzip(packed)
    except ValueError:
        return packed


def read_manifests(message: bytes) -> list[JsonObject]:
    """The manifests in a signed text, which is YAML or a compressed archive of YAML files."""
    documents = list(_read_documents(message))
    if not documents:
        try:
            documents = list(_read_documents(_join_files(message)))
        except ValueError as error:
            raise EvaluationError(
                f"failed to read YAMLs in the gzipped message: {error}"
            ) from error
    return [body for body in documents if _is_manifest(body)]


def _is_manifest(body: Json) -> bool:
    return isinstance(body, dict) and isinstance(body.get("kind"), str) and bool(body["kind"])


def _join_files(message: bytes) -> bytes:
    step = "gzip.NewReader()"
    try:
        unpacked = unpack_gzip(message)
        step = "tarReader.Next()"
        files = read_archive(unpacked)
    except ValueError as error:
        raise ValueError(f"{step} failed while decompressing tar gz: {error}") from error
    ordered = sorted((name.split("/"), data) for name, data in files.items())
    found = [data for path, data in ordered if path[-1].endswith(_SUFFIXES)]
    return b"\n---\n".join(data for data in found if _begins_with_manifest(data))


def _begins_with_manifest(data: bytes) -> bool:
    return _is_manifest(next(_read_documents(data), None))


def _read_documents(data: bytes) -> Iterator[Json]:
    """The documents before the first that is broken; what comes after that counts for nothing."""
    for part in _split(data):
        try:
            yield parse_yaml_text(part.decode())
        except ValueError:
            return


def _split(data: bytes) -> Iterator[bytes]:
    lines: list[bytes] = []
    for line in data.split(b"\n"):
        if line.startswith(_SEPARATOR):
            rest = line[len(_SEPARATOR) :].strip()
            if rest and not rest.startswith(b"#"):
                return
            if any(lines):
                yield b"\n".join(lines)
            lines = []
        else:
            lines.append(line)
    if any(lines):
        yield b"\n".join(lines)
