"""Calls whose arguments are all constants are computed while compiling, as far as that is cheap.

Calls can feed each other: a dozen `regex_replace_all` inside each other make a text without end. So
there is a budget for one policy; what is beyond it is computed when a request asks for it, within
the limits for requests.
"""

from typing import Final

from lictor.errors import LictorError
from lictor.lang.jmespath.closures import Run
from lictor.lang.jmespath.functions import FUNCTIONS
from lictor.lang.jmespath.syntax import Node, NodeKind
from lictor.lang.written_size import measure_written

# For the arguments or the result of one call, and for all calls of one policy: bytes when written.
MAX_FOLDED: Final = 16 * 1024
MAX_FOLDED_IN_ALL: Final = 256 * 1024


class FoldingBudget:
    """How much may still be computed while one policy is compiled."""

    def __init__(self, left: int = MAX_FOLDED_IN_ALL) -> None:
        self._left = left

    def spend(self, size: int) -> bool:
        """Take so much; False where that is too much at once, or nothing was left."""
        had = self._left
        self._left -= size
        return had > 0 and size <= MAX_FOLDED


class Folding:
    """Computes the constant calls of one query."""

    def __init__(self, budget: FoldingBudget) -> None:
        self._budget = budget
        # The sizes of answers that are known, by the identity of the call's node.
        self._known: dict[int, int] = {}

    def fold(self, node: Node, run: Run) -> Run:
        """The call, or its answer where the arguments are constants and small enough."""
        if not FUNCTIONS[node.value].pure or not self._affords(node):
            return run
        try:
            result = run(None)
            size = measure_written(result)
        except LictorError:
            # Whoever evaluates it gets the error; perhaps nobody does.
            self._budget.spend(MAX_FOLDED)
            return run
        if not self._budget.spend(size):
            return run
        self._known[id(node)] = size
        return lambda _: result

    def _affords(self, node: Node) -> bool:
        given = 0
        for child in node.children:
            size = self._size(child)
            if size is None:
                return False
            given += size
        return self._budget.spend(given)

    def _size(self, node: Node) -> int | None:
        if node.kind is NodeKind.LITERAL:
            return measure_written(node.value)
        return self._known.get(id(node))
