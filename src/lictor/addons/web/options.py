"""The options of `lictor web`, checked, and the clusters that follow from them."""

import ipaddress
from pathlib import Path
from typing import Final

import msgspec

from lictor.core.errors import UsageError
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.names import Names

LOOPBACK: Final = "127.0.0.1"
USUAL_PORT: Final = 8088
# What a cluster is called where no kubeconfig names it.
_ONLY_CLUSTER: Final = "cluster"
_LOOPBACK_NAMES: Final = ("localhost",)


class WebOptions(msgspec.Struct, frozen=True):
    """How the page is served, and what of."""

    address: str = LOOPBACK
    port: int = USUAL_PORT
    # Files of reports, in place of clusters.
    reports: tuple[Path, ...] = ()
    kubeconfigs: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    # Must viewers sign in with tokens of the cluster? Otherwise the key shows everything.
    requires_login: bool = False
    # The key in the printed address; empty: one is generated.
    access_key: str = ""
    # Are users the same people in all clusters?
    shares_users: bool = False
    hosts: tuple[str, ...] = ()
    base: str = ""
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    boards: Path | None = None
    # Where the history of totals is kept; None: nowhere.
    history: Path | None = None
    # The targets of notifications; None: no notifications.
    notifications: Path | None = None
    # Where a single process stores what it sent; None: in the cluster, with --login.
    notifications_folder: Path | None = None
    # 0: metrics are not served.
    metrics_port: int = 0
    names: Names = Names()

    @property
    def is_secure(self) -> bool:
        """TLS everywhere but on one's own machine."""
        return self.certificate is not None or not is_loopback(self.address)

    @property
    def known_hosts(self) -> frozenset[str]:
        """The host names of the page."""
        service = self.names.web
        inside = f"{service}.{self.names.namespace}"
        usual = (service, inside, f"{inside}.svc", f"{inside}.svc.cluster.local")
        return frozenset(
            name.lower() for name in (*_LOOPBACK_NAMES, *(usual if self.requires_login else ()),
                                      *self.hosts)
        )  # fmt: skip


def check_options(options: WebOptions) -> None:
    """Refuse what would show reports to strangers, or makes no sense."""
    if options.reports and (options.kubeconfigs or options.contexts or options.requires_login):
        raise UsageError("--report shows files: give it without --kubeconfig, --context or --login")
    if options.notifications_folder is not None and options.notifications is None:
        raise UsageError("--notifications-folder goes with --notifications")
    if not is_loopback(options.address):
        if options.reports:
            raise UsageError(
                f"--address {options.address}: reports of files are shown on this machine only, as "
                "there are no rights to decide who may see them"
            )
        if not options.requires_login:
            raise UsageError(
                f"--address {options.address}: others can reach it, so that people must sign in: "
                "give --login as well"
            )
    if (options.certificate is None) != (options.key is None):
        raise UsageError("--tls-cert and --tls-key belong together")
    if options.client_authority and not (options.requires_login and options.is_secure):
        raise UsageError("--client-ca needs --login, and TLS (--tls-cert, --tls-key)")
    _check_base(options.base)


def _check_base(base: str) -> None:
    plain = base.replace("-", "").replace("_", "").replace("/", "").replace(".", "")
    is_path = base.startswith("/") and not base.endswith("/") and "//" not in base
    if base and not (is_path and plain.isalnum() and base.isascii() and ".." not in base):
        raise UsageError(f"--base {base}: write a path such as /lictor")


def name_host(address: str) -> str:
    """An address as it stands in a URL; without one, all addresses are meant, also this one."""
    return f"[{address}]" if ":" in address else address or "localhost"


def is_loopback(address: str) -> bool:
    """Can only this machine reach it?"""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def load_clusters(options: WebOptions) -> dict[str, ClusterConfig]:
    """The clusters to show, by name, in the order in which they were given."""
    kubeconfigs, contexts = options.kubeconfigs, options.contexts
    if len(kubeconfigs) > 1 and contexts:
        raise UsageError("--context chooses in one kubeconfig; several are shown as they are")
    pairs = [
        (kubeconfig, context)
        for kubeconfig in kubeconfigs or ("",)
        for context in contexts or ("",)
    ]
    if len(pairs) > 1 and options.requires_login and not options.shares_users:
        raise UsageError(
            "with --login, several clusters are shown only if users of the same name are the same "
            "people in all of them: give --same-users if that is so"
        )
    found: dict[str, ClusterConfig] = {}
    for kubeconfig, context in pairs:
        config = load_config(kubeconfig, context)
        name = config.context or _ONLY_CLUSTER
        if name in found:
            name = f"{name} ({kubeconfig or context})"
        if name in found:
            raise UsageError(f"{name} is given twice")
        found[name] = config
    return found
