"""`sources.yml`: which hosts may do without TLS, and whose certificates others may show."""

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from lictor.core.errors import LoadError, UsageError
from lictor.core.files import read_bytes
from lictor.core.load.yaml import iter_documents
from lictor.core.raw import Json
from lictor.core.records import convert_record

_PEM = b"-----BEGIN"


class ModuleSources(msgspec.Struct, frozen=True):
    """How hosts are spoken to from which modules come; hosts are written with their port."""

    # Tried with HTTPS, with HTTPS without verification, and with plain HTTP.
    insecure: frozenset[str] = frozenset()
    # The authorities of a host in PEM, besides those of the system.
    authorities: tuple[tuple[str, str], ...] = ()

    def is_insecure(self, host: str) -> bool:
        return host.removesuffix(":443") in self.insecure


class _Authority(msgspec.Struct, frozen=True):
    type: str
    path: str = ""
    data: str = ""


class _File(msgspec.Struct, frozen=True):
    """Unknown fields are passed over, as Kubewarden does."""

    insecure_sources: list[str] | None = None
    source_authorities: dict[str, list[_Authority]] | None = None


def read_sources(path: str) -> ModuleSources:
    """Read the file; LoadError where it cannot be read, UsageError where it makes no sense."""
    body = read_single_document(read_bytes(path), path)
    try:
        file = convert_record({} if body is None else body, _File)
    except msgspec.ValidationError as error:
        raise LoadError(f"no sources: {error}", where=path) from error
    folder = Path(path).parent
    return ModuleSources(
        insecure=frozenset(host.removesuffix(":443") for host in file.insecure_sources or ()),
        authorities=tuple(
            (host.removesuffix(":443"), _read_authority(entry, folder, f"{path}: {host}"))
            for host, entries in (file.source_authorities or {}).items()
            for entry in entries
        ),
    )


def build_module_sources(
    insecure: Iterable[str], authorities: Mapping[str, Iterable[str]], where: str
) -> ModuleSources:
    """The same without a file; UsageError where a certificate is none."""
    return ModuleSources(
        insecure=frozenset(host.removesuffix(":443") for host in insecure),
        authorities=tuple(
            (host.removesuffix(":443"), _check_authority(each.encode(), f"{where}: {host}"))
            for host, certificates in authorities.items()
            for each in certificates
        ),
    )


def read_single_document(content: bytes, path: str) -> Json:
    """The only document of a YAML file; None where it is empty."""
    documents = list(iter_documents(content, path))
    if len(documents) > 1:
        raise LoadError("more than one document", where=path)
    return documents[0].body if documents else None


def _read_authority(entry: _Authority, folder: Path, where: str) -> str:
    match entry.type:
        case "Path":
            # Beside the file, or where the program was started, as Kubewarden takes it.
            beside = folder / entry.path
            content = read_bytes(entry.path if Path(entry.path).exists() else str(beside))
        case "Data":
            content = entry.data.encode()
        case _:
            raise LoadError(f"type {entry.type!r} is neither Path nor Data", where=where)
    return _check_authority(content, where)


def _check_authority(content: bytes, where: str) -> str:
    try:
        text = content.decode() if _PEM in content else ssl.DER_cert_to_PEM_cert(content)
        ssl.create_default_context().load_verify_locations(cadata=text)
    except (ValueError, ssl.SSLError) as error:
        raise UsageError(f"{where}: no certificate of an authority: {error}") from error
    return text
