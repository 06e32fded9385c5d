"""JMESPath as Kyverno's policies use it: a query's text in, a callable out. No I/O happens here."""

from lictor.lang.jmespath.folding import FoldingBudget
from lictor.lang.jmespath.functions import FUNCTIONS, FunctionSpec
from lictor.lang.jmespath.query import Query, compile_query, parse_query, render_query

__all__ = [
    "FUNCTIONS",
    "FoldingBudget",
    "FunctionSpec",
    "Query",
    "compile_query",
    "parse_query",
    "render_query",
]
