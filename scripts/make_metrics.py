"""Write the tables of docs/metrics.md: every metric, as the program itself declares it."""

from collections.abc import Iterator
from pathlib import Path

from lictor.cluster.metrics import PARTS, MetricDescription

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN = (
    "<!-- The tables are made by scripts/make_metrics.py from the program; a test compares. -->\n"
)
END = "<!-- End of the tables. -->\n"
NOTES = {
    "Policies": "A policy that cannot be read has one line, without a rule.",
    "Notifications": "Of the report page, where it sends notifications.",
    "Policy server": "Of [`lictor policy-server`](policy-server.md), which also pushes them.",
}


def render_page(text: str) -> str:
    """The page with its tables made anew."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    tables = "\n".join(_render_parts())
    return f"{head}{BEGIN}\n{tables}\n{END}{tail}"


def _render_parts() -> Iterator[str]:
    for title, metrics in PARTS.items():
        yield f"## {title}\n"
        if title in NOTES:
            yield f"{NOTES[title]}\n"
        yield "| metric | type | labels | |\n|---|---|---|---|"
        yield from map(_render_metric, metrics)
        yield ""


def _render_metric(metric: MetricDescription) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    if metric.values:
        labels += f" ({', '.join(metric.values)})"
    return f"| `{metric.shown_name}` | {metric.type} | {labels} | {metric.help} |"


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text()))
