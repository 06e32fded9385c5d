"""Address, credentials and proxy of the API server: from a kubeconfig, or from inside a Pod."""

import os
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from lictor.core.errors import UsageError
from lictor.core.raw import JsonObject
from lictor.kubernetes.credentials import FileSource


def choose_proxy(server: str, environment: Mapping[str, str]) -> str:
    """The proxy's URL, or nothing where the server is reached directly."""
    url = urlsplit(server)
    name = f"{url.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    if not proxy or _is_direct(url.hostname or "", url.port, environment):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_direct(host: str, port: int | None, environment: Mapping[str, str]) -> bool:
    if host == "localhost" or _is_loopback(host):
        return True
    listed = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    entries = [entry.strip().lower() for entry in listed.split(",") if entry.strip()]
    return any(_covers(entry, host.lower(), port) for entry in entries)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(entry: str, host: str, port: int | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _is_within(host, entry)
    name, _, wanted = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
    if wanted and wanted != str(port):
        return False
    name = name.removeprefix("*")
    return host == name.lstrip(".") or host.endswith(f".{name.lstrip('.')}")


def _is_within(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


# The bearer token of now; `renew` asks for a fresh one because the last was refused. An empty text
# means that there is none. It may block (a program is run, a file is read), and threads share it.
TokenSource: TypeAlias = Callable[[bool], str]
# The same for a client certificate and its key, as PEM text.
IdentitySource: TypeAlias = Callable[[bool], tuple[str, str]]

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClusterConfig(msgspec.Struct, frozen=True):
    """What a client needs to know to connect; certificates and keys are PEM text."""

    server: str
    ca: str = ""
    certificate: str = ""
    key: str = ""
    token: TokenSource | None = None
    # Where certificate and key come from when they may change while we run.
    identity: IdentitySource | None = None
    username: str = ""
    password: str = ""
    verify: bool = True
    tls_server_name: str = ""
    namespace: str = "default"
    # Of the kubeconfig that it comes from; empty in a Pod.
    context: str = ""
    # Whom to act as, where a kubeconfig says so.
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    impersonate_uid: str = ""
    impersonate_extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    proxy: str = ""


def load_config(kubeconfig: str = "", context: str = "") -> ClusterConfig:
    """The first of: the file that is named, $KUBECONFIG, the Pod we run in, ~/.kube/config.

    A context is part of a kubeconfig: naming one means that the Pod is not asked.
    """
    from lictor.kubernetes.kubeconfig import read_kubeconfig

    if kubeconfig:
        return read_kubeconfig([Path(kubeconfig).expanduser()], context)
    listed = [Path(text) for text in os.environ.get("KUBECONFIG", "").split(os.pathsep) if text]
    if listed:
        present = [path for path in listed if path.exists()]
        if not present:
            raise UsageError(f"KUBECONFIG: no such file: {', '.join(map(str, listed))}")
        return read_kubeconfig(present, context)
    inside = None if context else find_pod_config()
    if inside is not None:
        return inside
    usual = Path("~/.kube/config").expanduser()
    if not usual.exists():
        raise UsageError(
            "no cluster: give --kubeconfig, set KUBECONFIG, or run inside a Pod "
            f"(there is no {usual})"
        )
    return read_kubeconfig([usual], context)


def find_pod_config(
    folder: Path = SERVICE_ACCOUNT_FOLDER, environment: Mapping[str, str] = os.environ
) -> ClusterConfig | None:
    """The configuration that every Pod is given; None where we do not run in one."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (folder / "token").exists():
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority, namespace = folder / "ca.crt", folder / "namespace"
    return ClusterConfig(
        server=server,
        ca=authority.read_text() if authority.exists() else "",
        token=FileSource(folder / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        proxy=find_proxy(server, environment),
    )


def find_proxy(server: str, environment: Mapping[str, str] = os.environ) -> str:
    """The proxy that the environment names for a server, as kubectl would take it."""

    return choose_proxy(server, environment)


def describe_cluster(config: ClusterConfig) -> JsonObject:
    """What a credential plugin may know of the cluster, in its own words."""
    from base64 import b64encode

    known: JsonObject = {
        "server": config.server,
        "tls-server-name": config.tls_server_name,
        "insecure-skip-tls-verify": not config.verify,
        "certificate-authority-data": b64encode(config.ca.encode()).decode(),
        "proxy-url": config.proxy,
    }
    return {name: value for name, value in known.items() if value}
