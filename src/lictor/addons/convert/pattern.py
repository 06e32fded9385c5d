"""Converts maps and lists of a pattern to CEL tests: when it fails, and when it is skipped.

The order is that of `core.lang.pattern.tree`: anchors precede plain keys, values with anchors
precede those without, and a condition that is not met skips what follows it.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from lictor.addons.convert.cel_tests import (
    FALSE,
    TRUE,
    Test,
    all_of,
    any_of,
    for_all,
    for_some,
    is_full,
    negate,
)
from lictor.addons.convert.cel_values import CelValue, LoopNames, ResourceRoot
from lictor.addons.convert.scalar import accepts_absence, match_text, translate_scalar
from lictor.addons.convert.writing import wrap
from lictor.core.errors import CompileError
from lictor.core.lang.pattern import resolve_references
from lictor.core.lang.pattern.anchor import (
    Modifier,
    check_shape,
    holds_anchors,
    parse_anchor,
    strip_anchor,
)
from lictor.core.lang.template import has_variables
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.raw import Json

# A text with variables, and the value it is compared with, to a test.
FillIn: TypeAlias = Callable[[str, CelValue], Test]

_TAGS = frozenset(("labels", "annotations"))
_EARLY = (Modifier.CONDITION, Modifier.EQUALITY, Modifier.NEGATION, Modifier.EXISTENCE)


class PatternOutcome(msgspec.Struct, frozen=True):
    """When a part of a pattern fails, and when it is skipped; never both."""

    fails: Test = FALSE
    skips: Test = FALSE
    # Whether a skip also skips the enclosing parts.
    hard: bool = False

    @property
    def fits(self) -> Test:
        return negate(any_of((self.fails, self.skips)))

    def where(self, present: Test) -> "PatternOutcome":
        """The same for a value that may be left out."""
        return PatternOutcome(
            all_of((present, self.fails)), all_of((present, self.skips)), self.hard
        )


class _Entry(msgspec.Struct, frozen=True):
    modifier: Modifier | None
    expected: Json
    verdict: PatternOutcome


class _Spot(msgspec.Struct, frozen=True):
    """A map of the resource: how to reach its fields, and whether its keys are special."""

    child: Callable[[str], CelValue]
    text: str
    is_metadata: bool = False
    is_tags: bool = False

    def enter(self, key: str, target: CelValue) -> "_Spot":
        return spot_of(
            target, is_metadata=key == "metadata", is_tags=self.is_metadata and key in _TAGS
        )


def spot_of(target: CelValue, *, is_metadata: bool = False, is_tags: bool = False) -> _Spot:
    """The map at a place."""

    def child(key: str) -> CelValue:
        return CelValue(target.text, target.shape).step(key)

    return _Spot(child, target.text, is_metadata, is_tags)


def translate_pattern(
    pattern: Json, subject: ResourceRoot, fill: FillIn, names: LoopNames
) -> PatternOutcome:
    """The outcome of a pattern for the whole resource."""
    check_shape(pattern)
    pattern = resolve_references(pattern)
    pod = subject.pod or ()
    for step in pod:
        if not isinstance(pattern, dict) or list(pattern) != [step]:
            pod = ()
            break
        pattern = pattern[step]
    spot = _Spot(lambda key: subject.navigate((*pod, key)), subject.root)
    return _Translator(fill).node(pattern, spot, CelValue(subject.root), names)


def translate_element(
    pattern: Json, target: CelValue, fill: FillIn, names: LoopNames
) -> PatternOutcome:
    """The outcome of a pattern for one element of a list."""
    check_shape(pattern)
    return _Translator(fill).node(resolve_references(pattern), spot_of(target), target, names)


class _Translator(msgspec.Struct, frozen=True):
    fill: FillIn

    def node(
        self, pattern: Json, spot: _Spot, target: CelValue, names: LoopNames
    ) -> PatternOutcome:
        """The verdict on a value that is there."""
        if isinstance(pattern, dict):
            return self._map(pattern, spot, names)
        if isinstance(pattern, list):
            return self._list(pattern, target, names)
        return PatternOutcome(negate(self._leaf(pattern, target)))

    def _leaf(self, pattern: Json, target: CelValue) -> Test:
        if isinstance(pattern, str) and has_variables(pattern):
            return self.fill(pattern, target)
        return translate_scalar(pattern, target)

    # --- maps

    def _map(self, pattern: dict[str, Json], spot: _Spot, names: LoopNames) -> PatternOutcome:
        items = sorted(pattern.items())
        if spot.is_tags:
            # Kyverno rewrites these maps as maps of text to text, and loses all other values.
            items = [(key, value) for key, value in items if isinstance(value, str)]
        entries = [self._entry(key, value, spot, names) for key, value in items]
        early = [entry for entry in entries if entry.modifier in _EARLY]
        later = _order([entry for entry in entries if entry.modifier not in _EARLY])
        rest = _in_line([entry.verdict for entry in later])
        return _weigh(early, rest) if early else rest

    def _entry(self, raw: str, value: Json, spot: _Spot, names: LoopNames) -> _Entry:
        if has_variables(raw):
            raise CompileError(f"the key {raw!r} of a pattern holds a variable")
        anchor = parse_anchor(raw)
        key = strip_anchor(raw)
        modifier = anchor.modifier if anchor is not None else None
        if modifier is Modifier.ADDITION:
            raise CompileError(f"{raw!r} has no meaning in a pattern")
        if spot.is_tags and has_wildcard(key):
            return _Entry(modifier, value, self._any_key(modifier, key, value, spot, names))
        target = spot.child(key)
        verdict = self._keyed(modifier, value, spot.enter(key, target), target, names)
        return _Entry(modifier, value, verdict)

    def _keyed(
        self,
        modifier: Modifier | None,
        value: Json,
        inner: _Spot,
        target: CelValue,
        names: LoopNames,
    ) -> PatternOutcome:
        present = target.present
        there = CelValue(target.text, target.shape, label=target.label)
        if modifier is Modifier.NEGATION:
            return PatternOutcome(present)
        if modifier is Modifier.EXISTENCE:
            return self._existence(value, there, names).where(present)
        if modifier is None:
            return self._plain(value, inner, target, names)
        verdict = self.node(value, inner, there, names)
        if modifier is Modifier.EQUALITY:
            return verdict.where(present)
        unmet = negate(verdict.fits)
        if modifier is Modifier.GLOBAL:
            return PatternOutcome(skips=all_of((present, unmet)), hard=True)
        return PatternOutcome(skips=any_of((negate(present), unmet)), hard=True)

    def _plain(
        self, value: Json, inner: _Spot, target: CelValue, names: LoopNames
    ) -> PatternOutcome:
        present = target.present
        there = CelValue(target.text, target.shape, label=target.label)
        if value == "*":
            return PatternOutcome(negate(present))
        verdict = self.node(value, inner, there, names)
        is_leaf = not isinstance(value, dict | list)
        is_constant = not (isinstance(value, str) and has_variables(value))
        if is_leaf and is_constant and accepts_absence(value):
            return verdict.where(present)
        skips = all_of((present, verdict.skips))
        return PatternOutcome(any_of((negate(present), verdict.fails)), skips, verdict.hard)

    def _any_key(
        self, modifier: Modifier | None, key: str, value: Json, spot: _Spot, names: LoopNames
    ) -> PatternOutcome:
        """Kyverno takes the first key that fits, in no order: here all that fit are looked at."""
        name, _ = names.fresh("keys")
        meant = match_text(key, name)
        if modifier is Modifier.NEGATION:
            return PatternOutcome(for_some(spot.text, name, meant))
        if modifier not in (None, Modifier.EQUALITY):
            raise CompileError(f"a wildcard in {key!r} with the anchor {modifier}( )")
        target = CelValue(f"{wrap(spot.text)}[{name}]", spot.child("a").shape)
        wrong = FALSE if value == "*" else negate(self._leaf(value, target))
        fails = for_some(spot.text, name, all_of((meant, wrong)))
        if modifier is None:
            fails = any_of((negate(for_some(spot.text, name, meant)), fails))
        return PatternOutcome(fails)

    # --- lists

    def _list(self, pattern: list[Json], target: CelValue, names: LoopNames) -> PatternOutcome:
        if not pattern:
            return PatternOutcome(TRUE)
        first = pattern[0]
        if isinstance(first, list):
            raise CompileError("a list within a list in a pattern")
        name, inner = names.fresh(target.label)
        element = CelValue(name, target.shape.element)
        if not isinstance(first, dict):
            return PatternOutcome(for_some(target.text, name, negate(self._leaf(first, element))))
        verdict = self.node(first, spot_of(element), element, inner)
        fails = for_some(target.text, name, verdict.fails)
        if verdict.skips == FALSE:
            return PatternOutcome(fails)
        all_skip = for_all(target.text, name, verdict.skips)
        skips = all_of((is_full(target.text), all_skip))
        return PatternOutcome(fails, skips)

    def _existence(self, pattern: Json, target: CelValue, names: LoopNames) -> PatternOutcome:
        if not isinstance(pattern, list) or not all(isinstance(item, dict) for item in pattern):
            raise CompileError("an existence anchor needs a list of maps")
        name, inner = names.fresh(target.label)
        element = CelValue(name, target.shape.element)
        wanted = [self.node(item, spot_of(element), element, inner).fits for item in pattern]
        return PatternOutcome(any_of(negate(for_some(target.text, name, fits)) for fits in wanted))


def _order(entries: list[_Entry]) -> list[_Entry]:
    first = [e for e in entries if e.modifier is Modifier.GLOBAL or holds_anchors(e.expected)]
    return [*reversed(first), *[entry for entry in entries if entry not in first]]


def _in_line(verdicts: list[PatternOutcome]) -> PatternOutcome:
    """The first that fails or is skipped decides."""
    fails: Test = FALSE
    skips: Test = FALSE
    hard: bool | None = None
    for verdict in reversed(verdicts):
        if verdict.skips != FALSE:
            hard = _same(hard, verdict.hard)
        fails, skips = (
            any_of((verdict.fails, all_of((negate(verdict.skips), fails)))),
            any_of((verdict.skips, all_of((negate(verdict.fails), skips)))),
        )
    return PatternOutcome(fails, skips, bool(hard))


def _same(known: bool | None, new: bool) -> bool:  # noqa: FBT001
    if known is not None and known is not new:
        raise CompileError("conditions at several levels of a pattern excuse one another")
    return new


def _weigh(early: list[_Entry], rest: PatternOutcome) -> PatternOutcome:
    """Anchors first; one that is not met excuses all that comes after it."""
    hard = any_of(entry.verdict.skips for entry in early if entry.verdict.hard)
    soft = [entry.verdict.skips for entry in early if not entry.verdict.hard]
    # What is soft excuses only where no anchor was content.
    none_applied = all_of(soft) if len(soft) == len(early) else FALSE
    excused = any_of((hard, none_applied))
    fails = _fail_in_line([entry.verdict for entry in early])
    if rest.skips != FALSE and rest.hard and excused != FALSE:
        raise CompileError("conditions at several levels of a pattern excuse one another")
    open_ones = all_of((negate(fails), negate(excused), rest.skips))
    return PatternOutcome(
        any_of((fails, all_of((negate(excused), rest.fails)))),
        any_of((all_of((negate(fails), excused)), open_ones)),
        rest.hard and excused == FALSE,
    )


def _fail_in_line(verdicts: Iterable[PatternOutcome]) -> Test:
    fails: Test = FALSE
    for verdict in reversed(list(verdicts)):
        if verdict.hard:
            fails = all_of((negate(verdict.skips), fails))
        fails = any_of((verdict.fails, fails))
    return fails
