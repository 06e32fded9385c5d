"""Objects for Prometheus and Grafana: alerting rules and the dashboard."""

import tomllib
from pathlib import Path
from typing import Final

from lictor.core.raw import Json, JsonObject
from lictor.install.installation import Installation, build_object
from lictor.install.placeholders import ConditionalPart, LabelSet, OptionalValueAt

_FOLDER: Final = Path(__file__).parent
DASHBOARD_FILE: Final = "lictor.json"
_RULES: Final = "prometheusRule"
_GRAFANA: Final = "grafana"


def build_monitoring(installation: Installation) -> list[Json]:
    """The objects, each under the condition that its value is enabled; with placeholders.

    PrometheusRule is a kind of the Prometheus operator, which not every cluster has.
    """
    return [_build_rule(installation), _build_dashboard_map(installation)]


def render_dashboard_file() -> str:
    """The dashboard as a file for Grafana's import."""
    return (_FOLDER / "dashboard.json").read_text(encoding="utf-8")


def _build_rule(installation: Installation) -> Json:
    """The alerts of this installation."""
    groups = build_rule_groups(f'namespace="{installation.namespace}"')
    kind = "monitoring.coreos.com/v1/PrometheusRule"
    made = build_object(
        installation, kind, installation.prefix, "monitoring", spec={"groups": groups}
    )
    made["metadata"]["labels"] = LabelSet("monitoring", paths=(f"{_RULES}.additionalLabels",))
    made["metadata"]["annotations"] = OptionalValueAt((f"{_RULES}.additionalAnnotations",))
    return ConditionalPart((f"{_RULES}.enabled",), made)


def _build_dashboard_map(installation: Installation) -> Json:
    """A ConfigMap with the dashboard; Grafana's sidecar finds it by its labels."""
    data = {DASHBOARD_FILE: render_dashboard_file()}
    name = f"{installation.prefix}-grafana"
    made = build_object(installation, "v1/ConfigMap", name, "monitoring", data=data)
    made["metadata"]["labels"] = LabelSet("monitoring", paths=(f"{_GRAFANA}.labels",))
    made["metadata"]["annotations"] = OptionalValueAt((f"{_GRAFANA}.annotations",))
    return ConditionalPart((f"{_GRAFANA}.enabled",), made)


# In alerts.toml: the matchers that select the series of one installation.
_SELECTOR: Final = "SELECTOR"
_RUNBOOKS: Final = "docs/operate/runbooks.md"


def build_rule_groups(selector: str = "") -> list[JsonObject]:
    """The groups of a rule file, or of a PrometheusRule.

    `selector`: matchers of the series of one installation, such as `namespace="lictor"`.
    """
    alerts = tomllib.loads((_FOLDER / "alerts.toml").read_text(encoding="utf-8"))
    return [
        {"name": group, "rules": [_build_alert(each, selector) for each in rules.items()]}
        for group, rules in alerts.items()
    ]


def _build_alert(named: tuple[str, Json], selector: str) -> JsonObject:
    name, alert = named
    return {
        "alert": name,
        "expr": alert["expr"].replace(_SELECTOR, selector),
        "for": alert["for"],
        "labels": {"severity": alert["severity"]},
        "annotations": {"summary": alert["summary"], "runbook": f"{_RUNBOOKS}#{name.lower()}"},
    }
