"""Global context entries: one source, and projections that can be read."""

from collections.abc import Iterator

from lictor.errors import LictorError
from lictor.lang.duration import parse_duration
from lictor.lint.catalog import flag
from lictor.lint.expressions import ANYTHING, check_query
from lictor.lint.part import Part
from lictor.model.finding import Finding
from lictor.raw import Json

_CHECK = "bad-context"


def lint_global_context(body: Json) -> list[Finding]:
    """What is wrong with a GlobalContextEntry, as plain JSON of any shape."""
    entry = Part(body)
    spec = entry["spec"]
    findings = [*_check_sources(spec), *_check_resource(spec["kubernetesResource"])]
    findings += _check_call(spec["apiCall"])
    for projection in spec["projections"].each():
        findings += _check_projection(projection, entry["metadata"]["name"].text)
    return findings


def _check_sources(spec: Part) -> Iterator[Finding]:
    if len(spec.present("kubernetesResource", "apiCall")) != 1:
        message = "a global context entry has either kubernetesResource or apiCall"
        yield flag(_CHECK, spec.path, message)


def _check_resource(resource: Part) -> Iterator[Finding]:
    if not resource:
        return
    for name in ("version", "resource"):
        if not resource[name].text:
            yield flag(_CHECK, resource.path, f'"{name}" of the resources is missing')
    if not resource["group"].text and resource["version"].text not in ("", "v1"):
        yield flag(_CHECK, resource.path, '"group" of the resources is missing')


def _check_call(call: Part) -> Iterator[Finding]:
    if not call:
        return
    if len([name for name in ("urlPath", "service") if not call[name].is_empty]) != 1:
        yield flag(_CHECK, call.path, "an API call has either urlPath or service")
    if not call["data"].is_empty and call["method"].text != "POST":
        yield flag(_CHECK, call["method"].path, "an API call with data needs the method POST")
    interval = call["refreshInterval"]
    if interval and not _is_positive(interval.text):
        message = f'expected a duration above zero, found "{interval.text}"'
        yield flag(_CHECK, interval.path, message)


def _is_positive(text: str) -> bool:
    try:
        return parse_duration(text) > 0
    except (LictorError, ValueError):
        return False


def _check_projection(projection: Part, entry: str) -> Iterator[Finding]:
    name, query = projection["name"], projection["jmesPath"]
    if not name.text:
        yield flag(_CHECK, projection.path, "a projection needs a name")
    elif name.text == entry:
        message = "a projection needs another name than its entry"
        yield flag(_CHECK, name.path, message)
    if not query.text:
        yield flag(_CHECK, projection.path, "a projection needs a jmesPath")
    else:
        yield from check_query(query, ANYTHING)
