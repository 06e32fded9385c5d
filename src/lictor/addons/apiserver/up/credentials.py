"""Keys and tokens of one embedded cluster: made once, kept where its objects are."""

import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from lictor.addons.apiserver.up.data_files import tighten, write_private
from lictor.core.errors import DataFileError

# Who the holder of the kubeconfig is to the API server.
ADMIN = "kubernetes-admin"
AUTHORITY_FILE = "ca.crt"
CERTIFICATE_FILE = "server.crt"
KEY_FILE = "server.key"
_MASTERS = "system:masters"
CREDENTIALS_FILE = "credentials.json"
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
    file = folder / CREDENTIALS_FILE
    known = _read(file)
    if known is not None and known.hosts == hosts and _is_fresh(known):
        return known
    made = _make(hosts)
    write_private(file, msgspec.json.encode(made))
    return made


def _read(file: Path) -> Credentials | None:
    try:
        known = msgspec.json.decode(file.read_bytes(), type=Credentials)
        tighten(file)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise describe_damage(file, error) from error
    return known


def describe_damage(file: Path, why: object) -> DataFileError:
    """What to do where keys cannot be used."""
    return DataFileError(
        f"{file}: the keys of the cluster cannot be read: {why}. Restore the file from a copy, or "
        "remove it: then new keys are made, and older kubeconfigs no longer work"
    )


def _is_fresh(known: Credentials) -> bool:
    return datetime.now(UTC) < known.until - _RENEW_BEFORE


def _make(hosts: tuple[str, ...]) -> Credentials:
    from lictor.http.keys import Algorithm, make_authority, make_client, make_serving

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
