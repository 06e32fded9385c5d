"""The door of the language: compile a query, run it, look at its tree."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from lictor.errors import SyntaxFaultError, TooLargeError
from lictor.lang.jmespath.compiler import Compiler
from lictor.lang.jmespath.folding import FoldingBudget
from lictor.lang.jmespath.functions import Surroundings
from lictor.lang.jmespath.nodes import node_to_json
from lictor.lang.jmespath.parser import parse
from lictor.lang.jmespath.paths import Run
from lictor.lang.jmespath.rendering import render_node
from lictor.lang.jmespath.values import NativeInteger
from lictor.raw import Json

_WORLD = Surroundings()


class Query(msgspec.Struct, frozen=True):
    """A compiled query. `roots`: the names it asks the root for; `takes_all`: it asks for all."""

    text: str
    roots: frozenset[str]
    takes_all: bool
    run: Run

    def __call__(self, value: Json) -> Json:
        """Evaluate; UnknownKeyError, FunctionError or another EvaluationError where that fails."""
        try:
            result = self.run(value)
        except RecursionError as error:
            raise TooLargeError(f"{self.text}: the value is nested too deeply") from error
        return int(result) if type(result) is NativeInteger else result


def compile_query(
    text: str,
    *,
    now: Callable[[], datetime] = _WORLD.now,
    choose: Callable[[int], int] = _WORLD.choose,
    resolve: Callable[[str], list[str]] = _WORLD.resolve,
    folding: FoldingBudget | None = None,
) -> Query:
    """Compile a query; SyntaxFaultError where it does not parse or calls a function wrongly.

    `choose(n)` gives a random number below n; `resolve(host)` the addresses of a host.
    `folding`: how much may be computed here and now, where several queries share that.
    """
    compiler = Compiler(text, Surroundings(now, choose, resolve), folding or FoldingBudget())
    try:
        run = compiler.compile(parse(text))
    except RecursionError as error:
        raise SyntaxFaultError("the expression is nested too deeply", text=text) from error
    return Query(text, frozenset(compiler.roots), compiler.takes_all, run)


def render_query(text: str) -> str:
    """Draw the tree of a query in the way `kyverno jp parse` does."""
    return render_node(parse(text))


def parse_query(text: str) -> Json:
    """Give the tree of a query as JSON, for people who want to see how it was understood."""
    return node_to_json(parse(text))
