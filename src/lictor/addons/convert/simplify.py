"""The shortest plain form of a test: no duplicates, optional chains, one loop for lists."""

import re
from collections.abc import Callable, Iterable

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
    rename_loop,
    render,
)
from lictor.addons.convert.writing import literal, wrap
from lictor.core.raw import Json

_HAS = re.compile(r"(!?)has\(([^()]+)\.([A-Za-z_]\w*)\)")
_KEY = re.compile(r'("(?:[^"\\]|\\.)*") in ([^()]+)|!\(("(?:[^"\\]|\\.)*") in ([^()]+)\)')
_TEXT = re.compile(r'(.+) (==|!=) ("(?:[^"\\]|\\.)*")')


def simplify(test: Test) -> Test:
    """The same test in its shortest form; of tests that may fail, none is left out or moved."""
    return _shorten(_prune(test, {}))


# --- known facts are not tested again


def _prune(test: Test, known: dict[str, bool]) -> Test:
    """Known facts are identified by text: a test and its double negation are the same."""
    if isinstance(test, ConditionalTest):
        then, other = (_prune(part, known) for part in (test.then, test.other))
        return replace(test, then=then, other=other)
    if test.risky or isinstance(test, SettledTest):
        return test
    told = known.get(render(test))
    if told is not None:
        return TRUE if told else FALSE
    if isinstance(test, JoinedTests):
        return _prune_joined(test, known)
    if isinstance(test, LoopTest):
        return _settle_loop(replace(test, body=_prune(test.body, known)))
    return test


def _prune_joined(test: JoinedTests, known: dict[str, bool]) -> Test:
    now = dict(known)
    kept = []
    for part in test.parts:
        pruned = _prune(part, now)
        kept.append(pruned)
        for each in _flat(pruned, every=test.every):
            # The next one is evaluated only if this held (`&&`), or did not (`||`).
            now[render(each)] = test.every
            now[render(negate(each))] = not test.every
    join = all_of if test.every else any_of
    return join(_drop_implied(kept, every=test.every))


def _flat(test: Test, *, every: bool) -> tuple[Test, ...]:
    if isinstance(test, JoinedTests) and test.every is every:
        return test.parts
    return (test,)


def _settle_loop(loop: LoopTest) -> Test:
    if loop.body == (TRUE if loop.every else FALSE):
        return TRUE if loop.every else FALSE
    return loop


def _drop_implied(parts: list[Test], *, every: bool) -> Iterable[Test]:
    """`x != "" && x == "a"` is `x == "a"`."""
    sign, other = ("==", "!=") if every else ("!=", "==")
    told = set()
    for part in parts:
        found = _TEXT.fullmatch(part.text) if isinstance(part, Atom) else None
        if found is not None and found.group(2) == sign and found.group(3) != '""':
            told.add(f'{found.group(1)} {other} ""')
    return (part for part in parts if not (isinstance(part, Atom) and part.text in told))


# --- shorter forms


def _shorten(test: Test) -> Test:
    match test:
        case JoinedTests() if not test.risky:
            parts = [_shorten(part) for part in test.parts]
            parts = _use_chains(parts, every=test.every)
            parts = _join_bodies(_join_loops(parts, every=test.every), every=test.every)
            return _factor(parts, every=test.every)
        case LoopTest():
            return replace(test, body=_shorten(test.body))
        case ConditionalTest():
            return replace(test, then=_shorten(test.then), other=_shorten(test.other))
    return test


class _Guard:
    """`has(base.field)`, or its negation: what must be there for what follows."""

    def __init__(self, base: str, step: str, path: str) -> None:
        self.base, self.step, self.path = base, step, path
        self.is_key = step.startswith("[")


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
        if guards and guards[-1].is_key and not _is_entered(guards, parts[at:]):
            # Perhaps an element of a list, not a key of a map.
            guards.pop()
        if not guards:
            made.append(parts[at])
            at += 1
            continue
        at += len(guards)
        rest = parts[at:]
        tested = _ask_with_default(guards, rest, every=every)
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


def _ask_with_default(guards: list[_Guard], rest: list[Test], *, every: bool) -> Test | None:
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
    made = list(parts)
    for part in parts:
        alike = _find_alike(part, made, every=every)
        if len(alike) > 1:
            last = max(index for index, _ in alike)
            made[last] = _join([loop for _, loop in alike])
            gone = {index for index, _ in alike} - {last}
            made = [each for index, each in enumerate(made) if index not in gone]
    return made


def _find_alike(test: Test, parts: list[Test], *, every: bool) -> list[tuple[int, LoopTest]]:
    if not isinstance(test, LoopTest) or test.every is not every or test.risky:
        return []
    found = []
    for index, part in enumerate(parts):
        if not isinstance(part, LoopTest) or part.every is not every or part.risky:
            continue
        renamed = rename_loop(part, test.name)
        if renamed is not None and renamed.body == test.body:
            found.append((index, part))
    return found if any(part == test for _, part in found) else []


def _join(loops: list[LoopTest]) -> LoopTest:
    name = min((loop.name for loop in loops), key=lambda each: (len(each), each))
    renamed = [found for loop in loops if (found := rename_loop(loop, name)) is not None]
    if len(renamed) < len(loops):
        name = loops[0].name
    # Lists that are always there come first.
    sources = sorted((loop.source for loop in loops), key=lambda source: ".orValue(" in source)
    body = next(loop for loop in loops if loop.name == name).body
    return LoopTest(" + ".join(map(wrap, sources)), name, body, loops[0].every)


def _join_bodies(parts: list[Test], *, every: bool) -> list[Test]:
    """`a.all(x, ok(x)) && a.all(x, fine(x))` is `a.all(x, ok(x) && fine(x))`."""
    made: list[Test] = []
    for part in parts:
        position = next(
            (at for at, each in enumerate(made) if _is_same_loop(each, part, every)), None
        )
        if position is None or not isinstance(part, LoopTest):
            made.append(part)
            continue
        known = made.pop(position)
        if isinstance(known, LoopTest):
            body = JoinedTests((*_flat(known.body, every=every), part.body), every)
            made.append(replace(part, body=simplify(body)))
    return made


def _is_same_loop(one: Test, other: Test, every: bool) -> bool:  # noqa: FBT001
    if not isinstance(one, LoopTest) or not isinstance(other, LoopTest):
        return False
    if one.risky or other.risky or not (one.every is other.every is every):
        return False
    return (one.source, one.name) == (other.source, other.name)


def _factor(parts: list[Test], *, every: bool) -> Test:
    """`(a && b) || (a && c)` is `a && (b || c)`."""
    join, other = (all_of, any_of) if every else (any_of, all_of)
    lines = [_flat(part, every=not every) for part in parts]
    common = 0
    for column in zip(*lines, strict=False):
        if any(test != column[0] for test in column):
            break
        common += 1
    if not common or len(lines) < 2:
        return join(parts)
    return other((*lines[0][:common], join(other(line[common:]) for line in lines)))


# --- which value for a missing field makes a test hold, or not hold?


_SIGNS = r"(==|!=|<=|>=|<|>)"
_OPPOSITE = {"==": "!=", "!=": "=="}


def find_default(test: str, path: str, *, holds: bool) -> str | None:
    """A literal for what stands at the path, so that the test holds or not; None if unknown."""
    escaped = re.escape(path)
    for pattern, find in _FORMS:
        # re: bounded - a generated CEL test, run by the author of the policy
        found = re.fullmatch(pattern.replace("PATH", escaped), test, re.DOTALL)
        if found is not None:
            return find(found, holds)
    return None


def _read(text: str) -> tuple[Json, bool]:
    try:
        return orjson.loads(text), True
    except ValueError:
        return None, False


def _compared(found: re.Match[str], holds: bool) -> str | None:  # noqa: FBT001
    sign, (value, is_literal) = found.group(1), _read(found.group(2))
    if not is_literal or not isinstance(value, str | int | float):
        return None
    if sign in _OPPOSITE:
        same = (sign == "==") is holds
        return literal(value) if same else _other_than(value)
    if isinstance(value, str | bool):
        return None
    zero_holds = {"<": value > 0, "<=": value >= 0, ">": value < 0, ">=": value <= 0}[sign]
    return "0" if zero_holds is holds else None


def _other_than(value: str | float) -> str | None:
    if isinstance(value, bool):
        return literal(not value)
    zero: str | int = "" if isinstance(value, str) else 0
    return None if value == zero else literal(zero)


def _among(found: re.Match[str], holds: bool) -> str | None:  # noqa: FBT001
    values, is_literal = _read(found.group(1))
    if not is_literal or not isinstance(values, list) or not values:
        return None
    if holds:
        return literal(values[0])
    if not all(isinstance(value, str) for value in values) or "" in values:
        return None
    return '""'


def _not_among(found: re.Match[str], holds: bool) -> str | None:  # noqa: FBT001
    return _among(found, not holds)


def _always(default: str, *, holds: bool) -> Callable[[re.Match[str], bool], str | None]:
    return lambda _, wanted: default if wanted is holds else None


_QUOTED = r'"(?:[^"\\]|\\.)+"'
_STARTS = rf"PATH\.(?:startsWith|endsWith|contains)\({_QUOTED}\)"
# An expression about PATH, and the default for it.
_FORMS: tuple[tuple[str, Callable[[re.Match[str], bool], str | None]], ...] = (
    (rf"PATH {_SIGNS} (\S.*)", _compared),
    (r"PATH in (\[.*\])", _among),
    (r"!\(PATH in (\[.*\])\)", _not_among),
    (r"PATH\.size\(\) > 0", _always("[]", holds=False)),
    (r"PATH\.size\(\) == 0", _always("[]", holds=True)),
    (_STARTS, _always('""', holds=False)),
    (f"!{_STARTS}", _always('""', holds=True)),
    (rf"{_QUOTED} in PATH", _always("[]", holds=False)),
    (rf"!\({_QUOTED} in PATH\)", _always("[]", holds=True)),
)
