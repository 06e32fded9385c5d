"""How does Grafana read a dashboard? Panels in rows become its JSON."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lictor.raw import Json, JsonObject

_COLUMNS: Final = 24
_SCHEMA: Final = 39
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class PanelQuery(msgspec.Struct, frozen=True):
    """One expression, and what its series are called."""

    expression: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True):
    """One picture."""

    title: str
    queries: tuple[PanelQuery, ...]
    unit: str = "short"
    type: str = "timeseries"
    width: int = 8
    help: str = ""
    # From this value on it is red; below it, green. None: it has no good or bad.
    alarm_from: float | None = None


class PanelRow(msgspec.Struct, frozen=True):
    """Panels under one heading."""

    title: str
    height: int
    panels: tuple[Panel, ...]


def render_dashboard(uid: str, title: str, rows: Iterable[PanelRow]) -> JsonObject:
    """A dashboard, as Grafana imports it."""
    return {
        "uid": uid,
        "title": title,
        "tags": ["lictor", "kubernetes", "policy"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "templating": {"list": _build_variables()},
        "panels": list(_build_panels(rows)),
    }


def _build_variables() -> list[JsonObject]:
    return [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
        },
        {
            "name": "namespace",
            "label": "Namespace",
            "type": "query",
            "datasource": _SOURCE,
            "query": "label_values(kyverno_info, namespace)",
            "refresh": 2,
            "includeAll": True,
            # Also series without a namespace, as those of `lictor up`.
            "allValue": ".*",
            "multi": False,
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _build_panels(rows: Iterable[PanelRow]) -> Iterator[JsonObject]:
    number = top = 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        top, left = top + 1, 0
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                top, left = top + row.height, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": row.height}
            yield {"id": number, "gridPos": place, **_build_panel(panel)}
            left += panel.width
        top += row.height


def _build_panel(panel: Panel) -> JsonObject:
    return {
        "type": panel.type,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": _build_field(panel), "overrides": []},
        "options": _build_options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "instant": panel.type != "timeseries",
                "range": panel.type == "timeseries",
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _build_field(panel: Panel) -> JsonObject:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.alarm_from is not None:
        steps.append({"color": "red", "value": panel.alarm_from})
    field: JsonObject = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.type == "timeseries":
        field["custom"] = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
    return field


def _build_options(panel: Panel) -> JsonObject:
    if panel.type == "timeseries":
        return {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.type == "bargauge":
        return {"reduceOptions": reduce, "orientation": "horizontal", "displayMode": "basic"}
    is_graded = panel.alarm_from is not None
    return {
        "reduceOptions": reduce,
        "colorMode": "background" if is_graded else "value",
        "graphMode": "none",
    }
