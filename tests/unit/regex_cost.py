"""Proves that a regular expression of `re` takes time that grows with its text, and no faster.

A backtracking matcher walks every path through the expression that a prefix of the text allows. If
each position of the expression is reached on a bounded number of paths, whatever the text, the whole
walk is linear. That is so if the automaton has no state p with two different ways back to itself for
one word (exponential), and no states p and q with p -> p, p -> q and q -> q for one word (polynomial);
see Weber and Seidl, "On the degree of ambiguity of finite automata" (1991). Every state counts as
accepting here, since a path that fails later was walked too.
"""

import re
from collections import defaultdict
from functools import cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

# Copies that are made of a repeated part, and how often a part may repeat and still count as bounded.
_MOST_COPIES = 8
_BOUNDED = 130
_MOST_POSITIONS = 250
# Possessive repetitions and atomic groups walk some of the paths of the others.
_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
_SINGLE = (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY)
_GROUPS = (sre.ATOMIC_GROUP,)
_SAMPLES = [chr(n) for n in range(256)] + list(
    "\u0130\u0131\u017f\u0660\u2003\u2028\u20ac\ud800\uff1d\U0001f600"
)


class UnprovenError(Exception):
    """The expression may take more than linear time, for this reason."""


def prove_linear(pattern: re.Pattern, *, anchored: bool) -> None:
    """Raise UnprovenError unless every text takes linear time; `anchored`: tried at one place only."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    automaton = _Automaton(pattern, tree)
    first, last, _ = automaton.add(tree)
    if not anchored and not _begins_at_start(tree, pattern.flags):
        # A search begins anew at every character, but not inside of what it found.
        automaton.drop_successes(tree, last)
        start = automaton.new_position(automaton.everything)
        automaton.loops.add(start)
        begin, end = automaton.add_before(tree)
        automaton.link([start], [start, *begin])
        automaton.link(end, first)
    automaton.check()


def _begins_at_start(tree, flags: int) -> bool:
    operation, argument = next(iter(tree), (None, None))
    at_line = argument is sre.AT_BEGINNING and not flags & re.MULTILINE
    return operation is sre.AT and (at_line or argument is sre.AT_BEGINNING_STRING)


def _has_conditions(tree) -> bool:
    """Does it look beyond what it takes, other than at its very beginning?"""
    told = str(tree[1:])
    return " ASSERT" in told or "(AT," in told or "(ASSERT" in told or "ASSERT, (1" in str(tree[:1])


@cache
def _is_of_category(letter: str, sample: str, is_ascii: bool) -> bool:  # noqa: FBT001
    return re.fullmatch(f"\\{letter}", sample, re.ASCII if is_ascii else 0) is not None


class _Automaton:
    """Positions of an expression that each take one character, and which may follow which."""

    def __init__(self, pattern: re.Pattern, tree) -> None:
        self._flags = pattern.flags
        self._is_bytes = isinstance(pattern.pattern, bytes)
        edges = {int(n) + d for n in re.findall(r"[0-9]+", repr(tree)) for d in (-1, 0, 1)}
        self._samples = sorted({*_SAMPLES, *(chr(n) for n in edges if 0 <= n < 0x110000)})
        if self._is_bytes:
            self._samples = self._samples[:256]
        self.everything = (1 << len(self._samples)) - 1
        self._takes: list[int] = []
        self._ways: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        # Positions that repeat without a bound.
        self.loops: set[int] = set()
        self._inside = 0

    def new_position(self, takes: int) -> int:
        if len(self._takes) > _MOST_POSITIONS:
            raise UnprovenError("it is too large to be proven")
        self._takes.append(takes)
        return len(self._takes) - 1

    def add_before(self, tree) -> tuple[list[int], list[int]]:
        """Add what must stand before a match, as its start says; the start of the text is one place only."""
        operation, argument = next(iter(tree), (None, None))
        if operation is sre.ASSERT and argument[0] < 0:
            return self.add(argument[1])[:2]
        takes = self.everything
        if (
            operation is sre.ASSERT_NOT
            and argument[0] < 0
            and argument[1][0][0] in _SINGLE
            and len(argument[1]) == 1
        ):
            takes &= ~self._find_taken(*argument[1][0])
        elif (operation, argument) == (sre.AT, sre.AT_BEGINNING):
            takes = self._find_taken(sre.LITERAL, ord("\n"))
        position = self.new_position(takes)
        return [position], [position]

    def link(self, sources: list[int], targets: list[int]) -> None:
        for source in sources:
            for target in targets:
                self._ways[source][target] += 1

    def add(self, tree) -> tuple[list[int], list[int], bool]:
        """The first and last positions of a sequence, with one entry per path, and whether it can be empty."""
        first, last, empty = [], [], 1
        for operation, argument in tree:
            more_first, more_last, passes = self._add_one(operation, argument)
            self.link(last, more_first)
            first += more_first * empty
            last = more_last + last * passes
            empty *= passes
        return first, last, empty

    def _add_one(self, operation, argument):
        if operation in _SINGLE:
            position = self.new_position(self._find_taken(operation, argument))
            return [position], [position], 0
        if operation is sre.AT:
            return [], [], 1
        if operation is sre.SUBPATTERN:
            return self.add(argument[3])
        if operation is sre.BRANCH:
            parts = [self.add(branch) for branch in argument[1]]
            first, last = ([p for part in parts for p in part[end]] for end in (0, 1))
            return first, last, sum(part[2] for part in parts)
        if operation in (sre.ASSERT, sre.ASSERT_NOT):
            direction, inner = argument
            if direction < 0:
                return [], [], 1  # of a fixed width
            # Walked like an alternative that leads nowhere.
            first, _, _ = self.add(inner)
            return first, [], 1
        if operation in _GROUPS:
            return self.add(argument)
        if operation in _REPEATS:
            return self._repeat(*argument)
        raise UnprovenError(f"{operation} is not understood")

    def _repeat(self, least, most, inner):
        if most <= _MOST_COPIES:
            whole = (sre.SUBPATTERN, (None, 0, 0, inner))
            return self.add([whole] * least + self._nest(inner, most - least))
        # A bounded repetition has fewer paths than an endless one; alone, it multiplies by a constant.
        is_loop = most > _BOUNDED or self._inside > 0
        begin = len(self._takes)
        self._inside += is_loop
        first, last, empty = self.add(inner)
        self._inside -= is_loop
        if empty:
            raise UnprovenError("a repetition of what can be empty")
        self.link(last, first)
        if is_loop:
            self.loops.update(range(begin, len(self._takes)))
        return first, last, 0 if least else 1

    def _nest(self, inner, times):
        if not times:
            return []
        whole = [(sre.SUBPATTERN, (None, 0, 0, inner)), *self._nest(inner, times - 1)]
        return [(sre.BRANCH, (None, [whole, []]))]

    def _find_taken(self, operation, argument) -> int:
        found = 0
        for number, sample in enumerate(self._samples):
            variants = (
                {sample, sample.lower(), sample.upper()}
                if self._flags & re.IGNORECASE
                else {sample}
            )
            if any(self._is_taken(operation, argument, v) for v in variants if len(v) == 1):
                found |= 1 << number
        return found

    def _is_taken(self, operation, argument, sample) -> bool:
        code = ord(sample)
        if operation is sre.ANY:
            return bool(self._flags & re.DOTALL) or sample != "\n"
        if operation is sre.LITERAL:
            return code == argument
        if operation is sre.NOT_LITERAL:
            return code != argument
        negated = argument[0][0] is sre.NEGATE
        return negated != any(self._is_in(each, sample) for each in argument)

    def _is_in(self, each, sample) -> bool:
        kind, argument = each
        if kind is sre.LITERAL:
            return ord(sample) == argument
        if kind is sre.RANGE:
            return argument[0] <= ord(sample) <= argument[1]
        if kind is sre.CATEGORY:
            name = str(argument)
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.rsplit("_", 1)[1]]
            letter = letter.upper() if "_NOT_" in name else letter
            return _is_of_category(letter, sample, bool(self._flags & re.ASCII) or self._is_bytes)
        return False

    def drop_successes(self, tree, last: list[int]) -> None:
        """Forget loops in which every step is a success: a search goes on behind what they took."""
        if not _has_conditions(list(tree)):
            ends = {p for p in self.loops if last.count(p) == 1}
            while odd := {p for p in ends if not ends >= self._ways[p].keys()}:
                ends -= odd
            self.loops -= ends

    def check(self) -> None:
        """Look at the loops alone: all else multiplies the paths by a constant."""
        reached = {position: self._reach([position]) for position in range(len(self._takes))}
        rings = {
            position: frozenset(each for each in found if position in reached[each])
            for position, found in reached.items()
        }
        for position in self.loops:
            for target, paths in self._ways[position].items():
                if paths > 1 and target in rings[position]:
                    raise UnprovenError("exponential: two equal ways round a loop")
            ring = rings[position]
            found = self._walk((position, position), (ring, ring))
            if any(one != other for one, other in found & self._walk_back(found, position)):
                raise UnprovenError("exponential: two different ways round a loop")
        for one in self.loops:
            for other in self.loops & reached[one] - {one}:
                between = frozenset(each for each in reached[one] if other in reached[each])
                within = rings[one], between | {other}, rings[other]
                if (one, other, other) in self._walk((one, one, other), within):
                    raise UnprovenError("polynomial: one text fits in two repetitions")

    def _walk_back(self, found: set[tuple[int, ...]], position: int) -> set[tuple[int, ...]]:
        """Those of the pairs from which equal words lead back to the position."""
        before = defaultdict(list)
        for pair in found | {(position, position)}:
            for target in self._step(pair):
                before[target].append(pair)
        waiting, seen = [(position, position)], set()
        while waiting:
            for pair in before[waiting.pop()]:
                if pair not in seen:
                    seen.add(pair)
                    waiting.append(pair)
        return seen

    def _reach(self, starts: list[int]) -> set[int]:
        found: set[int] = set()
        waiting = list(starts)
        while waiting:
            for target in self._ways[waiting.pop()]:
                if target not in found:
                    found.add(target)
                    waiting.append(target)
        return found

    def _walk(self, start: tuple[int, ...], within: tuple[frozenset[int], ...]) -> set:
        """Every combination of positions that equal words lead to, each within its own."""
        found: set[tuple[int, ...]] = set()
        waiting = [start]
        while waiting:
            for target in self._step(waiting.pop()):
                inside = all(
                    place in allowed for place, allowed in zip(target, within, strict=True)
                )
                if inside and target not in found:
                    found.add(target)
                    waiting.append(target)
        return found

    def _step(self, places: tuple[int, ...]):
        partial: list[tuple[tuple[int, ...], int]] = [((), self.everything)]
        for place in places:
            partial = [
                ((*done, target), both)
                for done, taken in partial
                for target in self._ways[place]
                if (both := taken & self._takes[target])
            ]
        return [done for done, _ in partial]
