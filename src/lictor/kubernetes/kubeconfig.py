"""Loads kubeconfig files, merged as kubectl does; errors name the field."""

import os
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lictor.core.errors import LoadError, UsageError
from lictor.core.load.yaml import iter_documents
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.config import ClusterConfig, describe_cluster, find_pod_config, find_proxy
from lictor.kubernetes.credentials import VERSIONS, ExecPlugin, FilePair, FileSource, PluginSource

_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_PROXY_SCHEMES = ("http://", "https://")
_MODES = ("Never", "IfAvailable", "Always")


class KubeconfigEntry(msgspec.Struct, frozen=True):
    """The body of one named cluster, user or context, and its location."""

    body: JsonObject
    file: Path
    place: str

    def fail(self, field: str, message: str) -> LoadError:
        place = f"{self.place}.{field}" if field else self.place
        return LoadError(message, where=f"{self.file}: {place}")

    def text(self, field: str, *, required: bool = False) -> str:
        value = self.body.get(field)
        if value is None or value == "":
            if required:
                raise self.fail(field, "is missing")
            return ""
        if not isinstance(value, str):
            raise self.fail(field, f"expected text, not {type(value).__name__}")
        return value

    def flag(self, field: str) -> bool:
        value = self.body.get(field)
        if value is not None and not isinstance(value, bool):
            raise self.fail(field, f"expected true or false, not {value!r}")
        return bool(value)

    def texts(self, field: str) -> tuple[str, ...]:
        value = self.body.get(field)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(field, "expected a list of texts")
        return tuple(value)

    def inner(self, field: str) -> "KubeconfigEntry | None":
        value = self.body.get(field)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fail(field, "expected an object")
        return KubeconfigEntry(value, self.file, f"{self.place}.{field}")

    def path(self, field: str) -> Path | None:
        """A file that the field names; a relative path starts at the kubeconfig's folder."""
        text = self.text(field)
        if not text:
            return None
        path = self.file.parent / text
        if not path.is_file():
            raise self.fail(field, f"no such file: {path}")
        return path

    def pem(self, field: str) -> str:
        """PEM text, in the field itself as base64 (`-data`), otherwise in the file it names."""
        data = self.text(f"{field}-data")
        if data:
            try:
                return b64decode(data, validate=True).decode()
            except (Base64Error, UnicodeDecodeError) as error:
                raise self.fail(f"{field}-data", "is not base64 of PEM text") from error
        path = self.path(field)
        try:
            return "" if path is None else path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise self.fail(field, str(error)) from error


class Kubeconfig(msgspec.Struct):
    """Several files as one: for each name, the first file that has it wins."""

    files: Sequence[Path]
    current: str = ""
    clusters: dict[str, KubeconfigEntry] = msgspec.field(default_factory=dict)
    users: dict[str, KubeconfigEntry] = msgspec.field(default_factory=dict)
    contexts: dict[str, KubeconfigEntry] = msgspec.field(default_factory=dict)

    def find(self, group: str, name: str, wanted_by: str) -> KubeconfigEntry:
        entries: dict[str, KubeconfigEntry] = getattr(self, group)
        found = entries.get(name)
        if found is None:
            known = ", ".join(sorted(entries)) or "none"
            files = ", ".join(map(str, self.files))
            raise LoadError(f"{wanted_by} {name!r} is not among the {group} ({known})", where=files)
        return found


def load_config(kubeconfig: str = "", context: str = "") -> ClusterConfig:
    """The first of: the given file, $KUBECONFIG, the Pod's service account, ~/.kube/config.

    A context belongs to a kubeconfig: if one is given, the service account is not used.
    """
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


def read_kubeconfig(files: Sequence[Path], context: str = "") -> ClusterConfig:
    """The cluster and user of a context, or of the current one."""
    merged = Kubeconfig(files)
    for file in files:
        _add_file(merged, file)
    name = context or merged.current
    if not name:
        raise LoadError(
            "there is no current-context; name one with --context",
            where=", ".join(map(str, files)),
        )
    chosen = merged.find("contexts", name, "context" if context else "current-context")
    cluster = merged.find(
        "clusters", chosen.text("cluster", required=True), f"{chosen.place}.cluster"
    )
    config = _read_cluster(cluster)
    config = replace(config, namespace=chosen.text("namespace") or "default", context=name)
    user = chosen.text("user")
    if not user:
        return config
    return _read_user(config, cluster, merged.find("users", user, f"{chosen.place}.user"))


def _add_file(merged: Kubeconfig, file: Path) -> None:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise LoadError(str(error.strerror or error).lower(), where=str(file)) from error
    for document in iter_documents(data, str(file)):
        if not isinstance(document.body, dict):
            raise LoadError("not a kubeconfig: expected an object", where=str(file))
        root = KubeconfigEntry(document.body, file, "kubeconfig")
        merged.current = merged.current or root.text("current-context")
        for group in _LISTS:
            entries: dict[str, KubeconfigEntry] = getattr(merged, group)
            for name, entry in _list_entries(document.body.get(group), group, file):
                entries.setdefault(name, entry)


def _list_entries(items: Json, group: str, file: Path) -> Iterator[tuple[str, KubeconfigEntry]]:
    if items is not None and not isinstance(items, list):
        raise LoadError("expected a list", where=f"{file}: {group}")
    for index, item in enumerate(items or ()):
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise LoadError("an entry without a name", where=f"{file}: {group}[{index}]")
        body = item.get(_LISTS[group]) or {}
        if not isinstance(body, dict):
            raise LoadError("expected an object", where=f"{file}: {group}[{name}]")
        yield name, KubeconfigEntry(body, file, f"{group}[{name}]")


def _read_cluster(cluster: KubeconfigEntry) -> ClusterConfig:
    server = cluster.text("server", required=True).rstrip("/")
    if not server.startswith(_PROXY_SCHEMES):
        raise cluster.fail("server", f"expected a URL of http or https, not {server!r}")
    insecure = cluster.flag("insecure-skip-tls-verify")
    authority = cluster.pem("certificate-authority")
    if insecure and authority:
        raise cluster.fail(
            "insecure-skip-tls-verify", "must not be true together with certificate-authority"
        )
    if authority and "-----BEGIN" not in authority:
        raise cluster.fail("certificate-authority", "is not PEM text")
    proxy = cluster.text("proxy-url")
    if proxy and not proxy.startswith(_PROXY_SCHEMES):
        raise cluster.fail("proxy-url", f"expected a proxy URL of http or https, not {proxy!r}")
    return ClusterConfig(
        server=server,
        ca=authority,
        verify=not insecure,
        tls_server_name=cluster.text("tls-server-name"),
        proxy=proxy or find_proxy(server),
    )


def _read_user(
    config: ClusterConfig, cluster: KubeconfigEntry, user: KubeconfigEntry
) -> ClusterConfig:
    if user.body.get("auth-provider") is not None:
        raise user.fail("auth-provider", "is not supported; use an exec plugin instead")
    config = _add_impersonation(config, user)
    config = _add_certificate(config, user)
    plugin = user.inner("exec")
    token_file = user.path("tokenFile")
    if plugin is not None:
        source = PluginSource(_read_plugin(plugin, config, cluster))
        return replace(config, token=source.token, identity=source.identity)
    if token_file is not None:
        return replace(config, token=FileSource(token_file))
    token = user.text("token")
    if token:
        return replace(config, token=lambda _: token)
    return replace(config, username=user.text("username"), password=user.text("password"))


def _add_certificate(config: ClusterConfig, user: KubeconfigEntry) -> ClusterConfig:
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise user.fail(missing, "is missing: a certificate needs its key")
    paths = user.path("client-certificate"), user.path("client-key")
    is_data = user.text("client-certificate-data") or user.text("client-key-data")
    identity = None
    if paths[0] and paths[1] and not is_data:
        identity = FilePair(FileSource(paths[0]), FileSource(paths[1]))
    return replace(config, certificate=certificate, key=key, identity=identity)


def _add_impersonation(config: ClusterConfig, user: KubeconfigEntry) -> ClusterConfig:
    name, groups = user.text("as"), user.texts("as-groups")
    extra = user.inner("as-user-extra")
    if not name and (groups or extra or user.text("as-uid")):
        raise user.fail("as", "is missing: groups and extra need a user to impersonate")
    return replace(
        config,
        impersonate=name,
        impersonate_groups=groups,
        impersonate_uid=user.text("as-uid"),
        impersonate_extra={key: extra.texts(key) for key in extra.body} if extra else {},
    )


def _read_plugin(
    plugin: KubeconfigEntry, config: ClusterConfig, cluster: KubeconfigEntry
) -> ExecPlugin:
    version = plugin.text("apiVersion", required=True)
    if version not in VERSIONS:
        raise plugin.fail("apiVersion", f"expected {' or '.join(VERSIONS)}, not {version!r}")
    mode = plugin.text("interactiveMode", required=version == VERSIONS[0]) or "IfAvailable"
    if mode not in _MODES:
        raise plugin.fail("interactiveMode", f"expected {', '.join(_MODES)}, not {mode!r}")
    return ExecPlugin(
        command=plugin.text("command", required=True),
        api_version=version,
        arguments=plugin.texts("args"),
        environment=tuple(_list_environment(plugin)),
        install_hint=plugin.text("installHint"),
        interactive_mode=mode,
        cluster=_describe(config, cluster) if plugin.flag("provideClusterInfo") else None,
        folder=str(plugin.file.parent),
        where=f"{plugin.file}: {plugin.place}",
    )


def _list_environment(plugin: KubeconfigEntry) -> Iterator[tuple[str, str]]:
    items = plugin.body.get("env") or ()
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise plugin.fail(f"env[{index}]", "expected name and value")
        entry = KubeconfigEntry(item, plugin.file, f"{plugin.place}.env[{index}]")
        yield entry.text("name", required=True), entry.text("value")


def _describe(config: ClusterConfig, cluster: KubeconfigEntry) -> JsonObject:
    known = describe_cluster(config)
    for item in cluster.body.get("extensions") or ():
        if isinstance(item, dict) and item.get("name") == "client.authentication.k8s.io/exec":
            known["config"] = item.get("extension")
    return known
