"""Assignability of types with type variables, as the checker of cel-go decides it."""

from collections.abc import Sequence

from cel2.types import DYN, Type, rebuild

_NULLABLE = frozenset(("opaque", "struct", "duration", "timestamp"))
_STRUCTURED = frozenset(("opaque", "list", "map"))
_FREE = frozenset(("dyn", "error"))


class Substitutions:
    """What the type variables of one expression stand for so far."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._trail: list[tuple[Type, Type | None]] = []

    def is_assignable(self, left: Type, right: Type) -> bool:
        """Whether the types agree; binds variables only if they do."""
        if left is right and left.kind != "param":
            return True
        mark = len(self._trail)
        if self._agree(left, right):
            return True
        self._undo(mark)
        return False

    def are_assignable(self, left: Sequence[Type], right: Sequence[Type]) -> bool:
        """As for two types, for lists of them."""
        mark = len(self._trail)
        if self._agree_all(left, right):
            return True
        self._undo(mark)
        return False

    def substitute(self, of: Type, *, free_is_dyn: bool = False) -> Type:
        """Replace variables by what they stand for; unbound ones by dyn on request."""
        while of.kind == "param":
            bound = self._bound.get(of)
            if bound is None:
                return DYN if free_is_dyn else of
            of = bound
        if not of.params:
            return of
        return rebuild(of, [self.substitute(p, free_is_dyn=free_is_dyn) for p in of.params])

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            variable, old = self._trail.pop()
            if old is None:
                del self._bound[variable]
            else:
                self._bound[variable] = old

    def _bind(self, variable: Type, to: Type) -> None:
        self._trail.append((variable, self._bound.get(variable)))
        self._bound[variable] = to

    def _agree_all(self, left: Sequence[Type], right: Sequence[Type]) -> bool:
        return len(left) == len(right) and all(map(self._agree, left, right))

    def _agree(self, left: Type, right: Type) -> bool:
        if right.kind == "param":
            valid, has_bound = self._fits(left, right)
            if valid or has_bound:
                return valid
        if left.kind == "param":
            return self._fits(right, left)[0]
        if left.kind in _FREE or right.kind in _FREE:
            return True
        if left.kind == "null" or right.kind == "null":
            other = right if left.kind == "null" else left
            return other.kind in _NULLABLE or other.name.startswith(("null", "wrapper("))
        if left.kind != right.kind:
            return False
        if left.kind in _STRUCTURED:
            return left.name == right.name and self._agree_all(left.params, right.params)
        return left.name == right.name or left.kind != "struct"

    def _fits(self, candidate: Type, variable: Type) -> tuple[bool, bool]:
        """Whether `candidate` can stand for the variable, and whether it has a binding."""
        if candidate is variable:
            return True, True
        bound = self._bound.get(variable)
        if bound is not None:
            if candidate is bound:
                return True, True
            if not self._agree(candidate, bound):
                return False, True
            general = most_general(candidate, bound)
            if not self._occurs(variable, general):
                self._bind(variable, general)
            return True, True
        if self._occurs(variable, candidate):
            return False, False
        self._bind(variable, candidate)
        return True, False

    def _occurs(self, variable: Type, within: Type) -> bool:
        if variable is within:
            return True
        if within.kind == "param":
            bound = self._bound.get(within)
            return bound is not None and self._occurs(variable, bound)
        return any(self._occurs(variable, param) for param in within.params)


def most_general(left: Type, right: Type) -> Type:
    """Which of two types that agree is the less specific one."""
    return left if _is_less_specific(left, right) else right


def _is_less_specific(left: Type, right: Type) -> bool:
    if left.kind in ("dyn", "param"):
        return True
    if right.kind in ("dyn", "param") or left.kind != right.kind:
        return False
    if left.kind in _STRUCTURED:
        same = left.name == right.name and len(left.params) == len(right.params)
        return same and all(map(_is_less_specific, left.params, right.params))
    return left.kind == "type" or left is right
