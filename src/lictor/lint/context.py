"""Context entries: has each its own name and one source, and does anyone ask for it?"""

import re
from collections.abc import Iterator

from lictor.lint.catalog import flag
from lictor.lint.part import Part
from lictor.model.finding import Finding

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


def check_rule_context(rule: Part) -> Iterator[Finding]:
    """All context entries of a rule."""
    yield from check_context(rule["context"], rule)
    for body in ("validate", "mutate", "generate"):
        yield from _check_loops(rule[body]["foreach"], rule)
    for target in rule["mutate"]["targets"].each():
        yield from check_context(target["context"], rule)
    if rule["validate"]["cel"] and not rule["context"].is_empty:
        message = "CEL expressions do not see context entries: use cel.variables"
        yield flag("bad-context", rule["context"].path, message)
    if rule["validate"]["assert"]:
        yield from _check_bindings(rule["context"])


def _check_loops(loops: Part, rule: Part) -> Iterator[Finding]:
    for loop in loops.each():
        yield from check_context(loop["context"], rule)
        yield from _check_loops(loop["foreach"], rule)


def check_context(context: Part, user: Part) -> Iterator[Finding]:
    """The entries of one list; `user` is what may ask for them."""
    seen: set[str] = set()
    for entry in context.each():
        name = entry["name"].text
        yield from _check_name(entry, seen)
        yield from _check_sources(entry)
        if name and not _mentions(name, user, entry):
            message = f'nothing uses the context entry "{name}"'
            yield flag("unused-context", entry["name"].path, message)
        seen.add(name)


def _check_name(entry: Part, seen: set[str]) -> Iterator[Finding]:
    name = entry["name"].text
    taken = next((t for t in _TAKEN if name == t or name.startswith(f"{t}.")), None)
    if taken is not None:
        message = f'"{name}" is taken: {taken} is a variable of every rule'
        yield flag("bad-context", entry["name"].path, message)
    # An entry that asks for its own name builds on the one before it.
    elif name and name in seen and not _mentions(name, entry, entry["name"]):
        message = f'a context entry "{name}" stands here already; the last one counts'
        yield flag("duplicate-context", entry["name"].path, message)


def _check_sources(entry: Part) -> Iterator[Finding]:
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


def _require(source: Part, *names: str) -> Iterator[Finding]:
    for name in names:
        if not source[name].text:
            message = f'"{name}" is missing'
            yield flag("bad-context", source.path, message)


def _check_variable(variable: Part) -> Iterator[Finding]:
    if not variable["value"] and not variable["jmesPath"].text:
        message = "a variable needs a value or a jmesPath"
        yield flag("bad-context", variable.path, message)
    if variable["default"] and not variable["jmesPath"].text:
        message = "a default is used only where a jmesPath finds nothing: there is no jmesPath"
        yield flag("bad-context", variable["default"].path, message)


def _check_call(call: Part) -> Iterator[Finding]:
    given = call.present("urlPath", "service")
    if len(given) != 1:
        found = " and ".join(given) or "none"
        message = f"expected exactly one of urlPath and service, found {found}"
        yield flag("bad-context", call.path, message)


def _check_bindings(context: Part) -> Iterator[Finding]:
    for entry in context.each():
        name = entry["name"]
        if not _WORD.fullmatch(name.text):
            message = f'"{name.text}" is not one word, as a rule with assert needs it'
            yield flag("bad-context", name.path, message)


def _mentions(name: str, whole: Part, but: Part) -> bool:
    """Does the name occur outside of a part? By its letters, so that no doubt becomes a warning."""
    root = re.escape(name.partition(".")[0])
    word = re.compile(rf"(?<![A-Za-z0-9_.-]){root}(?![A-Za-z0-9_-])")
    return any(
        word.search(leaf.text) is not None
        for leaf in whole.leaves()
        if leaf.path[: len(but.path)] != but.path and _may_ask(leaf)
    )


def _may_ask(leaf: Part) -> bool:
    """Can this text hold an expression?"""
    return "{{" in leaf.text or leaf.path[-1] in ("jmesPath", "list") or "assert" in leaf.path
