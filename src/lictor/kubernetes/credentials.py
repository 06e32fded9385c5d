"""Tokens and client certificates that change at run time: from files and plugins."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
import orjson

from lictor.core.errors import UnreachableError
from lictor.core.raw import Json, JsonObject

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_TIME_LIMIT = 60
_MAX_OUTPUT = 1024 * 1024
# Plugins that prompt for a password need a terminal.
_PATIENT_TIME_LIMIT = 600


class ExecPlugin(msgspec.Struct, frozen=True):
    """How to run the plugin. `where` is the kubeconfig's user entry, for messages."""

    command: str
    api_version: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    cluster: JsonObject | None = None
    folder: str = ""
    where: str = ""


class Credential(msgspec.Struct, frozen=True):
    """A token, a certificate with its key, or both; `expires` is in Unix seconds."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: float = float("inf")


def run_plugin(plugin: ExecPlugin) -> Credential:
    """Run the plugin and parse its output; raises UnreachableError on failure."""
    interactive = _may_ask(plugin)
    spec: JsonObject = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    try:
        done = subprocess.run(  # noqa: S603  (the kubeconfig's owner chose this program)
            [_find_command(plugin), *plugin.arguments],
            env={
                **os.environ,
                **dict(plugin.environment),
                "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode(),
            },
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            timeout=_PATIENT_TIME_LIMIT if interactive else _TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _fail(plugin, f"did not answer within {error.timeout:.0f} s") from error
    except OSError as error:
        raise _fail(plugin, str(error)) from error
    if done.returncode != 0:
        said = (done.stderr or b"").decode(errors="replace").strip()[-500:]
        raise _fail(plugin, f"ended with code {done.returncode}{f': {said}' if said else ''}")
    return _read_credential(plugin, done.stdout)


def _may_ask(plugin: ExecPlugin) -> bool:
    if plugin.interactive_mode == "Never":
        return False
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not terminal:
        raise _fail(plugin, "needs standard input to be a terminal (interactiveMode: Always)")
    return terminal


def _find_command(plugin: ExecPlugin) -> str:
    command = plugin.command
    if os.sep in command:
        # A relative path starts at the kubeconfig, not at the working directory.
        command = str(Path(plugin.folder, command))
    found = shutil.which(command)
    if found is None:
        hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
        raise _fail(plugin, f"is not an executable program{hint}")
    return found


def _read_credential(plugin: ExecPlugin, output: bytes) -> Credential:
    # Its output may contain a secret: it is never part of a message.
    if len(output) > _MAX_OUTPUT:
        raise _fail(plugin, "printed more than 1 MiB")
    try:
        answer = orjson.loads(output)
    except orjson.JSONDecodeError as error:
        raise _fail(plugin, "printed something that is not JSON") from error
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise _fail(plugin, "printed something that is not an ExecCredential")
    if answer.get("apiVersion") != plugin.api_version:
        raise _fail(
            plugin,
            f"printed apiVersion {answer.get('apiVersion')!r}, the kubeconfig has "
            f"{plugin.api_version!r}",
        )
    status = answer.get("status")
    if not isinstance(status, dict):
        raise _fail(plugin, "printed an ExecCredential without status")
    return _take_credential(plugin, status)


def _take_credential(plugin: ExecPlugin, status: JsonObject) -> Credential:
    names = ("token", "clientCertificateData", "clientKeyData")
    token, certificate, key = (_read_text(status.get(name)) for name in names)
    if bool(certificate) != bool(key):
        raise _fail(plugin, "returned only one of clientCertificateData and clientKeyData")
    if not token and not certificate:
        raise _fail(plugin, "returned neither a token nor a client certificate")
    return Credential(token, certificate, key, _read_expiry(plugin, status))


def _read_expiry(plugin: ExecPlugin, status: JsonObject) -> float:
    text = status.get("expirationTimestamp")
    if not text:
        return float("inf")
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError as error:
        raise _fail(plugin, f"returned an invalid expirationTimestamp: {text!r}") from error


def _read_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _fail(plugin: ExecPlugin, what: str) -> UnreachableError:
    return UnreachableError(f"{plugin.where}: credential plugin {plugin.command} {what}")


# How long a file is cached without checking it.
_GLANCE = 5.0
# A credential is renewed this long before it expires, so that it is valid on arrival.
_LEEWAY = 60.0


class FileSource:
    """The token in a file, read again when the file changes (a Pod's expires hourly)."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._seen: tuple[int, int, int] | None = None
        self._looked = float("-inf")

    def __call__(self, renew: bool) -> str:  # noqa: FBT001  (the contract of a TokenSource)
        if renew or self._clock() - self._looked > _GLANCE:
            self._look()
        return self._token

    def _look(self) -> None:
        self._looked = self._clock()
        try:
            status = os.stat(self._path)
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                self._token = self._path.read_text().strip()
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            if not self._token:
                raise UnreachableError(f"cannot read the token in {self._path}: {error}") from error


class FilePair:
    """A client certificate and its key in files, read again when one of them changes."""

    def __init__(self, certificate: FileSource, key: FileSource) -> None:
        self._certificate = certificate
        self._key = key

    def __call__(self, renew: bool) -> tuple[str, str]:  # noqa: FBT001
        return self._certificate(renew), self._key(renew)


class PluginSource:
    """The credential of a plugin, cached until it expires or is refused."""

    def __init__(
        self,
        plugin: ExecPlugin,
        run: Callable[[ExecPlugin], Credential] = run_plugin,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plugin = plugin
        self._run = run
        self._clock = clock
        self._held: Credential | None = None
        self._asked = float("-inf")
        # Many requests may come at once; the plugin (perhaps a browser window) runs only once.
        self._lock = threading.Lock()

    def token(self, renew: bool) -> str:  # noqa: FBT001
        return self._credential(renew=renew).token

    def identity(self, renew: bool) -> tuple[str, str]:  # noqa: FBT001
        held = self._credential(renew=renew)
        return held.certificate, held.key

    def _credential(self, *, renew: bool) -> Credential:
        with self._lock:
            held = self._held
            now = self._clock()
            # Requests that were refused together need one new credential, not one each.
            is_refused = renew and now - self._asked > 1.0
            if held is None or is_refused or held.expires - now < _LEEWAY:
                held = self._held = self._run(self._plugin)
                self._asked = self._clock()
            return held
