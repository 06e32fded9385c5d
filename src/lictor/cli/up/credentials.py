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
AUTHORITY_FILE = "ca.crt"
CERTIFICATE_FILE = "server.crt"
KEY_FILE = "server.key"
_MASTERS = "system:masters"
_FILE = "credentials.json"
_LIFETIME = timedelta(days=365)
# Made anew in time: nobody wants to find out by a laptop that stopped working.
_RENEW_BEFORE = timedelta(days=30)


class Credentials(msgspec.Struct, frozen=True):
    """What server and clients must have in common."""

    authority: str
    certificate: str
    key: str
    # Those of whoever has the kubeconfig.
    admin_certificate: str
    admin_key: str
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
    made = _make(hosts)
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


def _make(hosts: tuple[str, ...]) -> Credentials:
    from lictor.cluster.keys import Algorithm, make_authority, make_client, make_serving

    now = datetime.now(UTC)
    authority = make_authority("lictor", Algorithm.ECDSA, now, _LIFETIME)
    serving = make_serving(authority, hosts, Algorithm.ECDSA, now, _LIFETIME)
    admin = make_client(authority, ADMIN, (_MASTERS,), now, _LIFETIME)
    # The authority's own key is forgotten: nobody else can become anyone.
    return Credentials(
        authority=authority.certificate_pem,
        certificate=serving.certificate_pem,
        key=serving.key_pem,
        admin_certificate=admin.certificate_pem,
        admin_key=admin.key_pem,
        own_token=secrets.token_urlsafe(32),
        hosts=hosts,
        until=now + _LIFETIME,
    )


def write_files(folder: Path, credentials: Credentials) -> None:
    """Certificates and keys as the server reads them."""
    write_private(folder / AUTHORITY_FILE, credentials.authority.encode())
    write_private(folder / CERTIFICATE_FILE, credentials.certificate.encode())
    write_private(folder / KEY_FILE, credentials.key.encode())


def write_admin_kubeconfig(file: Path, url: str, credentials: Credentials) -> None:
    """The kubeconfig of whoever started the cluster: may do everything."""
    user = {
        "client-certificate-data": _encode(credentials.admin_certificate),
        "client-key-data": _encode(credentials.admin_key),
    }
    _write_kubeconfig(file, url, credentials, user)


def write_own_kubeconfig(file: Path, url: str, credentials: Credentials) -> None:
    """The kubeconfig of lictor's own processes."""
    _write_kubeconfig(file, url, credentials, {"token": credentials.own_token})


def _write_kubeconfig(file: Path, url: str, credentials: Credentials, user: JsonObject) -> None:
    from lictor.report.yaml_text import render_yaml

    cluster: JsonObject = {"server": url}
    if url.startswith("https:"):
        cluster["certificate-authority-data"] = _encode(credentials.authority)
    content: JsonObject = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lictor", "cluster": cluster}],
        "users": [{"name": ADMIN, "user": user}],
        "contexts": [{"name": "lictor", "context": {"cluster": "lictor", "user": ADMIN}}],
        "current-context": "lictor",
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_private(file, render_yaml(content).encode())


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()


def write_private(file: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as output:
        output.write(content)
    unfinished.replace(file)
