"""Address, credentials and proxy of the API server: from a kubeconfig, or inside a Pod."""

import os
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from lictor.core.raw import JsonObject
from lictor.kubernetes.credentials import FileSource


def choose_proxy(server: str, environment: Mapping[str, str]) -> str:
    """The proxy's URL; empty for a direct connection."""
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


# The current bearer token; `renew` requests a new one because the last was refused. Empty if there
# is none. It may block (runs a program, reads a file), and must be thread-safe.
TokenSource: TypeAlias = Callable[[bool], str]
# The same for a client certificate and its key, as PEM text.
IdentitySource: TypeAlias = Callable[[bool], tuple[str, str]]

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClusterConfig(msgspec.Struct, frozen=True):
    """What a client needs to connect; certificates and keys are PEM text."""

    server: str
    ca: str = ""
    certificate: str = ""
    key: str = ""
    token: TokenSource | None = None
    # The source of certificate and key if they may change at run time.
    identity: IdentitySource | None = None
    username: str = ""
    password: str = ""
    verify: bool = True
    tls_server_name: str = ""
    namespace: str = "default"
    # The path of its kubeconfig; empty in a Pod.
    context: str = ""
    # The user to impersonate, from the kubeconfig.
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    impersonate_uid: str = ""
    impersonate_extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    proxy: str = ""


def find_pod_config(
    folder: Path = SERVICE_ACCOUNT_FOLDER, environment: Mapping[str, str] = os.environ
) -> ClusterConfig | None:
    """The configuration of a Pod's service account; None outside of a Pod."""
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
    """The proxy for a server from the environment, as kubectl chooses it."""

    return choose_proxy(server, environment)


def describe_cluster(config: ClusterConfig) -> JsonObject:
    """The cluster information for a credential plugin, in the plugin API's terms."""
    from base64 import b64encode

    known: JsonObject = {
        "server": config.server,
        "tls-server-name": config.tls_server_name,
        "insecure-skip-tls-verify": not config.verify,
        "certificate-authority-data": b64encode(config.ca.encode()).decode(),
        "proxy-url": config.proxy,
    }
    return {name: value for name, value in known.items() if value}
