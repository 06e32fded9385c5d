"""Finds registry credentials: from files, Secrets, helper programs and cloud providers."""

import os
import re
import subprocess
import threading
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.errors import LookupFailedError
from lictor.core.lang.wildcard import match_wildcard
from lictor.core.ports import RegistryAccess
from lictor.core.raw import Json, JsonObject
from lictor.images.cloud_providers import CloudProviders
from lictor.images.repository_name import HUB, Repository

_HUB_KEYS = ("docker.io", "index.docker.io", "registry-1.docker.io")
_HUB_SERVER = "https://index.docker.io/v1/"
_HELPER = re.compile(r"[A-Za-z0-9._-]{1,64}")
# How long responses of helpers, Secrets and files are cached.
_KEPT_SECONDS = 60.0
_MOST_KEPT = 1000
_MOST_BYTES = 1024 * 1024
# The user name of helpers for a token that is exchanged for others.
_TOKEN_USER = "<token>"  # noqa: S105


class RegistryCredential(msgspec.Struct, frozen=True):
    """The credential for a registry, or for its token service."""

    username: str = ""
    password: str = ""
    # Exchanged for tokens, instead of name and password.
    identity_token: str = ""
    # Sent as it is.
    registry_token: str = ""

    def __repr__(self) -> str:
        # Never in a message or a log.
        return "RegistryCredential(...)"


# The content of `.dockerconfigjson` of a Secret, by namespace and name.
ReadSecret: TypeAlias = Callable[[str, str], bytes]


class CredentialSources(msgspec.Struct, frozen=True):
    """The possible sources of credentials."""

    # None without a cluster: then Secrets that a policy names are skipped.
    read_secret: ReadSecret | None = None
    # The namespace of Secrets that cluster-wide policies name.
    namespace: str = ""
    # For policies that name none: Secrets and providers.
    secrets: tuple[str, ...] = ()
    providers: tuple[str, ...] = ("default", "github")
    # Whether these apply to namespaced policies too: they do for those of one policy server.
    lends_to_namespaces: bool = False
    helper_seconds: float = 10.0
    environment: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)


class Keychain:
    """Finds credentials; thread-safe, as it reads files and runs programs."""

    def __init__(self, sources: CredentialSources) -> None:
        self._sources = sources
        self._clouds = CloudProviders(sources.environment)
        self._kept: OrderedDict[
            tuple[Repository, RegistryAccess], tuple[float, RegistryCredential | None]
        ] = OrderedDict()
        self._lock = threading.Lock()
        self._helped: dict[
            tuple[str, str], tuple[float, RegistryCredential | LookupFailedError | None]
        ] = {}
        self._helper_locks: dict[tuple[str, str], threading.Lock] = {}

    def find(self, repository: Repository, access: RegistryAccess) -> RegistryCredential | None:
        """The credential for a repository; None for anonymous access."""
        key = repository, access
        with self._lock:
            until, found = self._kept.get(key, (0.0, None))
        if time.monotonic() < until:
            return found
        found = self._search(repository, access)
        with self._lock:
            self._kept[key] = time.monotonic() + _KEPT_SECONDS, found
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return found

    def _search(self, repository: Repository, access: RegistryAccess) -> RegistryCredential | None:
        for namespace, name in self._list_secrets(access):
            found = self._search_secret(namespace, name, repository)
            if found is not None:
                return found
        for provider in self._list_providers(access):
            found = self._ask_provider(provider, repository)
            if found is not None:
                return found
        return None

    def _list_secrets(self, access: RegistryAccess) -> Iterator[tuple[str, str]]:
        if self._sources.read_secret is None:
            return
        if access.namespace and (access.secrets or not self._sources.lends_to_namespaces):
            # Never those of others: a namespaced policy uses only the Secrets of its namespace.
            yield from ((access.namespace, name) for name in access.secrets)
            return
        names = access.secrets or (() if access.providers else self._sources.secrets)
        for name in names:
            namespace, slash, plain = name.rpartition("/")
            # Only the administrator's flags may name a namespace.
            is_ours = not access.secrets and bool(slash)
            yield (namespace if is_ours else self._sources.namespace), plain if is_ours else name

    def _list_providers(self, access: RegistryAccess) -> tuple[str, ...]:
        if self._sources.read_secret is None:
            # On a user's machine, their own configuration applies.
            return ("default", *access.providers, "github")
        if access.namespace:
            # Lictor's credentials are not for the authors of namespaced policies.
            return ()
        if access.secrets or access.providers:
            return access.providers
        return self._sources.providers

    def _search_secret(
        self, namespace: str, name: str, repository: Repository
    ) -> RegistryCredential | None:
        if self._sources.read_secret is None:
            return None
        what = f"Secret {namespace}/{name}"
        content = self._sources.read_secret(namespace, name)
        return _search_auths(_read_config(content, what), repository)

    def _ask_provider(self, provider: str, repository: Repository) -> RegistryCredential | None:
        if provider == "default":
            return self._search_docker(repository)
        if provider == "github":
            return _ask_github(repository, self._sources.environment)
        found = self._clouds.find(provider, repository.registry)
        if found is None:
            return None
        return RegistryCredential(found.username, found.password, found.identity_token)

    def _search_docker(self, repository: Repository) -> RegistryCredential | None:
        path = self._find_docker_file()
        try:
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LookupFailedError(f"{path} cannot be read: {error}") from error
        config = _read_config(content, str(path))
        helper = _choose_helper(config, repository.registry)
        if helper:
            found = self._ask_helper(helper, repository.registry)
            if found is not None:
                return found
        return _search_auths(config, repository)

    def _ask_helper(self, helper: str, registry: str) -> RegistryCredential | None:
        """The result is cached for all repositories of a registry; concurrent callers wait."""
        with self._lock:
            lock = self._helper_locks.setdefault((helper, registry), threading.Lock())
            if len(self._helper_locks) > _MOST_KEPT:
                self._helper_locks.clear()
        with lock:
            until, found = self._helped.get((helper, registry), (0.0, None))
            if time.monotonic() >= until:
                try:
                    found = _run_helper(helper, registry, self._sources)
                except LookupFailedError as error:
                    found = error
                if len(self._helped) >= _MOST_KEPT:
                    self._helped.clear()
                self._helped[helper, registry] = time.monotonic() + _KEPT_SECONDS, found
        if isinstance(found, LookupFailedError):
            raise found
        return found

    def _find_docker_file(self) -> Path:
        environment = self._sources.environment
        folder = environment.get("DOCKER_CONFIG")
        home = environment.get("HOME") or "/"
        return (Path(folder) if folder else Path(home) / ".docker") / "config.json"


def _ask_github(
    repository: Repository, environment: Mapping[str, str]
) -> RegistryCredential | None:
    token = environment.get("GITHUB_TOKEN")
    if not token or repository.registry not in ("ghcr.io", "docker.pkg.github.com"):
        return None
    return RegistryCredential(environment.get("GITHUB_ACTOR") or "unset", token)


# --- files


def _read_config(content: bytes, what: str) -> JsonObject:
    try:
        found = orjson.loads(content) if len(content) <= _MOST_BYTES else None
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        # Without the parser's message: it may quote a password.
        raise LookupFailedError(f"{what} has no Docker configuration (.dockerconfigjson)")
    return found


def _search_auths(config: JsonObject, repository: Repository) -> RegistryCredential | None:
    """The best match: the entry with the longest path."""
    auths = config.get("auths")
    if not isinstance(auths, dict):
        return None
    best: tuple[int, RegistryCredential] | None = None
    for key, entry in auths.items():
        rank = _rank(key, repository)
        found = _read_entry(entry) if rank else None
        if found is not None and (best is None or rank > best[0]):
            best = rank, found
    return best[1] if best else None


def _rank(key: str, repository: Repository) -> int:
    """The rank of a key; 0 if it does not match. An exact host ranks above a wildcard."""
    text = key.partition("://")[2] if "://" in key else key
    host, _, path = text.partition("/")
    path = path.strip("/")
    if path in ("v1", "v2"):
        path = ""
    is_exact = host in _names_of(repository.registry)
    if not is_exact and not _fits_wildcard(host, repository.registry):
        return 0
    if path and repository.path != path and not repository.path.startswith(f"{path}/"):
        return 0
    return 1 + 2 * len(path) + (1 if is_exact else 0)


def _names_of(registry: str) -> tuple[str, ...]:
    return _HUB_KEYS if registry == HUB else (registry,)


def _fits_wildcard(pattern: str, registry: str) -> bool:
    """`*.example.com`, part by part, as in kubelet."""
    if "*" not in pattern:
        return False
    wanted, host = pattern.split("."), registry.split(".")
    if len(wanted) != len(host):
        return False
    return all(
        part == found or ("?" not in part and match_wildcard(part, found))
        for part, found in zip(wanted, host, strict=True)
    )


def _read_entry(entry: Json) -> RegistryCredential | None:
    if not isinstance(entry, dict):
        return None
    username, password = _text(entry.get("username")), _text(entry.get("password"))
    pair = _text(entry.get("auth"))
    if pair:
        username, password = _split_pair(pair)
    found = RegistryCredential(
        username,
        password,
        identity_token=_text(entry.get("identitytoken")),
        registry_token=_text(entry.get("registrytoken")),
    )
    return found if found != RegistryCredential() else None


def _split_pair(text: str) -> tuple[str, str]:
    try:
        username, _, password = b64decode(text, validate=True).decode().partition(":")
    except (Base64Error, UnicodeDecodeError, ValueError):
        return "", ""
    return username, password.rstrip("\x00")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


# --- programs


def _choose_helper(config: JsonObject, registry: str) -> str:
    helpers = config.get("credHelpers")
    if isinstance(helpers, dict):
        for name in _list_servers(registry):
            if _text(helpers.get(name)):
                return _text(helpers[name])
    return _text(config.get("credsStore"))


def _list_servers(registry: str) -> Iterable[str]:
    return (_HUB_SERVER, *_HUB_KEYS) if registry == HUB else (registry, f"https://{registry}")


def _run_helper(
    helper: str, registry: str, sources: CredentialSources
) -> RegistryCredential | None:
    """The result of `docker-credential-HELPER get`."""
    if not _HELPER.fullmatch(helper):
        raise LookupFailedError(f"{helper[:80]!r} is not a valid name of a credential helper")
    program = f"docker-credential-{helper}"
    server = _HUB_SERVER if registry == HUB else registry
    try:
        done = subprocess.run(  # noqa: S603  (no shell; the name is checked)
            [program, "get"],
            input=server.encode(),
            capture_output=True,
            timeout=sources.helper_seconds,
            env=dict(sources.environment),
            check=False,
        )
    except FileNotFoundError:
        raise LookupFailedError(
            f"Docker's configuration requires {program} for {registry}, which is not installed"
        ) from None
    except subprocess.TimeoutExpired:
        raise LookupFailedError(
            f"{program} did not answer within {sources.helper_seconds:g} s"
        ) from None
    except OSError as error:
        raise LookupFailedError(f"{program} cannot be run: {error}") from error
    return _read_helper(done, program)


def _read_helper(
    done: "subprocess.CompletedProcess[bytes]", program: str
) -> RegistryCredential | None:
    said = done.stdout[:_MOST_BYTES]
    if done.returncode:
        if b"credentials not found" in said or b"credentials not found" in done.stderr:
            return None
        text = (said or done.stderr)[:200].decode(errors="replace").strip()
        raise LookupFailedError(f"{program} failed: {text}")
    try:
        found = orjson.loads(said)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not _text(found.get("Secret")):
        raise LookupFailedError(f"{program} returned no credentials")
    username, secret = _text(found.get("Username")), _text(found["Secret"])
    if username == _TOKEN_USER:
        return RegistryCredential(identity_token=secret)
    return RegistryCredential(username, secret)
