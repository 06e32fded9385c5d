"""Objects for Prometheus and Grafana: alerting rules and the dashboard."""

import json
import tomllib
from pathlib import Path
from typing import Final

from lictor.core.raw import Json, JsonObject
from lictor.install.manifest_files import load_manifests

_FOLDER: Final = Path(__file__).parent
DASHBOARD_FILE: Final = "lictor.json"


def build_monitoring() -> list[Json]:
    """The objects, each under the condition that its value is enabled; with placeholders."""
    words = {
        "RULE_GROUPS": json.dumps(build_rule_groups('namespace="<<namespace>>"')),
        "DASHBOARD_FILE": DASHBOARD_FILE,
        "DASHBOARD_TEXT": json.dumps(render_dashboard_file()),
    }
    found: list[Json] = load_manifests("monitoring.yaml", words)
    return found


def render_dashboard_file() -> str:
    """The dashboard as a file for Grafana's import."""
    return (_FOLDER / "dashboard.json").read_text(encoding="utf-8")


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
