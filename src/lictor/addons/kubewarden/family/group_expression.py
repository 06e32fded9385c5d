"""What do the members of a group add up to? `a() && (b() || !c())` becomes a callable.

A member that gave no answer is neither true nor false: it is left out of account only where the
others decide alone. So a negation never turns a failure into an acceptance.
"""

import re
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from lictor.core.errors import SyntaxFaultError

# None: unknown.
Truth: TypeAlias = bool | None
AskMember: TypeAlias = Callable[[str], Truth]
GroupDecision: TypeAlias = Callable[[AskMember], Truth]

# Each operator is a call inside the call of the one before it.
_MOST_TOKENS = 1_000
_LONGEST = 64 * 1024
_DEEPEST = 64
_BLANK = re.compile(r"\s+|//[^\n]*")
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|&&|\|\||==|!=|[!()&|^]|\Z")
# How strongly an operator binds; those of one strength are read from the left.
_STRENGTH = {"||": 1, "|": 1, "^": 1, "&&": 2, "&": 2, "==": 3, "!=": 3}


class _Token(NamedTuple):
    text: str
    position: int

    @property
    def is_name(self) -> bool:
        return self.text[:1].isidentifier()


def compile_group_expression(text: str, members: Collection[str]) -> GroupDecision:
    """Parse an expression over these members; SyntaxFaultError has the position."""
    if len(text) > _LONGEST:
        raise _fault_at(_LONGEST, text[: _LONGEST + 1], f"longer than {_LONGEST} characters")
    return _Parser(text, members).read()


def _fault_at(position: int, text: str, message: str) -> SyntaxFaultError:
    told = f"expression: {message} (character {position + 1})"
    return SyntaxFaultError(told, text=text, position=position)


class _Parser:
    def __init__(self, text: str, members: Collection[str]) -> None:
        self._text = text
        self._members = members
        self._tokens = self._split()
        self._at = 0
        self._depth = 0

    def read(self) -> GroupDecision:
        found = self._read_operators(1)
        if self._next.text:
            raise self._fault(f"{self._next.text!r} is not expected here")
        return found

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while not tokens or tokens[-1].text:
            at = self._skip_blanks(at)
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise _fault_at(at, self._text, f"{self._text[at]!r} is not expected here")
            tokens.append(_Token(match.group(), at))
            at = match.end()
            if len(tokens) > _MOST_TOKENS:
                raise _fault_at(at, self._text, "the expression is too long")
        return tokens

    def _skip_blanks(self, at: int) -> int:
        """The place behind blanks and comments; a comment that is not closed is left."""
        while True:
            blank = _BLANK.match(self._text, at)
            if blank is not None:
                at = blank.end()
            elif self._text.startswith("/*", at) and (end := self._text.find("*/", at + 2)) >= 0:
                at = end + 2
            else:
                return at

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _fault(self, message: str) -> SyntaxFaultError:
        return _fault_at(self._next.position, self._text, message)

    def _read_operators(self, strength: int) -> GroupDecision:
        left = self._read_operand()
        while (bound := _STRENGTH.get(self._next.text, 0)) >= strength:
            sign = self._take().text
            left = _OPERATORS[sign](left, self._read_operators(bound + 1))
        return left

    def _read_operand(self) -> GroupDecision:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._fault(f"parentheses and negations go {_DEEPEST} deep at most")
        found = self._read_part()
        self._depth -= 1
        return found

    def _read_part(self) -> GroupDecision:
        token = self._next
        if token.text == "!":
            self._take()
            return _negate(self._read_operand())
        if token.text == "(":
            self._take()
            found = self._read_operators(1)
            self._expect(")")
            return found
        if not token.is_name:
            wanted = "a member is expected here, as in name()"
            raise self._fault(wanted if token.text else f"the expression ends too early: {wanted}")
        return self._read_name()

    def _read_name(self) -> GroupDecision:
        if self._next.text in ("true", "false"):
            constant = self._take().text == "true"
            return lambda _: constant
        name = self._next.text
        if name not in self._members:
            members = ", ".join(sorted(self._members)) or "none"
            raise self._fault(f"{name!r} is no member of the group; the members are: {members}")
        self._take()
        self._expect("(")
        self._expect(")")
        return lambda ask: ask(name)

    def _expect(self, sign: str) -> None:
        if self._next.text != sign:
            raise self._fault(f"{sign!r} is expected here")
        self._take()


def _negate(part: GroupDecision) -> GroupDecision:
    def decide(ask: AskMember) -> Truth:
        found = part(ask)
        return None if found is None else not found

    return decide


def _both(left: GroupDecision, right: GroupDecision) -> GroupDecision:
    def decide(ask: AskMember) -> Truth:
        first = left(ask)
        if first is False:
            return False
        second = right(ask)
        return second if first or second is False else None

    return decide


def _either(left: GroupDecision, right: GroupDecision) -> GroupDecision:
    def decide(ask: AskMember) -> Truth:
        first = left(ask)
        if first:
            return True
        second = right(ask)
        return second if first is False or second else None

    return decide


def _same(left: GroupDecision, right: GroupDecision) -> GroupDecision:
    def decide(ask: AskMember) -> Truth:
        first, second = left(ask), right(ask)
        return None if first is None or second is None else first is second

    return decide


def _differ(left: GroupDecision, right: GroupDecision) -> GroupDecision:
    return _negate(_same(left, right))


_OPERATORS: dict[str, Callable[[GroupDecision, GroupDecision], GroupDecision]] = {
    "&&": _both,
    "&": _both,
    "||": _either,
    "|": _either,
    "==": _same,
    "!=": _differ,
    "^": _differ,
}
