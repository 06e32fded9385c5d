"""The options of `lictor up`, and the settings derived from them."""

import contextlib
import ipaddress
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from lictor.addons.apiserver.up.credentials import hold, hold_kubeconfig
from lictor.cli.controller_flags import change_flags, read_flags
from lictor.core.errors import UsageError
from lictor.core.release import VERSION
from lictor.install.installation import Installation, check_installation
from lictor.install.rights import name_user
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names

USUAL_PORT = 6443
USUAL_PAGE_PORT = 8088
ANY_PORT = 0
USUAL_KUBECONFIG = Path("~/.kube/lictor.yaml")
LOOPBACK = "127.0.0.1"
_OWN_KUBECONFIG = "lictor.kubeconfig"
_LOCK = "lock"
# Those that follow from the embedded cluster itself.
_OWN_FLAGS = frozenset(
    (
        "backgroundServiceAccountName", "cleanupServiceAccountName", "context", "kubeconfig",
        "metricsHost", "reportsServiceAccountName", "serverIP", "servicePort", "webhookServerHost",
        "webhookServerPort",
    )
)  # fmt: skip


class ClusterPlan(msgspec.Struct, frozen=True):
    """One embedded cluster."""

    # Where its files are: for good, or for as long as it runs.
    folder: Path
    keeps_objects: bool
    address: str
    # Bound before anything else starts: clients wait there until the server answers.
    listener: socket.socket
    # Where our own processes come in: TLS would cost them half of their time and memory.
    plain_listener: socket.socket
    # Where metrics are served; None: nowhere.
    metrics: socket.socket | None
    # Those of lictor's own processes.
    flags: Flags
    # What lictor is called in this cluster; there is no Deployment of it.
    installation: Installation
    kubeconfig: Path
    # Only the API server.
    is_bare: bool = False
    # Policies may read and write every object.
    grants_all: bool = False
    # Where the page is served, and the key in its address; None: nowhere.
    page: socket.socket | None = None
    page_key: str = ""

    @property
    def names(self) -> Names:
        return self.installation.names

    @property
    def port(self) -> int:
        number: int = self.listener.getsockname()[1]
        return number

    @property
    def url(self) -> str:
        """Where kubectl on this machine finds it."""
        address = ipaddress.ip_address(self.address)
        if address.is_unspecified:
            return f"https://{LOOPBACK}:{self.port}"
        return f"https://{f'[{address}]' if address.version == 6 else address}:{self.port}"

    @property
    def own_url(self) -> str:
        """The same server, as our own processes reach it."""
        return f"http://{LOOPBACK}:{self.plain_listener.getsockname()[1]}"

    @property
    def page_url(self) -> str:
        """What to open in a browser; empty where there is no page."""
        if self.page is None:
            return ""
        return f"http://{LOOPBACK}:{self.page.getsockname()[1]}/?key={self.page_key}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What the server's certificate must be for."""
        usual = (LOOPBACK, "localhost", "kubernetes.default.svc")
        return usual if self.address in usual else (*usual, self.address)

    @property
    def own_kubeconfig(self) -> Path:
        """That of lictor's own processes."""
        return self.folder / _OWN_KUBECONFIG

    @property
    def webhook_certificate(self) -> Path:
        return self.folder / "webhook.crt"

    @property
    def webhook_key(self) -> Path:
        return self.folder / "webhook.key"

    @property
    def database(self) -> Path | None:
        return self.folder / "objects.db" if self.keeps_objects else None


def read_own_flags(given: Iterable[str]) -> Mapping[str, str]:
    """Flags for webhook and controllers; UsageError for those that `up` sets itself."""
    return read_flags(given, _OWN_FLAGS)


class UpOptions(msgspec.Struct, frozen=True):
    """The options of `lictor up`, but for where it listens."""

    # The folder of objects and keys; None: they are gone at the end.
    data: Path | None = None
    kubeconfig: Path | None = None
    is_bare: bool = False
    grants_all: bool = False
    is_verbose: bool = False
    has_page: bool = True
    prefix: str = "lictor"
    flags: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Files and folders with policies: beside them are the modules that they name.
    policies: tuple[Path, ...] = ()


@contextlib.contextmanager
def open_plan(address: str, port: int | None, options: UpOptions) -> Iterator[ClusterPlan]:
    """Lock the folder and the kubeconfig, bind the port, and derive the rest from the options."""
    address = _check_address(address)
    file = _choose_kubeconfig(options)
    with (
        _open_folder(options.data) as folder,
        hold_kubeconfig(file),
        bind(address, port) as listener,
    ):
        yield _make_plan(folder, listener, file, options)


def _make_plan(
    folder: Path, listener: socket.socket, kubeconfig: Path, options: UpOptions
) -> ClusterPlan:
    installation = build_installation(options.prefix)
    flags = _choose_flags(folder, installation, options)
    address: str = listener.getsockname()[0]
    return ClusterPlan(
        folder=folder,
        keeps_objects=options.data is not None,
        address=address,
        listener=listener,
        plain_listener=bind(LOOPBACK, ANY_PORT),
        metrics=None if options.is_bare else _bind_metrics(flags, options),
        flags=flags,
        installation=installation,
        kubeconfig=kubeconfig,
        is_bare=options.is_bare,
        grants_all=options.grants_all,
        page=_bind_page() if options.has_page and not options.is_bare else None,
        page_key=secrets.token_urlsafe(24),
    )


def _bind_page() -> socket.socket:
    """The usual port, or a free one."""
    with contextlib.suppress(UsageError):
        return bind(LOOPBACK, USUAL_PAGE_PORT)
    return bind(LOOPBACK, ANY_PORT)


def build_installation(prefix: str) -> Installation:
    """Lictor as it is installed in the embedded cluster: all of it is one user."""
    installation = Installation(
        image="lictor",
        version=VERSION,
        prefix=prefix,
        namespace=prefix,
        replicas=1,
        all_in_one=True,
    )
    check_installation(installation)
    return installation


def _choose_flags(folder: Path, installation: Installation, options: UpOptions) -> Flags:
    port = find_free_port()
    account = name_user(installation, "admission")
    usual = Flags(
        kubeconfig=str(folder / _OWN_KUBECONFIG),
        v=2 if options.is_verbose else 0,
        metrics_host=LOOPBACK,
        webhook_server_host=LOOPBACK,
        webhook_server_port=port,
        server_ip=f"{LOOPBACK}:{port}",
        # Made in a moment, where RSA keys take one that people notice.
        tls_key_algorithm="ECDSA",
        omit_events="PolicySkipped",
        module_folders=",".join(map(_find_folder, options.policies)),
        background_service_account_name=account,
        reports_service_account_name=account,
        cleanup_service_account_name=account,
    )
    return change_flags(usual, options.flags)


def _find_folder(path: Path) -> str:
    return str((path if path.is_dir() else path.parent).resolve())


def _bind_metrics(flags: Flags, options: UpOptions) -> socket.socket | None:
    """The given port, or an error; by default the usual one, or a free one."""
    if flags.disable_metrics:
        return None
    is_chosen = "metricsPort" in options.flags
    for port in (flags.metrics_port,) if is_chosen else (flags.metrics_port, ANY_PORT):
        with contextlib.suppress(UsageError):
            return bind(LOOPBACK, port)
    raise UsageError(f"--flag metricsPort={flags.metrics_port}: the port is taken")


def _choose_kubeconfig(options: UpOptions) -> Path:
    if options.kubeconfig is not None:
        return options.kubeconfig.absolute()
    data = options.data
    return (data / "kubeconfig").absolute() if data else USUAL_KUBECONFIG.expanduser()


def _check_address(address: str) -> str:
    """An address of this machine; names could mean another one tomorrow."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise UsageError(f"--address {address}: write an IP address") from None


def bind(address: str, port: int | None) -> socket.socket:
    """Listen; without a port on the usual one, or on any where that is taken."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for number in (USUAL_PORT, ANY_PORT) if port is None else (port,):
        try:
            return socket.create_server((address, number), family=family, backlog=1024)
        except OSError as error:
            why = error
    raise UsageError(f"cannot listen on {address}:{port}: {why.strerror or why}")


@contextlib.contextmanager
def _open_folder(data: Path | None) -> Iterator[Path]:
    """The folder that was named, or one that goes when we go."""
    if data is not None:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        advice = "end it, or choose another folder with --data"
        with hold(data / _LOCK, f"the folder {data}", advice):
            yield data
        return
    folder = Path(tempfile.mkdtemp(prefix="lictor-up-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_free_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.create_server((LOOPBACK, 0)) as server:
        number: int = server.getsockname()[1]
        return number
