"""The kubeconfigs of an embedded cluster: written, known again, and removed when it is gone."""

import contextlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from lictor.addons.apiserver.up.credentials import ADMIN, Credentials
from lictor.addons.apiserver.up.data_files import hold, write_private
from lictor.core.errors import LictorError, UsageError
from lictor.core.raw import Json, JsonObject

# Names that are no other cluster's: people merge kubeconfigs.
CLUSTER = "lictor"
CONTEXT = "lictor"
USER = "lictor-admin"
# Older releases called the user by its name in the cluster.
_USERS = frozenset((USER, ADMIN))


def write_admin_kubeconfig(file: Path, url: str, credentials: Credentials) -> None:
    """The kubeconfig of whoever started the cluster: may do everything."""
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
    """Keep the file for one cluster; refuse to write over anything but a kubeconfig of ours."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    advice = "end it, or write another kubeconfig with --kubeconfig"
    with hold(file.with_name(f".{file.name}.lock"), f"the kubeconfig {file}", advice):
        _check(file)
        yield


def _check(file: Path) -> None:
    if file.is_symlink():
        raise UsageError(f"{file} is a symbolic link: name the file itself with --kubeconfig")
    if file.exists() and not _is_ours(_read(file)):
        raise UsageError(
            f"{file} was not written by lictor up, and would be replaced: name another file with "
            "--kubeconfig"
        )


def remove_kubeconfig(file: Path, credentials: Credentials) -> None:
    """Remove the kubeconfig of a cluster that is gone; that of another stays."""
    if file.is_symlink() or not file.is_file():
        return
    content = _read(file)
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


def _read(file: Path) -> Json:
    """The document in a file; None in an empty one, and a text where it cannot be read."""
    from lictor.core.load.yaml import iter_documents

    try:
        documents = [each.body for each in iter_documents(file.read_bytes(), str(file))]
    except LictorError as error:
        return str(error)
    return documents[0] if len(documents) == 1 else documents or None


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()
