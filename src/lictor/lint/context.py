"""Checks of context entries: a unique name, exactly one source, and a use."""

import re
from collections.abc import Iterator

from lictor.core.errors import LictorError
from lictor.core.lang.duration import parse_duration
from lictor.core.model.finding import Finding
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.expressions import ANY_VARIABLE, check_query
from lictor.lint.field import Field, list_loops

_CHECK = "bad-context"


def lint_global_context(body: Json) -> list[Finding]:
    """The findings of a GlobalContextEntry, as plain JSON of any shape."""
    entry = Field(body)
    spec = entry["spec"]
    findings = [*_check_entry_sources(spec), *_check_resource(spec["kubernetesResource"])]
    findings += _check_global_call(spec["apiCall"])
    for projection in spec["projections"].each():
        findings += _check_projection(projection, entry["metadata"]["name"].text)
    return findings


def _check_entry_sources(spec: Field) -> Iterator[Finding]:
    if len(spec.present("kubernetesResource", "apiCall")) != 1:
        message = "a global context entry has either kubernetesResource or apiCall"
        yield flag(_CHECK, spec.path, message)


def _check_resource(resource: Field) -> Iterator[Finding]:
    if not resource:
        return
    for name in ("version", "resource"):
        if not resource[name].text:
            yield flag(_CHECK, resource.path, f'"{name}" of the resources is missing')
    if not resource["group"].text and resource["version"].text not in ("", "v1"):
        yield flag(_CHECK, resource.path, '"group" of the resources is missing')


def _check_global_call(call: Field) -> Iterator[Finding]:
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


def _check_projection(projection: Field, entry: str) -> Iterator[Finding]:
    name, query = projection["name"], projection["jmesPath"]
    if not name.text:
        yield flag(_CHECK, projection.path, "a projection needs a name")
    elif name.text == entry:
        message = "a projection needs another name than its entry"
        yield flag(_CHECK, name.path, message)
    if not query.text:
        yield flag(_CHECK, projection.path, "a projection needs a jmesPath")
    else:
        yield from check_query(query, ANY_VARIABLE)


SOURCES = ("configMap", "apiCall", "imageRegistry", "variable", "globalReference")
_TAKEN = (
    "images",
    "request",
    "serviceAccountName",
    "serviceAccountNamespace",
    "element",
    "elementIndex",
)
_WORD = re.compile(r"\w+")


def check_rule_context(rule: Field) -> Iterator[Finding]:
    """All context entries of a rule."""
    yield from check_context(rule["context"], rule)
    for body in ("validate", "mutate", "generate"):
        for loop in list_loops(rule[body]):
            yield from check_context(loop["context"], rule)
    for target in rule["mutate"]["targets"].each():
        yield from check_context(target["context"], rule)
    if rule["validate"]["cel"] and not rule["context"].is_empty:
        message = "CEL expressions do not see context entries: use cel.variables"
        yield flag("bad-context", rule["context"].path, message)
    if rule["validate"]["assert"]:
        yield from _check_bindings(rule["context"])


def check_context(context: Field, user: Field) -> Iterator[Finding]:
    """The entries of one list; `user` is the part that may use them."""
    seen: set[str] = set()
    for entry in context.each():
        name = entry["name"].text
        yield from _check_name(entry, seen)
        yield from _check_sources(entry)
        if name and not _mentions(name, user, entry):
            message = f'nothing uses the context entry "{name}"'
            yield flag("unused-context", entry["name"].path, message)
        seen.add(name)


def _check_name(entry: Field, seen: set[str]) -> Iterator[Finding]:
    name = entry["name"].text
    taken = next((t for t in _TAKEN if name == t or name.startswith(f"{t}.")), None)
    if taken is not None:
        message = f'"{name}" is taken: {taken} is a variable of every rule'
        yield flag("bad-context", entry["name"].path, message)
    # An entry that uses its own name builds on the earlier one.
    elif name and name in seen and not _mentions(name, entry, entry["name"]):
        message = f'a context entry "{name}" stands here already; the last one counts'
        yield flag("duplicate-context", entry["name"].path, message)


def _check_sources(entry: Field) -> Iterator[Finding]:
    sources = entry.present(*SOURCES)
    if len(sources) != 1:
        found = " and ".join(sources) or "none"
        message = f"expected exactly one of {', '.join(SOURCES)}, found {found}"
        yield flag("bad-context", entry.path, message)
        return
    source = entry[sources[0]]
    match sources[0]:
        case "variable":
            yield from _check_variable(source)
        case "configMap":
            yield from _require(source, "name", "namespace")
        case "imageRegistry":
            yield from _require(source, "reference")
        case "apiCall":
            yield from _check_call(source)


def _require(source: Field, *names: str) -> Iterator[Finding]:
    for name in names:
        if not source[name].text:
            message = f'"{name}" is missing'
            yield flag("bad-context", source.path, message)


def _check_variable(variable: Field) -> Iterator[Finding]:
    if not variable["value"] and not variable["jmesPath"].text:
        message = "a variable needs a value or a jmesPath"
        yield flag("bad-context", variable.path, message)
    if variable["default"] and not variable["jmesPath"].text:
        message = "a default is used only where a jmesPath finds nothing: there is no jmesPath"
        yield flag("bad-context", variable["default"].path, message)


def _check_call(call: Field) -> Iterator[Finding]:
    given = call.present("urlPath", "service")
    if len(given) != 1:
        found = " and ".join(given) or "none"
        message = f"expected exactly one of urlPath and service, found {found}"
        yield flag("bad-context", call.path, message)


def _check_bindings(context: Field) -> Iterator[Finding]:
    for entry in context.each():
        name = entry["name"]
        if not _WORD.fullmatch(name.text):
            message = f'"{name.text}" is not one word, as a rule with assert needs it'
            yield flag("bad-context", name.path, message).with_code("not-one-word", name.text)


def _mentions(name: str, whole: Field, but: Field) -> bool:
    """Whether the name occurs outside of a part; compares letters, to avoid false warnings."""
    root = re.escape(name.partition(".")[0])
    # re: linear - fixed letters between conditions
    word = re.compile(rf"(?<![A-Za-z0-9_.-]){root}(?![A-Za-z0-9_-])")
    return any(
        word.search(leaf.text) is not None
        for leaf in whole.leaves()
        if leaf.path[: len(but.path)] != but.path and _may_ask(leaf)
    )


def _may_ask(leaf: Field) -> bool:
    """Whether this text can contain an expression."""
    return "{{" in leaf.text or leaf.path[-1] in ("jmesPath", "list") or "assert" in leaf.path
