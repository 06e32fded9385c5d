"""Values of the chart -> the entries of the two ConfigMaps."""

import json
from difflib import get_close_matches
from typing import Final

from lictor.core.errors import UsageError
from lictor.core.raw import Json, JsonObject
from lictor.install.arguments import write_text
from lictor.install.values import CONTROLLERS

SETTINGS: Final = frozenset({
    "resourceFilters", "defaultRegistry", "enableDefaultRegistryMutation", "excludeGroups",
    "excludeUsernames", "excludeRoles", "excludeClusterRoles", "generateSuccessEvents",
    "successEventActions", "webhooks", "webhookAnnotations", "webhookLabels", "matchConditions",
    "updateRequestThreshold", "maxContextSize", "logLevel",
})  # fmt: skip
# As they stand in the values.
_PLAIN = (
    "defaultRegistry",
    "enableDefaultRegistryMutation",
    "excludeGroups",
    "excludeUsernames",
    "excludeRoles",
    "excludeClusterRoles",
    "generateSuccessEvents",
    "successEventActions",
    "maxContextSize",
    "updateRequestThreshold",
)
_STRUCTURED = ("webhookAnnotations", "webhookLabels", "matchConditions")


def check_settings(settings: JsonObject) -> None:
    """Reject entries that no controller reads."""
    for name in settings:
        if name not in SETTINGS:
            close = get_close_matches(name, SETTINGS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"unknown setting {name}{hint}")


def build_settings(config: JsonObject, prefix: str, namespace: str) -> dict[str, str]:
    """The settings, as `config` of the values has them; its `settings` win."""
    entries = {name: write_text(config.get(name)) for name in _PLAIN}
    entries["resourceFilters"] = " ".join(_list_filters(config, prefix, namespace))
    entries["webhooks"] = _write(_build_webhooks(config.get("webhooks") or {}, namespace))
    for name in _STRUCTURED:
        entries[name] = _write(config[name]) if config.get(name) else ""
    given = {name: write_text(text) for name, text in (config.get("settings") or {}).items()}
    return {name: text for name, text in {**entries, **given}.items() if text}


def _build_webhooks(webhooks: JsonObject, namespace: str) -> JsonObject:
    """Requests about our own namespace never come to us: else we could not come back."""
    ours = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]}
    selector = webhooks.get("namespaceSelector") or {}
    expressions = [*(selector.get("matchExpressions") or ()), ours]
    made: JsonObject = {"namespaceSelector": {**selector, "matchExpressions": expressions}}
    if webhooks.get("objectSelector"):
        made["objectSelector"] = webhooks["objectSelector"]
    return made


def _list_filters(config: JsonObject, prefix: str, namespace: str) -> list[str]:
    """What no policy concerns, our own objects among it."""
    left_out = [f",{each}," for each in config.get("resourceFiltersExcludeNamespaces") or ()]
    excluded = config.get("resourceFiltersExclude") or ()
    usual = [
        each
        for each in config.get("resourceFilters") or ()
        if each not in excluded and not any(part in each for part in left_out)
    ]
    added = config.get("resourceFiltersIncludeNamespaces") or ()
    return [
        *([f"[*/*,{namespace},*]"] if config.get("excludeKyvernoNamespace") else ()),
        *usual,
        *list_own_filters(prefix),
        *(config.get("resourceFiltersInclude") or ()),
        *(f"[*/*,{each},*]" for each in added),
    ]


def list_own_filters(prefix: str) -> list[str]:
    """Our own roles and bindings."""
    roles = [f"{prefix}:{controller}-controller" for controller in CONTROLLERS]
    return [
        *(f"[ClusterRole,*,{role}{end}]" for role in roles for end in ("", ":core")),
        *(f"[ClusterRoleBinding,*,{role}{end}]" for role in roles for end in ("", ":view")),
    ]


def build_metrics_settings(metrics: JsonObject) -> dict[str, str]:
    """What is measured, as `metricsConfig` of the values has it."""
    namespaces = metrics.get("namespaces") or {}
    chosen = {name: namespaces.get(name) or [] for name in ("exclude", "include")}
    exposure = metrics.get("metricsExposure")
    entries = {
        "namespaces": _write(chosen),
        "bucketBoundaries": ", ".join(map(write_text, metrics.get("bucketBoundaries") or ())),
        "metricsExposure": _write(exposure) if exposure else "",
        "metricsRefreshInterval": metrics.get("metricsRefreshInterval") or "",
    }
    return {name: text for name, text in entries.items() if text}


def _write(value: Json) -> str:
    # The order in which Helm writes them.
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
