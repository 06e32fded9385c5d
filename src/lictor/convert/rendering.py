"""What `convert` prints: new policies, their fields in the order of reading, and differences."""

from collections.abc import Iterator, Sequence

import orjson

from lictor.convert.comparison import Comparison, Difference, Said
from lictor.raw import Json, JsonObject
from lictor.report.resource_name import name_resource
from lictor.report.yaml_text import render_scalar

_MOST_SHOWN = 5


def render_documents(documents: Sequence[JsonObject], *, as_json: bool) -> str:
    """The documents as one text, ending in a newline."""
    if not as_json:
        return "---\n".join(_render_yaml(document) for document in documents)
    whole = documents[0] if len(documents) == 1 else _list_of(documents)
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode() + "\n"


def _list_of(documents: Sequence[JsonObject]) -> JsonObject:
    return {"apiVersion": "v1", "kind": "List", "items": list(documents)}


def _render_yaml(document: JsonObject) -> str:
    return "".join(f"{line}\n" for line in _lines(document, ""))


def _lines(value: Json, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(f"{indent}{render_scalar(str(key))}:", item, indent)
        return
    for item in value:
        if not isinstance(item, dict) or not item:
            yield f"{indent}- {_leaf(item, indent)}"
            continue
        first, *rest = _lines(item, f"{indent}  ")
        yield f"{indent}- {first.lstrip()}"
        yield from rest


def _entry(start: str, item: Json, indent: str) -> Iterator[str]:
    if isinstance(item, dict) and item:
        yield start
        yield from _lines(item, f"{indent}  ")
    elif isinstance(item, list) and item:
        yield start
        yield from _lines(item, indent)
    else:
        yield f"{start} {_leaf(item, indent)}"


def _leaf(value: Json, indent: str) -> str:
    return render_scalar(value, indent) if isinstance(value, str) else orjson.dumps(value).decode()


def render_comparison(policy: str, comparison: Comparison, notes: Sequence[str]) -> list[str]:
    """What is to be said of one converted policy."""
    lines = [f"{policy}: note: {note}" for note in notes]
    count = len(comparison.differences)
    judged = f"{comparison.judged} requests judged by both forms, {comparison.refused} refused"
    if not count:
        return [*lines, f"{policy}: converted; {judged}; no difference"]
    lines.append(f"{policy}: converted; {judged}; {count} judged differently")
    for difference in comparison.differences[:_MOST_SHOWN]:
        lines += _describe(difference)
    if count > _MOST_SHOWN:
        lines.append(f"  ... and {count - _MOST_SHOWN} more")
    return lines


def render_refusal(policy: str, reason: str) -> str:
    """A policy that has no equivalent."""
    return f"{policy}: refused; {reason}"


def _describe(difference: Difference) -> Iterator[str]:
    request = difference.request
    subresource = f"/{request.subresource}" if request.subresource else ""
    yield f"  {request.operation} {name_resource(request.resource)}{subresource}"
    yield f"    classic: {_tell(difference.before)}"
    yield from (f"      {words}" for words in difference.words_before)
    yield f"    new:     {_tell(difference.after)}"
    yield from (f"      {words}" for words in difference.words_after)
    yield f"    resource: {orjson.dumps(request.resource).decode()}"


def _tell(said: Said) -> str:
    told = ["refused" if said.refuses else "not refused"]
    if said.refuses:
        told.append("let pass" if said.allows else "blocked")
    if said.changed is not None:
        told.append(f"changed to {orjson.dumps(said.changed).decode()}")
    if said.made:
        told.append(f"{len(said.made)} objects made")
    return ", ".join(told)
