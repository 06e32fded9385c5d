"""What the policies of a server use: modules, lookups and host calls."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from lictor.addons.kubewarden.family.entries import MemberEntry
from lictor.addons.kubewarden.family.host_calls import PolicyHost
from lictor.addons.kubewarden.modules.module_store import (
    ModuleSettings,
    ModuleStore,
    read_module_settings,
)
from lictor.addons.kubewarden.modules.module_verification import read_trust_config
from lictor.addons.kubewarden.server.options import PolicyServerOptions
from lictor.addons.kubewarden.server.policies_file import refuse_missing_cluster
from lictor.addons.kubewarden.server.runner import ThreadedHost
from lictor.core.errors import LictorError
from lictor.core.lang.wasm_module import Modules
from lictor.core.lang.wasm_records import HostCalls
from lictor.core.ports import (
    DEFAULT_ACCESS,
    GuestLogLine,
    Lookups,
    NoLookups,
    Registries,
    RegistryAccess,
)
from lictor.core.raw import JsonObject
from lictor.http.addresses import HostResolver

if TYPE_CHECKING:
    from lictor.kubernetes.config import ClusterConfig

log = logging.getLogger(__name__)

BeginRequest: TypeAlias = Callable[[float], None]
_CONNECT_SECONDS = 5.0
_RESOLVE_SECONDS = 5.0
# How long a policy without a time limit may wait for its host.
_LONGEST_WAIT = 60.0


class PolicyEnvironment:
    """Belongs to the event loop of one process."""

    def __init__(
        self, modules: Modules, lookups: Lookups, begin: BeginRequest, seconds: float | None
    ) -> None:
        self.modules = modules
        self._lookups = lookups
        self._begin = begin
        self._seconds = seconds

    def make_host(self, policy: str, entry: MemberEntry, namespace: str) -> HostCalls:
        """The host calls of a policy; CompileError if its capabilities are invalid."""
        seconds = entry.timeout_eval_seconds or self._seconds or _LONGEST_WAIT
        host = PolicyHost(self._lookups, entry, policy=policy, namespace=namespace)
        return ThreadedHost(
            host,
            lambda: self._begin(time.monotonic() + seconds),
            has_context=bool(entry.context_aware_resources),
        )


@asynccontextmanager
async def open_environment(options: PolicyServerOptions) -> AsyncIterator[PolicyEnvironment]:
    """Read the trust settings and find the cluster; LoadError if that fails."""
    store = ModuleStore(_read_settings(options))
    config = _find_cluster(options)
    if config is None:
        registries = _RegistryOnlyLookups(store.registries)
        yield PolicyEnvironment(store, registries, lambda _: None, options.seconds)
        return
    # Heavy, and of no use without a cluster.
    from lictor.lookups.lookups import begin_request

    async with _open_cluster(config, options, store.registries) as lookups:
        chosen = lookups or _RegistryOnlyLookups(store.registries)
        yield PolicyEnvironment(store, chosen, begin_request, options.seconds)


@asynccontextmanager
async def _open_cluster(
    config: "ClusterConfig", options: PolicyServerOptions, registries: Registries
) -> AsyncIterator[Lookups | None]:
    """Lookups of this event loop; None if no cluster answers and none is needed."""
    from lictor.kubernetes.client import Client
    from lictor.kubernetes.flags import Flags
    from lictor.lookups.lookups import ClusterLookups

    client = Client(config)
    try:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await client.request("GET", "/version")
        except (LictorError, OSError, TimeoutError) as error:
            refuse_missing_cluster(options, str(error))
            yield None
            return
        # Only resources that policies list are watched.
        flags = Flags(enable_config_map_caching=False)
        lookups = ClusterLookups(client, asyncio.get_running_loop(), flags, registries=registries)
        try:
            yield lookups
        finally:
            await lookups.close()
    finally:
        await client.close()


def _read_settings(options: PolicyServerOptions) -> ModuleSettings:
    settings = read_module_settings(
        sources=str(options.sources or ""),
        verification=str(options.verification or ""),
        docker_config=str(options.docker_config or ""),
    )
    trusted_root = _read_trust(options.sigstore_trust)
    return replace(settings, folder=options.download_folder, trusted_root=trusted_root)


def _read_trust(path: Path | None) -> bytes:
    """The trust root; if it cannot be read, only keyless signatures fail."""
    if path is None:
        return b""
    try:
        return read_trust_config(str(path))
    except LictorError as error:
        log.error("trust root not read, signatures without keys fail", extra={"why": str(error)})
        return b"{}"


def _find_cluster(options: PolicyServerOptions) -> "ClusterConfig | None":
    from lictor.kubernetes.kubeconfig import load_config

    try:
        return load_config()
    except LictorError as error:
        refuse_missing_cluster(options, str(error))
        return None


class _RegistryOnlyLookups(NoLookups):
    """No cluster, but the configured registries and name servers."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries
        self._resolver = HostResolver()

    def registries(self) -> Registries:
        return self._registries

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        from lictor.images.image_data import describe_image

        return describe_image(self._registries, reference, access)

    def resolve_host(self, host: str) -> tuple[str, ...]:
        return self._resolver.resolve(host, _RESOLVE_SECONDS)

    def log_line(self, line: GuestLogLine) -> None:
        from lictor.kubernetes.process_log import log_guest_line

        log_guest_line(line)
