"""The installation's ConfigMap: exempt requests, and behaviour."""

import logging
import re
from collections.abc import Callable, Mapping

import msgspec
import orjson

from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.quantity import parse_quantity
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import CONFIG_MAP

log = logging.getLogger(__name__)


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_HOST = re.compile(r"[a-z0-9]([-a-z0-9_]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9_]*[a-z0-9])?)*(:[0-9]+)?")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
# From least to most verbose; the last also includes libraries.
LOG_LEVELS = ("error", "warning", "info", "debug", "trace")


class ResourceFilterEntry(msgspec.Struct, frozen=True):
    """`[kind,namespace,name]`: objects that are exempt from all policies."""

    kind: str
    namespace: str = ""
    name: str = ""


class CallerExclusion(msgspec.Struct, frozen=True):
    """Names with wildcards that are exempt, and those (`!name`) that never are."""

    excluded: tuple[str, ...] = ()
    included: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True):
    """The current settings. `problems` lists the invalid entries."""

    resource_filters: tuple[ResourceFilterEntry, ...] = ()
    exclude_usernames: CallerExclusion = CallerExclusion()
    exclude_groups: CallerExclusion = CallerExclusion()
    exclude_roles: CallerExclusion = CallerExclusion()
    exclude_cluster_roles: CallerExclusion = CallerExclusion()
    default_registry: str = "docker.io"
    enable_default_registry_mutation: bool = True
    generate_success_events: bool = False
    # Empty: all actions.
    success_event_actions: frozenset[str] = frozenset()
    webhook_namespace_selector: JsonObject | None = None
    webhook_object_selector: JsonObject | None = None
    webhook_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    webhook_labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    match_conditions: tuple[JsonObject, ...] = ()
    update_request_threshold: int = 1000
    max_context_size: int = 2 * 1024 * 1024
    # One of LOG_LEVELS; empty: as set by the flags.
    log_level: str = ""
    problems: tuple[str, ...] = ()

    @property
    def needs_roles(self) -> bool:
        """Whether exclusions need the roles of the caller."""
        return bool(self.exclude_roles.excluded or self.exclude_cluster_roles.excluded)


# --- reading


def read_settings(config_map: JsonObject | None) -> Settings:
    """The settings of a ConfigMap; an invalid one keeps its default and is reported."""
    data = (config_map or {}).get("data")
    reader = _Reader(data if isinstance(data, dict) else {})
    found: dict[str, Json] = {
        "resource_filters": reader.filters("resourceFilters"),
        "exclude_usernames": reader.exclusion("excludeUsernames"),
        "exclude_groups": reader.exclusion("excludeGroups"),
        "exclude_roles": reader.exclusion("excludeRoles"),
        "exclude_cluster_roles": reader.exclusion("excludeClusterRoles"),
        "default_registry": reader.read("defaultRegistry", _read_registry),
        "enable_default_registry_mutation": reader.read(
            "enableDefaultRegistryMutation", _read_bool
        ),
        "generate_success_events": reader.read("generateSuccessEvents", _read_bool),
        "success_event_actions": frozenset(_split(reader.text("successEventActions"))),
        "webhook_annotations": reader.read("webhookAnnotations", _read_texts),
        "webhook_labels": reader.read("webhookLabels", _read_texts),
        "match_conditions": reader.read("matchConditions", _read_conditions),
        "update_request_threshold": reader.read("updateRequestThreshold", _read_int),
        "max_context_size": reader.read("maxContextSize", _read_size),
        "log_level": reader.read("logLevel", _read_log_level),
        **(reader.read("webhooks", _read_selectors) or {}),
    }
    given = {name: value for name, value in found.items() if value is not None}
    return Settings(**given, problems=tuple(reader.problems))


class _Reader:
    def __init__(self, data: Mapping[str, Json]) -> None:
        self._data = data
        self.problems: list[str] = []

    def text(self, key: str) -> str:
        value = self._data.get(key)
        return value.strip() if isinstance(value, str) else ""

    def read(self, key: str, parse: Callable[[str], Json]) -> Json:
        """The value of the entry; None if it is missing or invalid."""
        if not self.text(key):
            return None
        try:
            return parse(self.text(key))
        except ValueError as error:
            self.problems.append(f"{key}: {error}")
            return None

    def exclusion(self, key: str) -> CallerExclusion:
        entries = _split(self.text(key))
        included = [entry[1:].strip() for entry in entries if entry.startswith("!")]
        return CallerExclusion(
            tuple(entry for entry in entries if not entry.startswith("!")),
            tuple(entry for entry in included if entry),
        )

    def filters(self, key: str) -> tuple[ResourceFilterEntry, ...]:
        text = self.text(key)
        outside = _BRACKETS.sub("", text)
        if outside.strip(" ,\n\t"):
            self.problems.append(f"{key}: ignored, as not in [kind,namespace,name]: {outside!r}")
        parsed = [self._filter(key, inside) for inside in _BRACKETS.findall(text)]
        return tuple(each for each in parsed if each is not None)

    def _filter(self, key: str, inside: str) -> ResourceFilterEntry | None:
        parts = [part.strip() for part in inside.split(",")]
        if not parts[0] or len(parts) > 3 or parse_kind_selector(parts[0]).kind == "":
            self.problems.append(f"{key}: [{inside}] is not of the form [kind,namespace,name]")
            return None
        if len(parts) < 3:
            missing = "name" if len(parts) == 2 else "namespace and name"
            self.problems.append(
                f"{key}: [{inside}] has no {missing}, and so matches only objects without; "
                "write * for all"
            )
        return ResourceFilterEntry(*parts)


def _split(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _read_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"expected true or false, not {text!r}")


def _read_int(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(f"expected a whole number, not {text!r}")
    return int(text)


def _read_size(text: str) -> int:
    try:
        size = int(parse_quantity(text).value)
    except (ValueError, ArithmeticError):
        raise ValueError(f"expected a size such as 2Mi, not {text!r}") from None
    if size <= 0:
        raise ValueError(f"expected more than zero, not {text!r}")
    return size


def _read_log_level(text: str) -> str:
    if text not in LOG_LEVELS:
        raise ValueError(f"expected one of {', '.join(LOG_LEVELS)}, not {text!r}")
    return text


def _read_registry(text: str) -> str:
    if not _HOST.fullmatch(text.partition("/")[0].lower()):
        raise ValueError(f"{text!r} is not a valid DNS hostname")
    return text


def _read_json(text: str) -> Json:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None


def _read_texts(text: str) -> dict[str, str] | None:
    parsed = _read_json(text)
    if parsed is None:
        return None
    if not isinstance(parsed, dict) or not all(isinstance(v, str) for v in parsed.values()):
        raise ValueError("expected a JSON object of texts")
    return parsed


def _read_conditions(text: str) -> tuple[JsonObject, ...]:
    parsed = _read_json(text) or []
    if not isinstance(parsed, list) or not all(_is_condition(item) for item in parsed):
        raise ValueError("expected a JSON list of objects with name and expression")
    return tuple({"name": item["name"], "expression": item["expression"]} for item in parsed)


def _is_condition(item: Json) -> bool:
    return isinstance(item, dict) and all(
        isinstance(item.get(name), str) for name in ("name", "expression")
    )


def _read_selectors(text: str) -> dict[str, Json]:
    parsed = _read_json(text) or {}
    if isinstance(parsed, list) and len(parsed) <= 1:
        # Older releases wrote a list of one.
        parsed = parsed[0] if parsed else {}
    if not isinstance(parsed, dict):
        raise ValueError("expected a JSON object with namespaceSelector and objectSelector")
    chosen = parsed.get("namespaceSelector"), parsed.get("objectSelector")
    if not all(selector is None or isinstance(selector, dict) for selector in chosen):
        raise ValueError("namespaceSelector and objectSelector must be label selectors")
    return {"webhook_namespace_selector": chosen[0], "webhook_object_selector": chosen[1]}


# --- filtering


# --- watching


class SettingsWatch:
    """The current settings; `run` watches the ConfigMap until cancelled."""

    def __init__(self, client: Client, names: Names) -> None:
        self.current = Settings()
        self._listeners: list[Callable[[Settings], None]] = []
        self._name = names.config_map
        self._cache = Cache(
            client,
            CONFIG_MAP,
            namespace=names.namespace,
            fields=f"metadata.name={names.config_map}",
        )
        self._cache.listen(lambda _: self._read())

    async def run(self) -> None:
        """Follow the ConfigMap. Ends only when cancelled."""
        await self._cache.run()

    async def wait(self) -> None:
        """Wait until the ConfigMap, or its absence, was read."""
        await self._cache.wait()

    def listen(self, listener: Callable[[Settings], None]) -> None:
        """Call `listener` with the new settings when they change; it must not block."""
        self._listeners.append(listener)

    def _read(self) -> None:
        found = self._cache.list()
        settings = read_settings(found[0] if found else None)
        if settings == self.current:
            return
        self.current = settings
        for problem in settings.problems:
            log.warning("setting ignored", extra={"config_map": self._name, "why": problem})
        for listener in self._listeners:
            listener(settings)
