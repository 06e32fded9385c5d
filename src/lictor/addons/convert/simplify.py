"""The short form of a test: known facts left out, optional chains, one loop for several lists."""

import re
from typing import NamedTuple

import orjson
from msgspec.structs import replace

from lictor.addons.convert.cel_tests import (
    FALSE,
    TRUE,
    Atom,
    ConditionalTest,
    JoinedTests,
    LoopTest,
    SettledTest,
    Test,
    all_of,
    any_of,
    negate,
    render,
)
from lictor.addons.convert.writing import literal, wrap
from lictor.core.raw import Json

_QUOTED = r'"(?:[^"\\]|\\.)*"'
# re: trusted - our own CEL, in which every text is closed
_STRINGS = re.compile(rf"({_QUOTED})")
_HAS = re.compile(r"(!?)has\(([^()]+)\.([A-Za-z_]\w*)\)")
_KEY = re.compile(rf"({_QUOTED}) in ([^()]+)|!\(({_QUOTED}) in ([^()]+)\)")


def simplify(test: Test) -> Test:
    """The same test in a short form; of tests that may fail, none is left out or moved."""
    return _shorten(_prune(test, {}))


# --- known facts are not tested again


def _prune(test: Test, known: dict[str, bool]) -> Test:
    """Known facts are identified by text: a test and its double negation are the same."""
    if isinstance(test, ConditionalTest):
        then, other = (_prune(part, known) for part in (test.then, test.other))
        return replace(test, then=then, other=other)
    if test.risky or isinstance(test, SettledTest):
        return test
    fact = known.get(render(test))
    if fact is not None:
        return TRUE if fact else FALSE
    if isinstance(test, JoinedTests):
        return _prune_joined(test, known)
    if isinstance(test, LoopTest):
        body, neutral = _prune(test.body, known), TRUE if test.every else FALSE
        return neutral if body == neutral else replace(test, body=body)
    return test


def _prune_joined(test: JoinedTests, known: dict[str, bool]) -> Test:
    now = dict(known)
    kept = []
    for part in test.parts:
        pruned = _prune(part, now)
        kept.append(pruned)
        for each in _list_parts(pruned, every=test.every):
            # The next one is evaluated only if this held (`&&`), or did not (`||`).
            now[render(each)] = test.every
            now[render(negate(each))] = not test.every
    return _join(kept, every=test.every)


def _list_parts(test: Test, *, every: bool) -> tuple[Test, ...]:
    if isinstance(test, JoinedTests) and test.every is every:
        return test.parts
    return (test,)


def _join(parts: list[Test], *, every: bool) -> Test:
    return all_of(parts) if every else any_of(parts)


# --- shorter forms


def _shorten(test: Test) -> Test:
    match test:
        case JoinedTests() if not test.risky:
            parts = _use_chains([_shorten(part) for part in test.parts], every=test.every)
            return _join(_join_loops(parts, every=test.every), every=test.every)
        case LoopTest():
            return replace(test, body=_shorten(test.body))
        case ConditionalTest():
            return replace(test, then=_shorten(test.then), other=_shorten(test.other))
    return test


class _Guard(NamedTuple):
    """`has(base.field)`, or its negation: what must be there for what follows."""

    base: str
    step: str
    path: str


def _read_guard(test: Test, *, every: bool) -> _Guard | None:
    if not isinstance(test, Atom):
        return None
    found = _HAS.fullmatch(test.text)
    if found is not None and (found.group(1) == "") is every:
        base, name = found.group(2), found.group(3)
        return _Guard(base, f".?{name}", f"{base}.{name}")
    found = _KEY.fullmatch(test.text)
    if found is None or (found.group(1) is not None) is not every:
        return None
    key, base = found.group(1) or found.group(3), found.group(2) or found.group(4)
    return _Guard(base, f"[?{key}]", f"{base}[{key}]")


def _use_chains(parts: list[Test], *, every: bool) -> list[Test]:
    """`has(a.b) && has(a.b.c) && a.b.c == 1` is `a.?b.?c.orValue(0) == 1`."""
    made: list[Test] = []
    at = 0
    while at < len(parts):
        guards = _read_guards(parts[at:], every=every)
        if guards and guards[-1].step.startswith("[") and not _is_entered(guards, parts[at:]):
            # Perhaps an element of a list, not a key of a map.
            guards.pop()
        if not guards:
            made.append(parts[at])
            at += 1
            continue
        at += len(guards)
        rest = parts[at:]
        tested = _test_with_default(guards, rest, every=every)
        if tested is not None:
            made.append(tested)
            at += 1
        elif len(guards) > 1:
            present = Atom(f"{_chain(guards)}.hasValue()", f"!{_chain(guards)}.hasValue()")
            made.append(present if every else negate(present))
        else:
            made.append(parts[at - 1])
    return made


def _is_entered(guards: list[_Guard], parts: list[Test]) -> bool:
    return any(_count(guards[-1].path, render(later)) for later in parts[len(guards) :])


def _read_guards(parts: list[Test], *, every: bool) -> list[_Guard]:
    guards: list[_Guard] = []
    for part in parts:
        guard = _read_guard(part, every=every)
        if guard is None or (guards and guard.base != guards[-1].path):
            break
        guards.append(guard)
    return guards


def _chain(guards: list[_Guard]) -> str:
    return guards[0].base + "".join(guard.step for guard in guards)


def _test_with_default(guards: list[_Guard], rest: list[Test], *, every: bool) -> Test | None:
    path = guards[-1].path
    if not rest or _count(path, render(rest[0])) != 1:
        return None
    if len(guards) == 1 and any(_count(path, render(later)) for later in rest[1:]):
        return None
    tested = rest[0]
    if isinstance(tested, LoopTest):
        # An empty list has no element that is right, and none that is wrong.
        if tested.every is every or tested.source != path:
            return None
        return replace(tested, source=f"{_chain(guards)}.orValue([])")
    if not isinstance(tested, Atom) or tested.risky:
        return None
    # Where it is missing, `&&` must not hold, and `||` must.
    default = find_default(tested.text, path, holds=not every)
    if default is None:
        return None
    value = f"{_chain(guards)}.orValue({default})"
    made = _mention(path).sub(lambda _: value, tested.text)
    is_longer = len(made) > len(f"{tested.text} && {'' if every else '!'}has({path})")
    return Atom(made) if len(guards) > 1 or not is_longer else None


def _count(path: str, text: str) -> int:
    return len(_mention(path).findall(text))


def _mention(path: str) -> re.Pattern[str]:
    # re: linear - fixed letters between conditions
    return re.compile(rf"(?<![\w.\"]){re.escape(path)}(?!\w)")


# --- one loop instead of several


def _join_loops(parts: list[Test], *, every: bool) -> list[Test]:
    """`a.all(x, ok(x)) && b.all(y, ok(y))` is `(a + b).all(x, ok(x))`."""
    alike: dict[str, list[LoopTest]] = {}
    for part in parts:
        if isinstance(part, LoopTest) and part.every is every and not part.risky:
            alike.setdefault(_rename(render(part.body), part.name), []).append(part)
    last = {id(loops[-1]): loops for loops in alike.values()}
    joined = {id(loop) for loops in alike.values() for loop in loops}
    return [
        _join_sources(last[id(part)]) if id(part) in last else part
        for part in parts
        if id(part) in last or id(part) not in joined
    ]


def _rename(text: str, name: str) -> str:
    """The text with `_` for a variable; fields and strings of that name stay."""
    # re: linear - fixed letters between conditions
    word = re.compile(rf"(?<![\w.?]){re.escape(name)}\b")
    pieces = _STRINGS.split(text)
    return "".join(piece if piece.startswith('"') else word.sub("_", piece) for piece in pieces)


def _join_sources(loops: list[LoopTest]) -> LoopTest:
    shortest = min(loops, key=lambda loop: (len(loop.name), loop.name))
    # Lists that are always there come first.
    sources = sorted((loop.source for loop in loops), key=lambda source: ".orValue(" in source)
    if len(sources) > 1:
        sources = [wrap(source) for source in sources]
    return replace(shortest, source=" + ".join(sources))


# --- which value for a missing field makes a test hold, or not hold?

_NEGATED = re.compile(r"!\((PATH in .*|\".*\" in PATH)\)|!(PATH\..*)", re.DOTALL)
_COMPARED = re.compile(r"PATH (==|!=|<=|>=|<|>) (\S.*)", re.DOTALL)
_AMONG = re.compile(r"PATH in (\[.*\])", re.DOTALL)
_WORD = r'"(?:[^"\\]|\\.)+"'
# Tests that do not hold for this value.
_FALSE_FOR = (
    (re.compile(rf"PATH\.(?:startsWith|endsWith|contains)\({_WORD}\)"), '""'),
    # re: linear - matched at one position, and the word ends at the first quote
    (re.compile(rf"PATH\.size\(\) > 0|{_WORD} in PATH"), "[]"),
)


def find_default(test: str, path: str, *, holds: bool) -> str | None:
    """A literal for what stands at the path, so that the test holds or not; None if unknown."""
    return _find_default(_mention(path).sub("PATH", test), holds=holds)


def _find_default(test: str, *, holds: bool) -> str | None:
    if found := _NEGATED.fullmatch(test):
        return _find_default(found[1] or found[2], holds=not holds)
    if test == "PATH.size() == 0":
        return "[]" if holds else None
    if found := _COMPARED.fullmatch(test):
        return _find_compared(found[1], _read(found[2]), holds=holds)
    if found := _AMONG.fullmatch(test):
        return _find_among(_read(found[1]), holds=holds)
    defaults = [default for form, default in _FALSE_FOR if form.fullmatch(test)]
    return defaults[0] if defaults and not holds else None


def _read(text: str) -> Json:
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _find_compared(sign: str, value: Json, *, holds: bool) -> str | None:
    if not isinstance(value, str | int | float):
        return None
    zero: Json = "" if isinstance(value, str) else not value if isinstance(value, bool) else 0
    if sign in ("==", "!="):
        if (sign == "==") is holds:
            return literal(value)
        return None if value == zero else literal(zero)
    if isinstance(value, str | bool):
        return None
    is_true = {"<": value > 0, "<=": value >= 0, ">": value < 0, ">=": value <= 0}[sign]
    return "0" if is_true is holds else None


def _find_among(values: Json, *, holds: bool) -> str | None:
    if not isinstance(values, list) or not values:
        return None
    if holds:
        return literal(values[0])
    is_text = all(isinstance(value, str) for value in values)
    return '""' if is_text and "" not in values else None
