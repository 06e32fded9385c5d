"""Policy modules for laptops and servers: fetched, checked, kept, and compiled once."""

import logging
import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lictor.addons.kubewarden.modules.module_address import (
    ModuleAddress,
    ModuleScheme,
    parse_module_address,
)
from lictor.addons.kubewarden.modules.module_folder import (
    ModuleFolder,
    check_module,
    find_cache_folder,
    find_module_folder,
    read_module_file,
    write_whole,
)
from lictor.addons.kubewarden.modules.module_runtime import CompileLimits, share_runtime
from lictor.addons.kubewarden.modules.module_sources import ModuleSources, read_sources
from lictor.addons.kubewarden.modules.module_verification import (
    VerificationConfig,
    read_trust_config,
    read_verification,
    verify_module,
)
from lictor.core.errors import (
    CorruptContentError,
    ImageNotFoundError,
    LookupFailedError,
    ModuleError,
    SignatureRefusedError,
)
from lictor.core.ports import Descriptor, ImageManifest, Registries, RegistryAccess
from lictor.core.signatures.records import SignedImage
from lictor.http.addresses import OPERATOR_RULES
from lictor.images.credentials import CredentialSources
from lictor.images.manifests import (
    EMPTY_CONFIG,
    check_layer,
    find_layer,
    read_manifest,
    write_manifest,
)
from lictor.images.registries import RemoteRegistries, TrustingRegistries
from lictor.images.repository_name import compute_digest
from lictor.images.settings import RegistrySettings

if TYPE_CHECKING:
    from lictor.core.lang.wasm_module import ModuleMetadata, WasmModule

log = logging.getLogger(__name__)

_MIB = 2**20
_MOST_VERIFIED = 4096
_PRIVATE = ".lictor"
_DOCKER_FILE = "config.json"
# As policy servers call them.
_VARIABLES = {
    "sources": "KUBEWARDEN_SOURCES_PATH",
    "verification": "KUBEWARDEN_VERIFICATION_CONFIG_PATH",
    "docker_config": "KUBEWARDEN_DOCKER_CONFIG_JSON_PATH",
    "trust": "KUBEWARDEN_SIGSTORE_TRUST_CONFIG_PATH",
}


class ModuleSettings(msgspec.Struct, frozen=True):
    """Where modules are kept, whose are taken, and what one may cost."""

    # None: where kwctl has its own.
    folder: Path | None = None
    # Are modules kept in that folder, and taken from it where their registry is away?
    keeps_modules: bool = True
    # For machine code and manifests; None: in `folder`, or else in the cache of the user.
    private_folder: Path | None = None
    # Folders below which `file://` may read; None: everywhere.
    file_folders: tuple[Path, ...] | None = None
    sources: ModuleSources = ModuleSources()
    verification: VerificationConfig | None = None
    # `trusted_root.json` of the Sigstore; empty: that of the public one, or of TUF_ROOT.
    trusted_root: bytes = b""
    # The folder of Docker's config.json; empty: DOCKER_CONFIG, or the user's own.
    docker_config: str = ""
    module_bytes: int = 64 * _MIB
    compiling: CompileLimits = CompileLimits()
    # Modules that policies of one namespace may use at the same time.
    modules_per_namespace: int = 64
    # Limits of requests to registries and other servers.
    network: RegistrySettings = RegistrySettings(
        exchange_seconds=60.0, question_seconds=120.0, tag_seconds=10.0, cached_bytes=8 * _MIB
    )

    def for_operator(self) -> "ModuleSettings":
        """The same for the user of a command, who chose every policy that is run."""
        network = msgspec.structs.replace(self.network, addresses=OPERATOR_RULES)
        return msgspec.structs.replace(self, network=network)


class FetchedModule(msgspec.Struct, frozen=True):
    """A module as it was fetched."""

    address: ModuleAddress
    content: bytes
    # Of the manifest; empty for what does not come from a registry, or comes from the folder alone.
    manifest_digest: str = ""


class ModuleStore:
    """Implements `core.lang.wasm_module.Modules`; thread-safe."""

    def __init__(
        self,
        settings: ModuleSettings | None = None,
        credentials: CredentialSources | None = None,
    ) -> None:
        self._settings = chosen = settings or ModuleSettings()
        self.folder = ModuleFolder(chosen.folder or find_module_folder(), chosen.module_bytes)
        self._private = chosen.private_folder or _choose_private(chosen)
        self._remote = RemoteRegistries(
            _choose_network(chosen), credentials or _choose_credentials(chosen.docker_config)
        )
        self.registries: Registries = self._remote
        if chosen.trusted_root:
            self.registries = TrustingRegistries(self._remote, chosen.trusted_root)
        # Digests of manifests whose signatures were found good.
        self._verified: set[str] = set()
        self._used: dict[str, weakref.WeakSet[WasmModule]] = {}
        self._lock = threading.Lock()
        self._runtime = share_runtime(self._private / "compiled", chosen.compiling)

    # --- running

    def load(self, address: str, namespace: str = "") -> "WasmModule":
        """The module, ready to run; see `Modules.load`."""
        fetched = self.fetch(address, namespace)
        module = self._runtime.compile(fetched.content, namespace)
        self._count(module, namespace)
        return module

    def _count(self, module: "WasmModule", namespace: str) -> None:
        if not namespace:
            return
        with self._lock:
            used = self._used.setdefault(namespace, weakref.WeakSet())
            if module not in used and len(used) >= self._settings.modules_per_namespace:
                raise ModuleError(
                    f"policies of namespace {namespace} use {len(used)} modules already, more are "
                    "not loaded"
                )
            used.add(module)

    # --- fetching

    def fetch(self, address: str, namespace: str = "") -> FetchedModule:
        """The content of a module, with its signatures verified where that is configured."""
        found = parse_module_address(address)
        config = self._settings.verification
        match found.scheme:
            case ModuleScheme.REGISTRY:
                fetched = self._fetch_artifact(found, namespace, config)
            case _ if config is not None:
                raise ModuleError(
                    f"{found.text} cannot be verified: only what is in a registry can have "
                    "signatures, and a verification configuration is given"
                )
            case ModuleScheme.FILE:
                fetched = FetchedModule(found, self._read_file(found))
            case ModuleScheme.HTTP | ModuleScheme.HTTPS:
                fetched = FetchedModule(found, self._download(found, namespace))
        check_module(fetched.content, found.text)
        return fetched

    def pull(self, address: str) -> FetchedModule:
        """Fetch a module into the folder."""
        return self.fetch(address)

    def resolve(self, address: str) -> str:
        """The digest of the manifest that a reference means now."""
        found = self._expect_artifact(address)
        return self._ask_manifest(found, "").digest

    def verify(self, address: str, config: VerificationConfig) -> str:
        """The digest of the manifest whose signatures are good; SignatureRefusedError else."""
        found = self._expect_artifact(address)
        manifest = self._ask_manifest(found, "")
        verify_module(SignedImage(found.repository, manifest.digest), config, self.registries)
        return manifest.digest

    def push(self, content: bytes, address: str, metadata: "ModuleMetadata | None") -> str:
        """Write a module into a registry; the reference by digest."""
        found = self._expect_artifact(address)
        check_module(content, "what is to be pushed")
        manifest = write_manifest(content, metadata)
        digest = compute_digest(manifest)
        if found.digest and found.digest != digest:
            raise ModuleError(f"{found.text}: the module has the digest {digest}")
        access = RegistryAccess()
        for blob in (content, EMPTY_CONFIG):
            self._remote.push_blob(found.repository, blob, access)
        self._remote.push_manifest(found.repository, found.tag or digest, manifest, access)
        return f"{found.repository}@{digest}"

    def _expect_artifact(self, address: str) -> ModuleAddress:
        found = parse_module_address(address)
        if found.scheme is not ModuleScheme.REGISTRY:
            raise ModuleError(f"{found.text} is no reference to an OCI artifact")
        return found

    def _read_file(self, address: ModuleAddress) -> bytes:
        path, folders = Path(address.path), self._settings.file_folders
        if folders is not None:
            # Links are followed first: one in a folder must not lead out of it.
            path = Path(os.path.realpath(path))
            if not any(path.is_relative_to(os.path.realpath(folder)) for folder in folders):
                raise ModuleError(f"{address.text} is not in a folder that modules may come from")
        return read_module_file(path, self._settings.module_bytes)

    def _download(self, address: ModuleAddress, namespace: str) -> bytes:
        try:
            content = self._remote.fetch_file(address.text, namespace)
        except LookupFailedError as error:
            return self._fall_back(address, namespace, error)
        check_module(content, address.text)
        if not namespace:
            # Otherwise a user with ever new addresses would fill the disk.
            self._keep(address, content)
        return content

    def _fetch_artifact(
        self, address: ModuleAddress, namespace: str, config: VerificationConfig | None
    ) -> FetchedModule:
        try:
            manifest = self._find_manifest(address, namespace)
        except LookupFailedError as error:
            if config is not None:
                raise
            return FetchedModule(address, self._fall_back(address, namespace, error))
        if config is not None:
            self._verify_once(address, manifest, config, RegistryAccess(namespace=namespace))
        layer = find_layer(manifest, address.text, self._settings.module_bytes)
        kept = self._read_kept(address, layer) if self._shares(namespace) else None
        content = kept if kept is not None else self._fetch_layer(address, layer, namespace)
        return FetchedModule(address, content, manifest.digest)

    def _read_kept(self, address: ModuleAddress, layer: Descriptor) -> bytes | None:
        """The module in the folder, if it is the one that the manifest names."""
        try:
            kept = self.folder.read(address)
        except LookupFailedError:
            return None
        return kept if kept is not None and compute_digest(kept) == layer.digest else None

    def _fetch_layer(self, address: ModuleAddress, layer: Descriptor, namespace: str) -> bytes:
        access = RegistryAccess(namespace=namespace)
        content = self._remote.blob(address.repository, layer.digest, access)
        check_layer(content, layer, address.text)
        check_module(content, address.text)
        if not namespace:
            self._keep(address, content)
        return content

    def _shares(self, namespace: str) -> bool:
        """May the module in the folder be used?"""
        return not namespace and self._settings.keeps_modules

    def _verify_once(
        self,
        address: ModuleAddress,
        manifest: ImageManifest,
        config: VerificationConfig,
        access: RegistryAccess,
    ) -> None:
        if manifest.digest in self._verified:
            return
        image = SignedImage(address.repository, manifest.digest)
        try:
            verify_module(image, config, self.registries, access)
        except SignatureRefusedError as error:
            raise ModuleError(f"{address.text} cannot be validated: {error}") from error
        if len(self._verified) >= _MOST_VERIFIED:
            self._verified.clear()
        self._verified.add(manifest.digest)

    def _find_manifest(self, address: ModuleAddress, namespace: str) -> ImageManifest:
        """The stored manifest if a digest identifies it; else the registry's current one."""
        place = self._private / "manifests" / address.digest.replace(":", "-")
        if address.digest and self._shares(namespace) and self._settings.verification is None:
            try:
                return read_manifest(place.read_bytes(), address.digest, address.text)
            except (OSError, LookupFailedError):
                log.debug("manifest is not kept", extra={"address": address.text})
        manifest = self._ask_manifest(address, namespace)
        if address.digest and self._shares(namespace):
            try:
                write_whole(place, manifest.content)
            except OSError as error:
                log.warning("manifest cannot be kept", extra={"why": str(error)})
        return manifest

    def _ask_manifest(self, address: ModuleAddress, namespace: str) -> ImageManifest:
        access = RegistryAccess(namespace=namespace)
        return self._remote.manifest(address.repository, address.reference, access)

    def _fall_back(self, address: ModuleAddress, namespace: str, error: LookupFailedError) -> bytes:
        """The module that was fetched before, if the server does not answer now.

        Not if the server reports that it was deleted or moved; and not for policies of a
        namespace, which may not be allowed to read what others have fetched.
        """
        is_final = isinstance(error, ImageNotFoundError | CorruptContentError)
        kept = self.folder.read(address) if self._shares(namespace) and not is_final else None
        if kept is None:
            raise error
        log.warning(
            "module is taken from the folder: it cannot be fetched",
            extra={"address": address.text, "why": str(error)},
        )
        return kept

    def _keep(self, address: ModuleAddress, content: bytes) -> None:
        if not (address.is_kept and self._settings.keeps_modules):
            return
        try:
            self.folder.write(address, content)
        except LookupFailedError as error:
            # It can be run all the same, and is fetched again the next time.
            log.warning("module is not kept", extra={"why": str(error)})


def _choose_private(settings: ModuleSettings) -> Path:
    if settings.folder is not None:
        # The configured folder may be the only writable place.
        return settings.folder / _PRIVATE
    return find_cache_folder() / "lictor" / "modules"


def _choose_network(settings: ModuleSettings) -> RegistrySettings:
    sources, rules = settings.sources, settings.network.addresses
    # Who writes sources.yml or a PolicyServer may name hosts inside the cluster.
    hosts = sources.insecure.union(host for host, _ in sources.authorities)
    return msgspec.structs.replace(
        settings.network,
        blob_bytes=settings.module_bytes,
        insecure=settings.network.insecure | sources.insecure,
        authorities=settings.network.authorities + sources.authorities,
        addresses=msgspec.structs.replace(rules, allowed=rules.allowed | hosts),
        # As everywhere else, who has no TLS must be named.
        plain_loopback=False,
    )


def _choose_credentials(docker_config: str) -> CredentialSources:
    if not docker_config:
        return CredentialSources()
    path = Path(docker_config)
    folder = path.parent if path.name == _DOCKER_FILE else path
    return CredentialSources(environment={**os.environ, "DOCKER_CONFIG": str(folder)})


def read_module_settings(
    *, sources: str = "", verification: str = "", trust: str = "", docker_config: str = ""
) -> ModuleSettings:
    """The settings in these files; LoadError where one makes no sense."""
    return ModuleSettings(
        sources=read_sources(sources) if sources else ModuleSources(),
        verification=read_verification(verification) if verification else None,
        trusted_root=read_trust_config(trust) if trust else b"",
        docker_config=docker_config,
    )


def open_from_environment() -> ModuleStore:
    """A store with the settings of the environment, as a policy server has them."""
    files = {name: os.environ.get(variable, "") for name, variable in _VARIABLES.items()}
    return ModuleStore(read_module_settings(**files).for_operator())
