"""The source of modules of Wasm policies: from the flags, or from the server that runs them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lictor.addons.kubewarden.family.policy_server import DEFAULT_SERVER, PolicyServerSpec
from lictor.addons.kubewarden.family.records import PolicyServerDocument
from lictor.core.errors import ApiError, LookupFailedError, NotFoundError
from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record
from lictor.images.settings import split_list
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import CONFIG_MAP
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.lookups.registry_access import build_sources, read_registry_settings
from lictor.policies.family_services import Attachment

if TYPE_CHECKING:
    from lictor.addons.kubewarden.modules.module_store import ModuleSettings
    from lictor.core.lang.wasm_module import Modules

_VERIFICATION_KEY = "verification-config"
_TRUST_KEY = "sigstore-trust-config"


class ServerSources(msgspec.Struct, frozen=True):
    """The registries that a PolicyServer configures for its modules."""

    server: str
    insecure: tuple[str, ...] = ()
    # Host and certificates (PEM).
    authorities: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # A Secret, and ConfigMaps, in lictor's own namespace.
    pull_secret: str = ""
    verification_config: str = ""
    trust_config: str = ""


def _list_sources(server: str, spec: PolicyServerSpec) -> ServerSources:
    """What counts for the policies of a server."""
    return ServerSources(
        server,
        spec.insecure_sources,
        tuple(sorted(spec.source_authorities.items())),
        spec.image_pull_secret,
        spec.verification_config,
        spec.sigstore_trust_config,
    )


class ServerBinding(Attachment, frozen=True):
    """The PolicyServer that a policy is bound to; nothing if lictor itself is its server."""

    sources: ServerSources | None = None


def bind_to_server(policy: StoredPolicy, servers: Iterable[JsonObject]) -> ServerBinding:
    """Which of the servers runs the policy, as far as it can be read?"""
    spec = policy.document.get("spec") or {}
    name = spec.get("policyServer") or DEFAULT_SERVER
    found = next((each for each in servers if each["metadata"]["name"] == name), None)
    if found is None:
        # Without a server of that name, lictor itself is the default one.
        fault = "" if name == DEFAULT_SERVER else f"there is no PolicyServer {name}"
        return ServerBinding(fault=fault, mark="-none" if fault else "")
    metadata = found["metadata"]
    mark = f"-{metadata.get('uid')}:{metadata.get('generation')}"
    try:
        record = convert_record(found, PolicyServerDocument)
    except msgspec.ValidationError as error:
        return ServerBinding(fault=f"PolicyServer {name} cannot be run: {error}", mark=mark)
    sources = _list_sources(name, record.spec)
    return ServerBinding((record,), mark=mark, sources=sources)


class ClusterModules(msgspec.Struct, frozen=True):
    """Opens modules; `get` requests a path of the API server."""

    flags: Flags
    # Lictor's own.
    namespace: str
    get: Callable[[str], Json]

    def open(self, server: ServerSources | None = None) -> "Modules":
        """For policies of a server; without one, as the flags configure it."""
        from lictor.addons.kubewarden.modules.module_store import ModuleStore

        settings = self._read_settings()
        own = build_sources(self.flags, self.namespace, self.get)
        if server is None:
            return ModuleStore(settings, own)
        # Neither lictor's own credentials nor those of other servers: as in the Pods of this one.
        secrets = (server.pull_secret,) if server.pull_secret else ()
        credentials = msgspec.structs.replace(
            own, secrets=secrets, providers=(), lends_to_namespaces=True
        )
        return ModuleStore(self._add_server(settings, server), credentials)

    def _read_settings(self) -> "ModuleSettings":
        from lictor.addons.kubewarden.modules.module_runtime import CompileLimits
        from lictor.addons.kubewarden.modules.module_store import ModuleSettings

        usual = ModuleSettings()
        network = msgspec.structs.replace(
            read_registry_settings(self.flags),
            exchange_seconds=usual.network.exchange_seconds,
            question_seconds=usual.network.question_seconds,
            tag_seconds=usual.network.tag_seconds,
        )
        return ModuleSettings(
            # Only the operator chooses which files of this machine are modules.
            file_folders=tuple(Path(each) for each in split_list(self.flags.module_folders)),
            network=network,
            # Together less than the volume that Pods have for it: one that is full ends the Pod.
            compiling=CompileLimits(disk_bytes=2 * 2**30, disk_bytes_of_namespaces=2**29),
        )

    def _add_server(self, settings: "ModuleSettings", server: ServerSources) -> "ModuleSettings":
        from lictor.addons.kubewarden.modules.module_sources import build_module_sources
        from lictor.addons.kubewarden.modules.module_verification import (
            parse_trust_config,
            parse_verification,
        )

        where = f"PolicyServer {server.server}"
        sources = build_module_sources(server.insecure, dict(server.authorities), where)
        trust = self._read_key(server.trust_config, _TRUST_KEY)
        verification = self._read_key(server.verification_config, _VERIFICATION_KEY)
        return msgspec.structs.replace(
            settings,
            sources=sources,
            verification=None
            if verification is None
            else parse_verification(verification, f"ConfigMap {server.verification_config}"),
            trusted_root=b""
            if trust is None
            else parse_trust_config(trust, f"ConfigMap {server.trust_config}"),
            # Only the server chooses the registries without TLS.
            network=msgspec.structs.replace(settings.network, insecure=frozenset()),
            # What one server was allowed to fetch must not serve another from a folder of both.
            keeps_modules=False,
        )

    def _read_key(self, name: str, key: str) -> bytes | None:
        """One entry of a ConfigMap; None where the server names none."""
        if not name:
            return None
        what = f"ConfigMap {self.namespace}/{name}"
        try:
            found = self.get(CONFIG_MAP.path(self.namespace, name))
        except NotFoundError:
            raise LookupFailedError(f"{what}, which the PolicyServer names, is not there") from None
        except ApiError as error:
            raise LookupFailedError(f"{what} cannot be read: {error}") from error
        data = found.get("data") if isinstance(found, dict) else None
        text = data.get(key) if isinstance(data, dict) else None
        if not isinstance(text, str):
            raise LookupFailedError(f"{what} has no entry {key}")
        return text.encode()
