"""Write the dashboard for Grafana and the alerts for Prometheus into the folder dashboards."""

from pathlib import Path

from lictor.core.report.yaml_text import render_yaml
from lictor.install.monitoring import build_rule_groups, render_dashboard_file

FOLDER = Path(__file__).parents[1] / "dashboards"


def render_files() -> dict[Path, str]:
    """The files and what stands in them."""
    return {
        FOLDER / "lictor.json": render_dashboard_file(),
        FOLDER / "alerts.yaml": render_yaml({"groups": build_rule_groups()}),
    }


if __name__ == "__main__":
    for file, text in render_files().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
