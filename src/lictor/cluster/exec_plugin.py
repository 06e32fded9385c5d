"""Credential plugins: a program that a kubeconfig names, which prints an ExecCredential."""

import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import msgspec
import orjson

from lictor.errors import UnreachableError
from lictor.raw import Json, JsonObject

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_TIME_LIMIT = 60
_MAX_OUTPUT = 1024 * 1024
# Plugins that ask for a password need a person.
_PATIENT_TIME_LIMIT = 600


class ExecPlugin(msgspec.Struct, frozen=True):
    """How to run the plugin. `where` names the user entry of the kubeconfig for messages."""

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
    """A token, or a certificate and its key, or all of them; `expires` is in Unix seconds."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: float = float("inf")


def run_plugin(plugin: ExecPlugin) -> Credential:
    """Run the plugin once and read what it prints; UnreachableError says what went wrong."""
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
        raise _fail(plugin, f"gave no answer within {error.timeout:.0f} s") from error
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
        # A relative path starts at the kubeconfig, not where we happen to run.
        command = str(Path(plugin.folder, command))
    found = shutil.which(command)
    if found is None:
        hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
        raise _fail(plugin, f"is not an executable program{hint}")
    return found


def _read_credential(plugin: ExecPlugin, output: bytes) -> Credential:
    # What it printed may hold a secret: it is never part of a message.
    if len(output) > _MAX_OUTPUT:
        raise _fail(plugin, "printed more than 1 MiB")
    try:
        answer = orjson.loads(output)
    except orjson.JSONDecodeError as error:
        raise _fail(plugin, "printed something that is not JSON") from error
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise _fail(plugin, "printed something that is no ExecCredential")
    if answer.get("apiVersion") != plugin.api_version:
        raise _fail(
            plugin,
            f"printed apiVersion {answer.get('apiVersion')!r}, the kubeconfig says "
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
        raise _fail(plugin, "gave only one of clientCertificateData and clientKeyData")
    if not token and not certificate:
        raise _fail(plugin, "gave neither a token nor a client certificate")
    return Credential(token, certificate, key, _read_expiry(plugin, status))


def _read_expiry(plugin: ExecPlugin, status: JsonObject) -> float:
    text = status.get("expirationTimestamp")
    if not text:
        return float("inf")
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError as error:
        raise _fail(plugin, f"gave an expirationTimestamp that is no time: {text!r}") from error


def _read_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _fail(plugin: ExecPlugin, what: str) -> UnreachableError:
    return UnreachableError(f"{plugin.where}: credential plugin {plugin.command} {what}")
