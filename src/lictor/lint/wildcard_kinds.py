"""Rules about kinds that are not named: all kinds at once, and subresources in scans."""

from collections.abc import Iterator

from lictor.lang.kind_selector import parse_kind_selector
from lictor.lint.catalog import flag
from lictor.lint.kinds import SUBRESOURCE_KINDS
from lictor.lint.match import list_filters
from lictor.lint.part import Part
from lictor.model.finding import Finding


def check_wildcard_kinds(rule: Part, *, background: bool) -> Iterator[Finding]:
    """What a rule about `*` cannot do."""
    for match in (rule["match"], rule["exclude"]):
        for each in list_filters(match):
            kinds = each["resources"]["kinds"]
            for kind in kinds.each():
                if kind.text == "*":
                    yield from _check_star(rule, kinds, kind, background=background)


def _check_star(rule: Part, kinds: Part, at: Part, *, background: bool) -> Iterator[Finding]:
    if background:
        message = "all kinds cannot be scanned in the background: set spec.background to false"
        yield flag("wildcard-kind", at.path, message)
    if len(kinds.texts) > 1:
        message = '"*" stands for all kinds: the others beside it say nothing'
        yield flag("wildcard-kind", at.path, message)
    unfit = [name for name in ("generate", "verifyImages") if not rule[name].is_empty]
    if rule["validate"]["foreach"]:
        unfit.append("validate.foreach")
    if unfit:
        message = f"{unfit[0]} needs to know the kind: name the kinds"
        yield flag("wildcard-kind", at.path, message)
    for part in _list_bodies(rule):
        other = next((key for key, _ in part.entries() if key != "metadata"), None)
        if other is not None:
            message = f'"{other}" is not a field of all kinds: only metadata is'
            yield flag("wildcard-kind", part[other].path, message)


def _list_bodies(rule: Part) -> Iterator[Part]:
    yield rule["validate"]["pattern"]
    yield from rule["validate"]["anyPattern"].each()
    yield rule["mutate"]["patchStrategicMerge"]


def check_subresources(rule: Part, *, background: bool) -> Iterator[Finding]:
    """A scan sees whole objects only: a rule about subresources cannot take part in it."""
    if rule["validate"].is_empty:
        return
    for each in list_filters(rule["match"]):
        for kind in each["resources"]["kinds"].each():
            selector = parse_kind_selector(kind.text)
            is_part = selector.kind in SUBRESOURCE_KINDS
            # A Binding can also be sent by itself.
            is_lost = is_part and not selector.subresource and selector.kind != "Binding"
            if is_lost and not background:
                message = (
                    f"{kind.text} is sent to subresources only, and this matches none of them: "
                    "write Kind/subresource"
                )
                yield flag("subresource-kind", kind.path, message)
            elif background and (selector.subresource or is_part):
                message = (
                    f"{kind.text} is a subresource, which background scans do not see: set "
                    "spec.background to false"
                )
                yield flag("background", kind.path, message)
