"""Do two forms of a policy decide alike? Both evaluate the same requests."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.facts.resource_names import ResourceNames
from lictor.core.model.request import Request
from lictor.core.model.result import RuleType, Status, Verdict
from lictor.core.ports import ApiCall, NoLookups
from lictor.core.raw import Json, JsonObject
from lictor.core.report.manifest_text import render_manifest
from lictor.core.report.resource_name import name_resource


class SampleLookups(NoLookups):
    """Returns given objects, any namespace, and one sample of any other kind."""

    def __init__(self, names: ResourceNames, given: Iterable[JsonObject] = ()) -> None:
        self._names = names
        self._given = [each for each in given if isinstance(each.get("metadata"), dict)]

    def config_map(self, namespace: str, name: str) -> JsonObject:
        found = self.resource("v1", "ConfigMap", namespace, name)
        return found if found is not None else {}

    def call_api(self, call: ApiCall) -> Json:
        version, steps = _read_path(call.url_path)
        if call.method != "GET" or not steps:
            return super().call_api(call)
        namespace, (resource, *name) = "", steps
        if resource == "namespaces" and len(name) > 1:
            namespace, resource, *name = name
        group, _, plain = version.rpartition("/")
        known = self._names.of_resource(group, plain, resource)
        if known is None:
            return super().call_api(call)
        if name:
            return self.resource(version, known.kind, namespace, name[0])
        items = self.resources(version, known.kind, namespace)
        return {"apiVersion": version, "kind": f"{known.kind}List", "items": items}

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        for each in self._alike(api_version, kind, namespace):
            if each["metadata"].get("name") == name:
                return each
        metadata: JsonObject = {"name": name}
        if namespace:
            metadata["namespace"] = namespace
        if kind == "Namespace":
            metadata["labels"] = {"kubernetes.io/metadata.name": name}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        found = list(self._alike(api_version, kind, namespace))
        if found:
            return found
        one = self.resource(api_version, kind, namespace or "default", "sample")
        return [one] if one is not None else []

    def _alike(self, api_version: str, kind: str, namespace: str) -> Iterable[JsonObject]:
        for each in self._given:
            is_kind = each.get("apiVersion") == api_version and each.get("kind") == kind
            if is_kind and namespace in ("", each["metadata"].get("namespace", "")):
                yield each


def _read_path(url: str) -> tuple[str, list[str]]:
    parts = url.partition("?")[0].strip("/").split("/")
    if parts[:1] == ["api"]:
        return "".join(parts[1:2]), parts[2:]
    return "/".join(parts[1:3]), parts[3:]


Evaluate: TypeAlias = Callable[[Request], Verdict]

_REFUSING = (Status.FAIL, Status.ERROR)
# Labels by which Kyverno finds what it made; each form has its own.
_OWN_LABELS = ("generate.kyverno.io/", "app.kubernetes.io/managed-by")


class ComparedVerdict(msgspec.Struct, frozen=True):
    """The verdict of one form of a policy for a request, as far as both forms must agree."""

    refuses: bool
    # Whether the request may go on though something was refused.
    allows: bool
    changed: Json = None
    made: tuple[JsonObject, ...] = ()


class FormDifference(msgspec.Struct, frozen=True):
    """A request for which two forms have different verdicts."""

    request: Request
    before: ComparedVerdict
    after: ComparedVerdict
    words_before: tuple[str, ...]
    words_after: tuple[str, ...]


class FormComparison(msgspec.Struct, frozen=True):
    """How many requests were evaluated and refused, and the differences."""

    evaluated: int
    refused: int
    differences: tuple[FormDifference, ...]


def compare_forms(before: Evaluate, after: Evaluate, requests: Iterable[Request]) -> FormComparison:
    """Evaluate every request by both forms."""
    evaluated = refused = 0
    differences = []
    for request in requests:
        old, new = before(request), after(request)
        verdicts = summarize_verdict(old), summarize_verdict(new)
        evaluated += 1
        refused += verdicts[0].refuses
        if verdicts[0] != verdicts[1]:
            words = (tuple(_words(old)), tuple(_words(new)))
            differences.append(FormDifference(request, *verdicts, *words))
    return FormComparison(evaluated, refused, tuple(differences))


def summarize_verdict(verdict: Verdict) -> ComparedVerdict:
    """What a verdict comes down to.

    A rule that cannot be decided refuses as one that is broken does; passing and not being
    concerned are the same.
    """
    refuses = any(result.status in _REFUSING for result in verdict.results)
    blocked = any(
        result.type is RuleType.VALIDATION
        and result.status in _REFUSING
        and str(result.action) == "Enforce"
        for result in verdict.results
    )
    original, patched = verdict.request.object, verdict.patched
    changed = patched if patched is not None and patched != original else None
    made = [each for result in verdict.results for each in result.generated]
    return ComparedVerdict(
        refuses, not blocked, changed, tuple(sorted(map(_plain, made), key=_order))
    )


def _order(made: JsonObject) -> bytes:
    return msgspec.json.encode(made, order="deterministic")


def _plain(made: JsonObject) -> JsonObject:
    metadata = made.get("metadata")
    if not isinstance(metadata, dict):
        return made
    labels = metadata.get("labels")
    kept = {
        key: value
        for key, value in (labels.items() if isinstance(labels, dict) else ())
        if not key.startswith(_OWN_LABELS)
    }
    rest = {key: value for key, value in metadata.items() if key != "labels"}
    return {**made, "metadata": {**rest, "labels": kept} if kept else rest}


def _words(verdict: Verdict) -> Iterator[str]:
    for result in verdict.results:
        name = f"{result.policy.name}/{result.rule}" if result.rule else result.policy.name
        yield f"{name}: {result.status} {result.message}".rstrip()


_MOST_SHOWN = 5


def render_documents(documents: Sequence[JsonObject], *, as_json: bool) -> str:
    """The documents as one text, ending in a newline."""
    if not as_json:
        return "---\n".join(map(render_manifest, documents))
    many = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    whole = documents[0] if len(documents) == 1 else many
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode() + "\n"


def render_comparison(policy: str, comparison: FormComparison, notes: Sequence[str]) -> list[str]:
    """The messages about one converted policy."""
    lines = [f"{policy}: note: {note}" for note in notes]
    count = len(comparison.differences)
    counts = (
        f"{comparison.evaluated} requests evaluated by both forms, {comparison.refused} refused"
    )
    if not count:
        return [*lines, f"{policy}: converted; {counts}; no difference"]
    lines.append(f"{policy}: converted; {counts}; {count} evaluated differently")
    for difference in comparison.differences[:_MOST_SHOWN]:
        lines += _describe(difference)
    if count > _MOST_SHOWN:
        lines.append(f"  ... and {count - _MOST_SHOWN} more")
    return lines


def _describe(difference: FormDifference) -> Iterator[str]:
    request = difference.request
    subresource = f"/{request.subresource}" if request.subresource else ""
    yield f"  {request.operation} {name_resource(request.resource)}{subresource}"
    yield f"    classic: {_format_verdict(difference.before)}"
    yield from (f"      {words}" for words in difference.words_before)
    yield f"    new:     {_format_verdict(difference.after)}"
    yield from (f"      {words}" for words in difference.words_after)
    yield f"    resource: {orjson.dumps(request.resource).decode()}"


def _format_verdict(outcome: ComparedVerdict) -> str:
    parts = ["refused" if outcome.refuses else "not refused"]
    if outcome.refuses:
        parts.append("let pass" if outcome.allows else "blocked")
    if outcome.changed is not None:
        parts.append(f"changed to {orjson.dumps(outcome.changed).decode()}")
    if outcome.made:
        parts.append(f"{len(outcome.made)} objects made")
    return ", ".join(parts)
