"""The form that filters results, and the values of the current filter."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.addresses import LIST_PARTS, NOTHING, TEXT_PARTS
from lictor.addons.web.pages.page import PageContext
from lictor.addons.web.records import ResultFilter

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


class ChosenValue(msgspec.Struct, frozen=True):
    """One value of a filter, and the filter without it."""

    title: str
    text: str
    rest: ResultFilter


class FilterChoice(msgspec.Struct, frozen=True):
    """A list of values of the form; a field for text if there are too many."""

    name: str
    title: str
    # Value and text.
    options: tuple[tuple[str, str], ...] = ()
    current: str = ""
    hint: str = ""


class FilterForm(msgspec.Struct, frozen=True):
    """What the form of a filter contains beside its fixed fields."""

    choices: tuple[FilterChoice, ...]
    # Are filters used that are hidden at first?
    is_open: bool
    # Parts of the filter for which the form has no field.
    kept: tuple[tuple[str, str], ...]


def build_filter_form(context: PageContext, chosen: ResultFilter) -> FilterForm:
    """The form that shows a filter and changes it."""
    names = [name for name, *_ in _CHOICES]
    choices = [
        _build_choice(context, name, title, chosen)
        for name, title, _ in _CHOICES
        if name != "cluster" or context.is_plural
    ]
    is_used = any(getattr(chosen, LIST_PARTS[name]) for name in (*names, "property"))
    kept = [("rule", rule) for rule in chosen.rules]
    for name in (*names, "property"):
        kept += [(name, value or NOTHING) for value in getattr(chosen, LIST_PARTS[name])[1:]]
    return FilterForm(
        (*choices, _build_within(chosen)),
        is_used or any((chosen.name, chosen.namespace_labels, chosen.within)),
        tuple(kept),
    )


def _build_choice(
    context: PageContext, name: str, title: str, chosen: ResultFilter
) -> FilterChoice:
    values: tuple[str, ...] = getattr(chosen, LIST_PARTS[name])
    options = list_options(context, name)
    current = values[0] if values else None
    selected = "" if current is None else current or NOTHING
    if len(options) > _MOST_OPTIONS:
        return FilterChoice(name, title, (), selected, f"one of {len(options):,}")
    if current is not None and current not in options:
        options = [current, *options]
    listed = [(value or NOTHING, value or _EMPTY_WORDS.get(name, "none")) for value in options]
    return FilterChoice(name, title, (("", "any"), *listed), selected)


def list_options(context: PageContext, name: str) -> list[str]:
    """The values of a field in all results, sorted; the current filter does not limit them."""
    groups = context.state.results.count(ResultFilter(), context.viewer, (name,))
    return sorted(group.key[0] for group in groups)


def _build_within(chosen: ResultFilter) -> FilterChoice:
    current = addresses.write_within(chosen.within)
    words = {"": "any time", **_WITHIN}
    # A day can be written in two ways.
    known = {addresses.write_within(addresses.read_within(key)) or key: key for key in words}
    if current not in known:
        words[current] = f"the last {current}"
    selected = known.get(current, current)
    return FilterChoice(addresses.WITHIN, "Reported within", tuple(words.items()), selected)


def describe_filter(chosen: ResultFilter, path: str) -> Mapping[str, object]:
    """What templates show of the filter of a page."""
    return {"chosen": chosen, "path": path, "chosen_values": list_chosen(chosen)}


def list_chosen(chosen: ResultFilter) -> list[ChosenValue]:
    """Every value of a filter, with the filter that is left without it."""
    return [
        ChosenValue(_TITLES.get(name, name), value or _EMPTY_WORDS.get(name, "none"), rest)
        for name, value, rest in _list_without_one(chosen)
    ]


def _list_without_one(chosen: ResultFilter) -> list[tuple[str, str, ResultFilter]]:
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
