"""Keys, kubeconfigs and locks of one embedded cluster: files that are private to their owner."""

import contextlib
import fcntl
import os
import secrets
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from lictor.core.errors import DataFileError, LictorError, UsageError
from lictor.core.raw import Json, JsonObject

# Who the holder of the kubeconfig is to the API server.
ADMIN = "kubernetes-admin"
AUTHORITY_FILE = "ca.crt"
CERTIFICATE_FILE = "server.crt"
KEY_FILE = "server.key"
_MASTERS = "system:masters"
CREDENTIALS_FILE = "credentials.json"
_LIFETIME = timedelta(days=365)
# Renewed before they expire.
_RENEW_BEFORE = timedelta(days=30)


class Credentials(msgspec.Struct, frozen=True):
    """What server and clients must have in common."""

    authority: str
    certificate: str
    key: str
    # Those in the kubeconfig of the administrator.
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
    # The key of the authority is not stored: no other certificate can be issued.
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


_OTHERS = 0o077


def write_private(file: Path, content: bytes) -> None:
    """Write a file under a new name, then rename it.

    Mode and owner of an existing file are not inherited, and a link is not followed.
    """
    # Created with mode 0600 and O_EXCL: no other process can have prepared it.
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "wb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def tighten(file: Path) -> None:
    """Take away what others may do with a file that is there."""
    mode = file.stat().st_mode
    if mode & _OTHERS:
        file.chmod(mode & ~_OTHERS & 0o7777)


# The children of a killed process end soon after it.
_LOCK_TIMEOUT = 10.0
_TICK = 0.1
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def hold(lock: Path, what: str, advice: str) -> Iterator[None]:
    """Keep others out while the block runs; UsageError where someone else is in.

    Processes that are forked meanwhile hold it too: it is free when the last of them has ended.
    """
    handle = _acquire(lock, what, advice)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _acquire(lock: Path, what: str, advice: str) -> int:
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        handle = os.open(lock, _FLAGS, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(handle)
            os.close(handle)
            if _is_alive(holder) or time.monotonic() > deadline:
                raise UsageError(f"{what} is used by {_describe(holder)}: {advice}") from None
            time.sleep(_TICK)
        else:
            if _is_there(lock, handle):
                return handle
            # The previous holder has removed the file since it was opened.
            os.close(handle)


def _read_holder(handle: int) -> int:
    text = os.pread(handle, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def _is_alive(pid: int) -> bool:
    return pid > 0 and Path(f"/proc/{pid}").exists()


def _is_there(lock: Path, handle: int) -> bool:
    try:
        return lock.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def _describe(pid: int) -> str:
    if not pid:
        return "another lictor up"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        # It may run in another container.
        return f"another lictor up (process {pid})"
    return f"process {pid} ({' '.join(word.decode(errors='replace') for word in words)})"


# Names that are no other cluster's: people merge kubeconfigs.
CLUSTER = "lictor"
CONTEXT = "lictor"
USER = "lictor-admin"
# Older releases called the user by its name in the cluster.
_USERS = frozenset((USER, ADMIN))


def write_admin_kubeconfig(file: Path, url: str, credentials: Credentials) -> None:
    """The kubeconfig of the administrator, with all rights."""
    user = {
        "client-certificate-data": _encode(credentials.admin_certificate),
        "client-key-data": _encode(credentials.admin_key),
    }
    _write(file, url, credentials, user)


def write_own_kubeconfig(file: Path, url: str, credentials: Credentials) -> None:
    """The kubeconfig of lictor's own processes."""
    _write(file, url, credentials, {"token": credentials.own_token})


def _write(file: Path, url: str, credentials: Credentials, user: JsonObject) -> None:
    from lictor.core.report.yaml_text import render_yaml

    cluster: JsonObject = {"server": url}
    if url.startswith("https:"):
        cluster["certificate-authority-data"] = _encode(credentials.authority)
    content: JsonObject = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": cluster}],
        "users": [{"name": USER, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CLUSTER, "user": USER}}],
        "current-context": CONTEXT,
    }
    write_private(file, render_yaml(content).encode())


@contextlib.contextmanager
def hold_kubeconfig(file: Path) -> Iterator[None]:
    """Lock the file for one cluster; refuse to replace files that lictor up did not write."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    advice = "end it, or write another kubeconfig with --kubeconfig"
    with hold(file.with_name(f".{file.name}.lock"), f"the kubeconfig {file}", advice):
        _check(file)
        yield


def _check(file: Path) -> None:
    if file.is_symlink():
        raise UsageError(f"{file} is a symbolic link: name the file itself with --kubeconfig")
    if file.exists() and not _is_ours(_read_kubeconfig(file)):
        raise UsageError(
            f"{file} was not written by lictor up, and would be replaced: name another file with "
            "--kubeconfig"
        )


def remove_kubeconfig(file: Path, credentials: Credentials) -> None:
    """Remove the kubeconfig of a cluster that is gone; that of another stays."""
    if file.is_symlink() or not file.is_file():
        return
    content = _read_kubeconfig(file)
    authorities = [
        each["cluster"].get("certificate-authority-data")
        for each in _list(content, "clusters")
        if isinstance(each.get("cluster"), dict)
    ]
    if _is_ours(content) and authorities == [_encode(credentials.authority)]:
        file.unlink(missing_ok=True)


def _is_ours(content: Json) -> bool:
    """Is it a file that we wrote, or an empty one? kubectl may have changed it since."""
    if content is None:
        return True
    if not isinstance(content, dict) or content.get("kind") != "Config":
        return False
    clusters = [each.get("name") for each in _list(content, "clusters")]
    users = [each.get("name") for each in _list(content, "users")]
    return clusters == [CLUSTER] and len(users) == 1 and users[0] in _USERS


def _list(content: Json, field: str) -> list[JsonObject]:
    found = content.get(field) if isinstance(content, dict) else None
    return [each for each in found or () if isinstance(each, dict)]


def _read_kubeconfig(file: Path) -> Json:
    """The document in a file; None in an empty one, and a text where it cannot be read."""
    from lictor.core.load.yaml import iter_documents

    try:
        documents = [each.body for each in iter_documents(file.read_bytes(), str(file))]
    except LictorError as error:
        return str(error)
    return documents[0] if len(documents) == 1 else documents or None


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()
