"""Write the tables of docs/reference/metrics.md: every metric of the program."""

from collections.abc import Iterator
from pathlib import Path

from lictor.kubernetes.metrics import PARTS, MetricDescription

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
BEGIN = (
    "<!-- The tables are made by scripts/make_metrics.py from the program; a test compares. -->\n"
)
END = "<!-- End of the tables. -->\n"
NOTES = {
    "Policies": "An invalid policy has one entry without a rule.",
    "Notifications": "Of the [web UI](../guides/web-ui.md#notifications).",
    "Policy server": "Of [`lictor policy-server`](../guides/wasm.md#policy-server).",
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
