"""The form that chooses results, and what is chosen, as links that take it away again."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from lictor.addons.web.markup import Html, element
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.addresses import LIST_PARTS, NOTHING, TEXT_PARTS
from lictor.addons.web.pages.page import PageContext
from lictor.addons.web.records import SEVERITIES, STATUSES, ResultFilter

_MOST_OPTIONS = 200
_WITHIN = {"1h": "the last hour", "24h": "the last day", "7d": "the last 7 days"}
# Parameter, title, and what an empty value means.
_CHOICES = (
    ("cluster", "Cluster", ""),
    ("namespace", "Namespace", "cluster-wide"),
    ("policy", "Policy", "no policy"),
    ("kind", "Kind", "no kind"),
    ("category", "Category", "no category"),
    ("source", "Source", "no source"),
)
_TITLES = {
    **{name: title for name, title, _ in _CHOICES},
    "rule": "Rule",
    "status": "Status",
    "severity": "Severity",
    "property": "Property",
    "labels": "Namespace labels",
    "name": "Name",
    "q": "Text",
    addresses.WITHIN: "Within",
}
_EMPTY_WORDS = {
    **{name: word for name, _, word in _CHOICES if word},
    "severity": "no severity",
    "rule": "no rule",
}


def render_filter_form(context: PageContext, chosen: ResultFilter, path: str) -> Html:
    """Every part of a filter; it works without a script."""
    return element(
        "form",
        element(
            "div",
            _render_search(chosen),
            _render_boxes("Status", "status", STATUSES, chosen.statuses),
            _render_boxes("Severity", "severity", SEVERITIES, chosen.severities),
            class_="row",
        ),
        _render_more(context, chosen),
        element("button", "Apply", type="submit", class_="primary"),
        _keep_others(chosen),
        method="get",
        action=context.link(path),
        class_="filters",
        role="search",
    )


def _render_search(chosen: ResultFilter) -> Html:
    return element(
        "label",
        element("span", "Search"),
        element(
            "input",
            type="search",
            name="q",
            value=chosen.text,
            placeholder="message, policy, rule or resource",
        ),
        class_="field search",
    )


def _render_boxes(title: str, name: str, values: Sequence[str], chosen: Sequence[str]) -> Html:
    boxes = [
        element(
            "label",
            element(
                "input",
                type="checkbox",
                name=name,
                value=value or NOTHING,
                checked=value in chosen,
            ),
            element("span", value.capitalize() or "None"),
            class_=f"box {value}",
        )
        for value in values
    ]
    return element("fieldset", element("legend", title), element("div", boxes), class_="boxes")


def _render_more(context: PageContext, chosen: ResultFilter) -> Html:
    choices = [
        _render_choice(context, name, title, chosen)
        for name, title, _ in _CHOICES
        if name != "cluster" or context.is_plural
    ]
    parts = [LIST_PARTS.get(name, "") for name, *_ in _CHOICES]
    is_used = any(getattr(chosen, part) for part in parts)
    is_used = is_used or any((chosen.name, chosen.namespace_labels, chosen.within))
    return element(
        "details",
        element("summary", "More filters"),
        element(
            "div",
            choices,
            _render_within(chosen),
            _render_text("name", "Resource name", chosen.name, "exact name"),
            _render_text("labels", "Namespace labels", chosen.namespace_labels, "team=shop"),
            _render_text("property", "Property", "".join(chosen.properties[:1]), "key=value"),
            class_="row",
        ),
        open=bool(is_used or chosen.properties),
    )


def _render_choice(context: PageContext, name: str, title: str, chosen: ResultFilter) -> Html:
    part = LIST_PARTS[name]
    values: tuple[str, ...] = getattr(chosen, part)
    options = list_options(context, name)
    current = values[0] if values else None
    if len(options) > _MOST_OPTIONS:
        # A list of thousands helps nobody: the name is typed.
        text = "" if current is None else current or NOTHING
        return _render_text(name, title, text, f"one of {len(options):,}")
    if current is not None and current not in options:
        options = [current, *options]
    listed = [element("option", "any", value="")]
    listed += [_render_option(name, value, current) for value in options]
    return element(
        "label", element("span", title), element("select", listed, name=name), class_="field"
    )


def _render_option(name: str, value: str, current: str | None) -> Html:
    text = value or _EMPTY_WORDS.get(name, "none")
    return element("option", text, value=value or NOTHING, selected=value == current)


def list_options(context: PageContext, name: str) -> list[str]:
    """The values that results have, by name; of all results, whatever is chosen now."""
    field = "cluster" if name == "cluster" else name
    groups = context.state.results.count(ResultFilter(), context.viewer, (field,))
    return sorted(group.key[0] for group in groups)


def _render_within(chosen: ResultFilter) -> Html:
    current = addresses.write_within(chosen.within)
    words = {"": "any time", **_WITHIN}
    # A day can be written in two ways.
    known = {addresses.write_within(addresses.read_within(key)) or key: key for key in words}
    if current not in known:
        words[current] = f"the last {current}"
    selected = known.get(current, current)
    options = [
        element("option", text, value=value, selected=value == selected)
        for value, text in words.items()
    ]
    return element(
        "label",
        element("span", "Reported within"),
        element("select", options, name=addresses.WITHIN),
        class_="field",
    )


def _render_text(name: str, title: str, value: str, hint: str) -> Html:
    box = element("input", type="text", name=name, value=value, placeholder=hint)
    return element("label", element("span", title), box, class_="field")


def _keep_others(chosen: ResultFilter) -> list[Html]:
    """What the form has no field for: further values of a part, and rules."""
    kept: list[tuple[str, str]] = [("rule", rule) for rule in chosen.rules]
    for name in (*(name for name, *_ in _CHOICES), "property"):
        kept += [(name, value) for value in getattr(chosen, LIST_PARTS[name])[1:]]
    return [
        element("input", type="hidden", name=name, value=value or NOTHING) for name, value in kept
    ]


def render_chosen(context: PageContext, chosen: ResultFilter, path: str) -> Html | None:
    """What is chosen, each with a link that takes it away; nothing where nothing is."""
    items = [
        element("li", _render_chip(context, path, name, value, rest))
        for name, value, rest in _list_without_one(chosen)
    ]
    if not items:
        return None
    clear = element("a", "Clear all", href=context.link(path))
    return element("ul", items, element("li", clear), class_="chips", aria_label="Chosen filters")


def _render_chip(
    context: PageContext, path: str, name: str, value: str, rest: ResultFilter
) -> Html:
    text = value or _EMPTY_WORDS.get(name, "none")
    return element(
        "a",
        element("span", f"{_TITLES.get(name, name)}: ", class_="quiet"),
        text,
        element("span", " ×", aria_hidden="true"),  # noqa: RUF001  (a cross to close)
        element("span", " (remove)", class_="unseen"),
        href=context.link(path, rest),
        class_="chip",
    )


def _list_without_one(chosen: ResultFilter) -> list[tuple[str, str, ResultFilter]]:
    """Each value that is chosen, with the filter that is left without it."""
    found: list[tuple[str, str, ResultFilter]] = []
    for name, part in LIST_PARTS.items():
        values: tuple[str, ...] = getattr(chosen, part)
        for value in values:
            left = tuple(other for other in values if other != value)
            found.append((name, value, _change(chosen, part, left)))
    for name, part in TEXT_PARTS.items():
        if getattr(chosen, part):
            found.append((name, getattr(chosen, part), _change(chosen, part, "")))
    if chosen.within:
        text = addresses.write_within(chosen.within)
        found.append((addresses.WITHIN, text, replace(chosen, within=0)))
    return found


def _change(chosen: ResultFilter, part: str, value: tuple[str, ...] | str) -> ResultFilter:
    changed: Mapping[str, tuple[str, ...] | str] = {part: value}
    return msgspec.structs.replace(chosen, **changed)
