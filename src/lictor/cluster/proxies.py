"""Which proxy the environment names for a server (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


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
