"""Keys, tokens and kubeconfigs of one embedded cluster: made once, kept where its objects are."""

import os
import secrets
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from lictor.errors import UsageError
from lictor.raw import JsonObject

ADMIN = "kubernetes-admin"
_FILE = "credentials.json"
_LIFETIME = timedelta(days=365)
# Made anew in time: nobody wants to find out by a laptop that stopped working.
_RENEW_BEFORE = timedelta(days=30)


class Credentials(msgspec.Struct, frozen=True):
    """What server and clients must have in common."""

    authority: str
    certificate: str
    key: str
    admin_token: str
    # That of lictor's own processes.
    own_token: str
    hosts: tuple[str, ...]
    until: datetime

    def __repr__(self) -> str:
        return "Credentials(...)"


def keep_credentials(folder: Path, hosts: tuple[str, ...]) -> Credentials:
    """Those of the folder; new ones where there are none, or where they fit no longer."""
    file = folder / _FILE
    known = _read(file)
    if known is not None and known.hosts == hosts and _is_fresh(known):
        return known
    made = _make(hosts, known)
    write_private(file, msgspec.json.encode(made))
    return made


def _read(file: Path) -> Credentials | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Credentials)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise UsageError(f"{file}: {error}") from error


def _is_fresh(known: Credentials) -> bool:
    return datetime.now(UTC) < known.until - _RENEW_BEFORE


def _make(hosts: tuple[str, ...], known: Credentials | None) -> Credentials:
    from lictor.cluster.keys import Algorithm, make_authority, make_serving

    now = datetime.now(UTC)
    authority = make_authority("lictor", Algorithm.ECDSA, now, _LIFETIME)
    serving = make_serving(authority, hosts, Algorithm.ECDSA, now, _LIFETIME)
    return Credentials(
        authority=authority.certificate_pem,
        certificate=serving.certificate_pem,
        key=serving.key_pem,
        admin_token=known.admin_token if known else secrets.token_urlsafe(32),
        own_token=known.own_token if known else secrets.token_urlsafe(32),
        hosts=hosts,
        until=now + _LIFETIME,
    )


def write_kubeconfig(file: Path, url: str, credentials: Credentials, token: str) -> None:
    """A kubeconfig that has everything in it; readable by its owner only."""
    from lictor.report.yaml_text import render_yaml

    authority = b64encode(credentials.authority.encode()).decode()
    content: JsonObject = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "lictor", "cluster": {"server": url, "certificate-authority-data": authority}}
        ],
        "users": [{"name": ADMIN, "user": {"token": token}}],
        "contexts": [{"name": "lictor", "context": {"cluster": "lictor", "user": ADMIN}}],
        "current-context": "lictor",
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_private(file, render_yaml(content).encode())


def write_private(file: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as output:
        output.write(content)
    unfinished.replace(file)
