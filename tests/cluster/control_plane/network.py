"""Where a control plane lives: a network namespace of its own where we may make one, else loopback.

Webhooks are reached through a Service only in a namespace: an EndpointSlice takes no loopback
address.
"""

import ipaddress
import itertools
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path

_BLOCKS = ipaddress.ip_network("198.18.0.0/15")  # for measuring networks; routed nowhere
_BLOCK_COUNT = 1 << 15
_OURS = re.compile(r"^lictor-(\d+)-\d+$")
_counter = itertools.count()
# Several control planes may be made at once, each by a thread of its own.
_lock = threading.Lock()


@dataclass(frozen=True)
class Network:
    """A place to run programs in; `name` is empty on loopback."""

    name: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What stands before a command so that it runs in here."""
        return ("ip", "netns", "exec", self.name) if self.name else ()

    def port(self, usual: int) -> int:
        """The usual port where all ports are ours, else a free one."""
        return usual if self.name else find_free_port()

    def remove(self) -> None:
        """End the namespace; its devices go with it."""
        if self.name:
            _ip("netns", "delete", self.name, check=False)


def find_free_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def can_make_namespaces() -> bool:
    """Tell whether we may make network namespaces here."""
    with _lock:
        return _probe()


@cache
def _probe() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"lictor-{os.getpid()}-0"
    made = _ip("netns", "add", probe, check=False) == 0
    if made:
        _ip("netns", "delete", probe, check=False)
    return made


def make_network(*, loopback: bool = False) -> Network:
    """A namespace with a pair of devices, reached from here as well; loopback where that fails."""
    remove_stale()
    if loopback or not can_make_namespaces():
        return Network("", "127.0.0.1")
    number = next(_counter) + 1
    # Other processes choose an address at the same time.
    with (Path(tempfile.gettempdir()) / "lictor-networks.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        network = Network(f"lictor-{os.getpid()}-{number}", _find_free_address())
        try:
            _connect(network, number)
        except subprocess.CalledProcessError:
            network.remove()
            raise
    return network


def _find_free_address() -> str:
    words = ["ip", "-o", "-4", "addr", "show"]
    used = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for block in range(_BLOCK_COUNT):
        if f" {_BLOCKS[block * 4 + 1]}/30 " not in used:
            return str(_BLOCKS[block * 4 + 2])
    raise RuntimeError("every address is in use")


def _connect(network: Network, number: int) -> None:
    inner = ipaddress.ip_address(network.address)
    # A device's name has at most 15 characters.
    near, far = f"lc{os.getpid():x}n{number:x}", f"lc{os.getpid():x}f{number:x}"
    _ip("netns", "add", network.name)
    _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", network.name)
    _ip("addr", "add", f"{inner - 1}/30", "dev", near)
    _ip("link", "set", near, "up")
    _ip("-n", network.name, "addr", "add", f"{inner}/30", "dev", far)
    _ip("-n", network.name, "link", "set", far, "up")
    _ip("-n", network.name, "link", "set", "lo", "up")
    # Some programs ask which device leads outside to find their own address.
    _ip("-n", network.name, "route", "add", "default", "via", str(inner - 1))


def make_folder() -> Path:
    """A folder for the files of one control plane, named after the run that it belongs to."""
    return Path(tempfile.mkdtemp(prefix=f"lictor-plane-{os.getpid()}-"))


def remove_stale() -> None:
    """Remove the namespaces and folders of runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob("lictor-plane-*-*"):
        process = folder.name.split("-")[2]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)
    if shutil.which("ip") is None:
        return
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines():
        found = _OURS.match(line.split()[0]) if line.split() else None
        if found and not _is_alive(int(found[1])):
            _ip("netns", "delete", found[0], check=False)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _ip(*words: str, check: bool = True) -> int:
    return subprocess.run(["ip", *words], capture_output=True, check=check).returncode
