"""Boolean CEL tests as trees: joined, negated and rendered; those that may fail keep their order.

Kyverno's conditions stop at the first that decides, and an error on the way is an error. CEL's
`&&` and `||` forget an error where the other side decides, so a test that may fail is
written with `? :` where others come after it.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from lictor.addons.convert.writing import wrap


class Atom(msgspec.Struct, frozen=True):
    """One test as CEL text; `opposite` is its negation, if that has a shorter form."""

    text: str
    opposite: str = ""
    risky: bool = False


class SettledTest(msgspec.Struct, frozen=True):
    """A test whose result is known."""

    value: bool
    risky: bool = False


class JoinedTests(msgspec.Struct, frozen=True):
    """All of these (`every`), or one of them."""

    parts: "tuple[Test, ...]"
    every: bool

    @property
    def risky(self) -> bool:
        return any(part.risky for part in self.parts)


class LoopTest(msgspec.Struct, frozen=True):
    """All elements of a list pass (`every`), or one of them does."""

    source: str
    name: str
    body: "Test"
    every: bool
    risky: bool = False


class ConditionalTest(msgspec.Struct, frozen=True):
    """One test or another, depending on a third."""

    condition: "Test"
    then: "Test"
    other: "Test"
    risky: bool = True


Test: TypeAlias = Atom | SettledTest | JoinedTests | LoopTest | ConditionalTest

TRUE = SettledTest(value=True)
FALSE = SettledTest(value=False)


def compare(left: str, sign: str, right: str, *, risky: bool = False) -> Atom:
    """`left == right` and its like."""
    opposite = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}[sign]
    return Atom(f"{left} {sign} {right}", f"{left} {opposite} {right}", risky)


def is_full(text: str, *, risky: bool = False) -> Atom:
    """Whether a list, a map or a text has anything in it."""
    size = f"{wrap(text)}.size()"
    return Atom(f"{size} > 0", f"{size} == 0", risky)


def with_risk(test: "Test", *, risky: bool) -> "Test":
    """The same test, that may fail."""
    if not risky or test.risky or isinstance(test, SettledTest):
        return test
    return Atom(wrap(render(test)), wrap(render(negate(test))), risky=True)


def all_of(parts: Iterable[Test]) -> Test:
    """A test that holds where all do."""
    return _join(tuple(parts), every=True)


def any_of(parts: Iterable[Test]) -> Test:
    """A test that holds where one does."""
    return _join(tuple(parts), every=False)


def _join(parts: tuple[Test, ...], *, every: bool) -> Test:
    settled, neutral = (FALSE, TRUE) if every else (TRUE, FALSE)
    kept: list[Test] = []
    for index, part in enumerate(parts):
        if part == neutral or part in kept:
            continue
        if part == settled:
            # Earlier tests may still fail; later ones are never reached.
            return settled if not any(p.risky for p in kept) else _line(kept, settled, every=every)
        rest = parts[index + 1 :]
        if part.risky and any(other != neutral for other in rest):
            return _line([*kept, part], _join(rest, every=every), every=every)
        kept += part.parts if isinstance(part, JoinedTests) and part.every is every else (part,)
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else JoinedTests(tuple(kept), every)


def _line(first: list[Test], rest: Test, *, every: bool) -> Test:
    *before, risky = first
    tested: Test = (
        ConditionalTest(risky, rest, FALSE) if every else ConditionalTest(risky, TRUE, rest)
    )
    return JoinedTests((*before, tested), every) if before else tested


def negate(test: Test) -> Test:
    """The opposite."""
    if isinstance(test, SettledTest):
        return FALSE if test.value else TRUE
    if isinstance(test, JoinedTests):
        return JoinedTests(tuple(negate(part) for part in test.parts), not test.every)
    if isinstance(test, LoopTest):
        return LoopTest(test.source, test.name, negate(test.body), not test.every, test.risky)
    if isinstance(test, ConditionalTest):
        return ConditionalTest(test.condition, negate(test.then), negate(test.other), test.risky)
    return Atom(test.opposite or f"!{wrap(test.text)}", test.text, test.risky)


def for_all(source: str, name: str, body: Test, *, risky: bool = False) -> Test:
    """Every element of the list passes."""
    if body == TRUE and not risky:
        return TRUE
    return LoopTest(source, name, body, every=True, risky=risky or body.risky)


def for_some(source: str, name: str, body: Test, *, risky: bool = False) -> Test:
    """Some element of the list passes."""
    if body == FALSE and not risky:
        return FALSE
    return LoopTest(source, name, body, every=False, risky=risky or body.risky)


def choose(condition: Test, then: Test, other: Test) -> Test:
    """`then` where the condition holds, else `other`."""
    if isinstance(condition, SettledTest):
        return then if condition.value else other
    if then == other and not condition.risky:
        return then
    if isinstance(then, SettledTest):
        return any_of((condition, other)) if then.value else all_of((negate(condition), other))
    if isinstance(other, SettledTest):
        return any_of((negate(condition), then)) if other.value else all_of((condition, then))
    return ConditionalTest(condition, then, other, condition.risky or then.risky or other.risky)


# --- writing


def render(test: Test) -> str:
    """The test as CEL."""
    if isinstance(test, SettledTest):
        return "true" if test.value else "false"
    if isinstance(test, Atom):
        return test.text
    if isinstance(test, JoinedTests):
        sign = " && " if test.every else " || "
        return sign.join(_enclose(part) for part in test.parts)
    if isinstance(test, ConditionalTest):
        then, other = (_enclose(part) for part in (test.then, test.other))
        return f"{_enclose(test.condition)} ? {then} : {other}"
    return _render_loop(test)


def _enclose(test: Test) -> str:
    text = render(test)
    return f"({text})" if isinstance(test, JoinedTests | ConditionalTest) else text


def _render_loop(loop: LoopTest) -> str:
    member = _find_member(loop)
    if member:
        return member
    macro = "all" if loop.every else "exists"
    return f"{wrap(loop.source)}.{macro}({loop.name}, {render(loop.body)})"


def _find_member(loop: LoopTest) -> str:
    """`list.exists(x, x == "a")` is `"a" in list`."""
    body = loop.body
    if not isinstance(body, Atom):
        return ""
    sign = " != " if loop.every else " == "
    start = f"{loop.name}{sign}"
    sought = body.text.removeprefix(start)
    if sought == body.text or loop.name in sought or not sought.startswith('"'):
        return ""
    if not sought.endswith('"') or '"' in sought[1:-1].replace('\\"', ""):
        return ""
    found = f"{sought} in {wrap(loop.source)}"
    return f"!({found})" if loop.every else found
