"""Where in a rule may expressions stand, and what can they ask for there?"""

from collections.abc import Iterator

import msgspec

from lictor.lint.expressions import ANYTHING, Zone, check_query, check_text
from lictor.lint.part import Part
from lictor.model.finding import Finding

_ATTESTED = ("name", "attestors", "type", "predicateType")
_LOOPED = (
    *("preconditions", "pattern", "anyPattern", "deny", "patchStrategicMerge", "patchesJson6902"),
    *("apiVersion", "kind", "name", "namespace", "data", "clone", "cloneList"),
)


class Place(msgspec.Struct, frozen=True):
    """A text that may hold expressions (`{{ }}`), or is one (`is_query`)."""

    part: Part
    zone: Zone
    is_query: bool = False


def check_expressions(places: Iterator[Place]) -> Iterator[Finding]:
    """What is wrong with the expressions at these places."""
    for place in places:
        check = check_query if place.is_query else check_text
        yield from check(place.part, place.zone)


def list_rule_places(rule: Part, zone: Zone) -> Iterator[Place]:
    """Every place of a rule."""
    zone = zone.with_names(entry_names(rule["context"]))
    yield from _list_context(rule["context"], zone)
    for name in ("preconditions", "reportProperties"):
        yield from _list_texts(rule[name], zone)
    yield from _list_validate(rule["validate"], zone)
    yield from _list_mutate(rule["mutate"], zone)
    yield from _list_generate(rule["generate"], zone)
    for verification in rule["verifyImages"].each():
        yield from _list_verification(verification, zone)
    for _, extractors in rule["imageExtractors"].entries():
        for extractor in extractors.each():
            yield Place(extractor["jmesPath"], ANYTHING, is_query=True)


def list_cleanup_places(spec: Part) -> Iterator[Place]:
    """Every place of a cleanup policy: its target is what may be deleted."""
    zone = Zone(entry_names(spec["context"])).with_target()
    yield from _list_context(spec["context"], zone)
    yield from _list_texts(spec["conditions"], zone)


def list_exception_places(spec: Part) -> Iterator[Place]:
    """Every place of an exception."""
    yield from _list_texts(spec["conditions"], Zone())


def entry_names(context: Part) -> frozenset[str]:
    """The variables that context entries define: `a` for an entry named `a.b`."""
    return frozenset(entry["name"].text.partition(".")[0] for entry in context.each())


def _list_texts(part: Part, zone: Zone) -> Iterator[Place]:
    for leaf in part.leaves():
        if "{{" in leaf.text or "}}" in leaf.text:
            yield Place(leaf, zone)


def _list_context(context: Part, zone: Zone) -> Iterator[Place]:
    for entry in context.each():
        for kind, source in entry.entries():
            for name, field in source.entries():
                if name == "jmesPath":
                    asks_scope = kind == "variable" and not source["value"]
                    yield Place(field, zone if asks_scope else ANYTHING, is_query=True)
                else:
                    yield from _list_texts(field, zone)


def _list_validate(validate: Part, zone: Zone) -> Iterator[Place]:
    for name, field in validate.entries():
        if name == "foreach":
            yield from _list_loops(field, zone)
        # Languages of their own.
        elif name not in ("cel", "assert"):
            yield from _list_texts(field, zone)


def _list_loops(loops: Part, zone: Zone) -> Iterator[Place]:
    for loop in loops.each():
        yield Place(loop["list"], zone, is_query=True)
        inner = zone.with_names(entry_names(loop["context"])).with_element()
        yield from _list_context(loop["context"], inner)
        for name in _LOOPED:
            yield from _list_texts(loop[name], inner)
        yield from _list_loops(loop["foreach"], inner)


def _list_mutate(mutate: Part, zone: Zone) -> Iterator[Place]:
    inner = zone
    for target in mutate["targets"].each():
        inner = inner.with_names(entry_names(target["context"])).with_target()
        own = zone.with_names(entry_names(target["context"])).with_target()
        for name, field in target.entries():
            if name == "context":
                yield from _list_context(field, own)
            else:
                yield from _list_texts(field, own if name == "preconditions" else zone)
    yield from _list_texts(mutate["patchStrategicMerge"], inner)
    yield from _list_texts(mutate["patchesJson6902"], inner)
    yield from _list_loops(mutate["foreach"], inner)


def _list_generate(generate: Part, zone: Zone) -> Iterator[Place]:
    for name, field in generate.entries():
        if name == "foreach":
            yield from _list_loops(field, zone)
        else:
            yield from _list_texts(field, zone)


def _list_verification(verification: Part, zone: Zone) -> Iterator[Place]:
    attested = frozenset(a["name"].text for a in verification["attestations"].each())
    inner = zone.with_names(attested | {"image"})
    for name, field in verification.entries():
        if name != "attestations":
            yield from _list_texts(field, inner)
    for attestation in verification["attestations"].each():
        for name in _ATTESTED:
            yield from _list_texts(attestation[name], inner)
        # These ask the attestation, and only its author knows what it says.
        yield from _list_texts(attestation["conditions"], ANYTHING)
