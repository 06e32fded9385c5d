"""Compiles a query's tree to closures: what depends on the query only is computed once.

Each node can be compiled in two ways: the strict form raises UnknownKeyError for a missing key, the
lenient form returns null. Most operators read their operands leniently, so that a missing key is an
error only if a plain path reads it.
"""

from collections.abc import Callable

from lictor.core.errors import (
    BrokenVariableError,
    EvaluationError,
    SyntaxFaultError,
    UnknownKeyError,
)
from lictor.core.lang.go_number import NUMBERS
from lictor.core.lang.jmespath.closures import (
    Folding,
    FoldingBudget,
    Run,
    compile_call,
    cut,
    fetch_each,
    fetch_lenient,
    fetch_root,
    fetch_strict,
    filter_items,
    flatten,
    project,
    project_flat,
    project_values,
)
from lictor.core.lang.jmespath.functions import FUNCTIONS, FunctionSpec, JmesPathHost
from lictor.core.lang.jmespath.functions.spec import Type, equals, is_false
from lictor.core.lang.jmespath.syntax import Node, NodeKind, Token
from lictor.core.lang.written_size import check_written
from lictor.core.raw import Json

# Nodes that return null for null, so that a missing key before them needs no exception. Those of
# the second group do if their first operand does.
_NULL_FOR_NULL = frozenset(
    (
        NodeKind.CURRENT,
        NodeKind.FIELD,
        NodeKind.IDENTITY,
        NodeKind.INDEX,
        NodeKind.MULTI_SELECT_HASH,
        NodeKind.MULTI_SELECT_LIST,
        NodeKind.SLICE,
    )
)
_AS_THEIR_SOURCE = frozenset(
    (NodeKind.FILTER_PROJECTION, NodeKind.FLATTEN, NodeKind.PROJECTION, NodeKind.VALUE_PROJECTION)
)
# Only values between commas can be duplicated in a result. With few of them it stays in proportion
# to the input, which is measured itself.
_FEW_COMMAS = 4
_PLAIN = frozenset((NodeKind.CURRENT, NodeKind.FIELD, NodeKind.LITERAL))
_COMPARISONS: dict[Token, Callable[[Json, Json], bool]] = {
    Token.LESS: lambda left, right: left < right,
    Token.LESS_OR_EQUAL: lambda left, right: left <= right,
    Token.GREATER: lambda left, right: left > right,
    Token.GREATER_OR_EQUAL: lambda left, right: left >= right,
}


class Compiler:
    """Compiles one query and records the root keys that it reads."""

    def __init__(self, text: str, host: JmesPathHost, budget: FoldingBudget) -> None:
        self.roots: set[str] = set()
        self.takes_all = False
        self._text = text
        self._can_grow = text.count(",") > _FEW_COMMAS
        self._host = host
        self._folding = Folding(budget)
        self._strict: dict[NodeKind, Callable[..., Run]] = {
            NodeKind.AND: self._and_strict,
            NodeKind.FIELD: self._path_strict,
            NodeKind.INDEX_EXPRESSION: self._chain_strict,
            NodeKind.SUBEXPRESSION: self._path_strict,
        }
        self._lenient: dict[NodeKind, Callable[..., Run]] = {
            NodeKind.AND: self._and,
            NodeKind.COMPARATOR: self._comparator,
            NodeKind.CURRENT: self._current,
            NodeKind.EXPRESSION_REFERENCE: lambda _, **__: lambda ___: {},
            NodeKind.FIELD: self._path,
            NodeKind.FILTER_PROJECTION: self._filter,
            NodeKind.FLATTEN: self._flatten,
            NodeKind.FUNCTION: self._function,
            NodeKind.IDENTITY: self._current,
            NodeKind.INDEX: self._index,
            NodeKind.INDEX_EXPRESSION: self._chain,
            NodeKind.KEY_VALUE: lambda node, root: self.lenient(node.children[0], root=root),
            NodeKind.LITERAL: self._literal,
            NodeKind.MULTI_SELECT_HASH: self._multi_select_hash,
            NodeKind.MULTI_SELECT_LIST: self._multi_select_list,
            NodeKind.NOT: self._not,
            NodeKind.OR: self._or,
            NodeKind.PIPE: self._pipe,
            NodeKind.PROJECTION: self._projection,
            NodeKind.SLICE: lambda node, **_: cut(*node.value),
            NodeKind.SUBEXPRESSION: self._path,
            NodeKind.VALUE_PROJECTION: self._value_projection,
        }

    def compile(self, node: Node) -> Run:
        """Compile a whole query."""
        return self._measured(node, self.strict(node, root=True))

    def strict(self, node: Node, *, root: bool = False) -> Run:
        """Compile so that a missing key raises; `root`: the value is the root itself."""
        build = self._strict.get(node.kind) or self._lenient[node.kind]
        return build(node, root=root)

    def lenient(self, node: Node, *, root: bool = False) -> Run:
        """Compile so that a missing key returns null."""
        return self._lenient[node.kind](node, root=root)

    # Paths.

    def _path_strict(self, node: Node, *, root: bool) -> Run:
        base, keys = _split_path(node)
        if not keys:
            return self._chain_strict(node, root=root)
        if base is None:
            self._note_root(keys[0], root=root)
            return fetch_strict(keys)
        first, then = self.strict(base, root=root), fetch_strict(keys)
        return lambda value: then(first(value))

    def _path(self, node: Node, *, root: bool) -> Run:
        base, keys = _split_path(node)
        if not keys:
            return self._chain(node, root=root)
        if base is None:
            self._note_root(keys[0], root=root)
            return fetch_root(keys) if root else fetch_lenient(keys)
        first, then = self.lenient(base, root=root), fetch_lenient(keys)
        return lambda value: then(first(value))

    def _chain_strict(self, node: Node, *, root: bool) -> Run:
        left, right = node.children
        first, then = self.strict(left, root=root), self.strict(right)
        return lambda value: then(first(value))

    def _chain(self, node: Node, *, root: bool) -> Run:
        left, right = node.children
        if _passes_null(right):
            first, then = self.lenient(left, root=root), self.lenient(right)
            return lambda value: then(first(value))
        run = self._chain_strict(node, root=root)

        def chain(value: Json) -> Json:
            try:
                return run(value)
            except UnknownKeyError:
                return None

        return chain

    def _note_root(self, name: str, *, root: bool) -> None:
        if root:
            self.roots.add(name)

    # Single values.

    def _literal(self, node: Node, *, root: bool) -> Run:  # noqa: ARG002
        value = node.value
        return lambda _: value

    def _current(self, _: Node, *, root: bool) -> Run:
        if not root:
            return lambda value: value
        self.takes_all = True

        def current(value: Json) -> Json:
            load_all = getattr(value, "load_all", None)
            return value if load_all is None else load_all()

        return current

    def _index(self, node: Node, *, root: bool) -> Run:  # noqa: ARG002
        index: int = node.value

        def item(value: Json) -> Json:
            if not isinstance(value, list):
                return None
            return value[index] if -len(value) <= index < len(value) else None

        return item

    def _multi_select_list(self, node: Node, *, root: bool) -> Run:
        if not root and all(child.kind is NodeKind.FIELD for child in node.children):
            return fetch_each(tuple(child.value for child in node.children))
        runs = tuple(self.lenient(child, root=root) for child in node.children)
        return lambda value: None if value is None else [run(value) for run in runs]

    def _multi_select_hash(self, node: Node, *, root: bool) -> Run:
        pairs = tuple((child.value, self.lenient(child, root=root)) for child in node.children)
        return lambda value: None if value is None else {key: run(value) for key, run in pairs}

    # Operators.

    def _operand(self, node: Node, *, root: bool) -> Run:
        """An operand that is used as a whole: compared, serialized or copied."""
        return self._measured(node, self.lenient(node, root=root))

    def _measured(self, node: Node, run: Run) -> Run:
        if not self._can_grow or node.kind in _PLAIN:
            return run
        return lambda value: check_written(run(value))

    def _comparator(self, node: Node, *, root: bool) -> Run:
        left, right = (self._operand(child, root=root) for child in node.children)
        if node.value is Token.EQUAL:
            return lambda value: equals(left(value), right(value))
        if node.value is Token.NOT_EQUAL:
            return lambda value: not equals(left(value), right(value))
        holds = _COMPARISONS[node.value]

        def compare(value: Json) -> Json:
            first, second = left(value), right(value)
            if type(first) in NUMBERS and type(second) in NUMBERS:
                return holds(first, second)
            return None

        return compare

    def _or(self, node: Node, *, root: bool) -> Run:
        left, right = (self.lenient(child, root=root) for child in node.children)

        def either(value: Json) -> Json:
            first = left(value)
            # What is true in Python is true here; of the rest, only numbers are.
            return first if first or not is_false(first) else right(value)

        return either

    def _and(self, node: Node, *, root: bool) -> Run:
        left, right = (self.lenient(child, root=root) for child in node.children)
        return _both(left, right)

    def _and_strict(self, node: Node, *, root: bool) -> Run:
        left, right = node.children
        return _both(self.lenient(left, root=root), self.strict(right, root=root))

    def _not(self, node: Node, *, root: bool) -> Run:
        inner = self.lenient(node.children[0], root=root)
        return lambda value: is_false(inner(value))

    def _pipe(self, node: Node, *, root: bool) -> Run:
        left, right = node.children
        first, then = self.lenient(left, root=root), self.lenient(right)
        return lambda value: then(first(value))

    # Projections.

    def _projection(self, node: Node, *, root: bool) -> Run:
        left, right = node.children
        each = None if right.kind is NodeKind.IDENTITY else self.lenient(right)
        if left.kind is NodeKind.FLATTEN:
            return project_flat(self.lenient(left.children[0], root=root), each)
        return project(self.lenient(left, root=root), each)

    def _filter(self, node: Node, *, root: bool) -> Run:
        left, right, condition = node.children
        each = None if right.kind is NodeKind.IDENTITY else self.lenient(right)
        return filter_items(_forgive(self.lenient(left, root=root)), self.lenient(condition), each)

    def _flatten(self, node: Node, *, root: bool) -> Run:
        return flatten(self.lenient(node.children[0], root=root))

    def _value_projection(self, node: Node, *, root: bool) -> Run:
        left, right = node.children
        each = None if right.kind is NodeKind.IDENTITY else self.lenient(right)
        return project_values(_forgive(self.lenient(left, root=root)), each)

    # Functions.

    def _function(self, node: Node, *, root: bool) -> Run:
        spec = self._find_function(node)
        arguments = tuple(
            self._argument(child, types, root=root)
            for child, types in zip(node.children, _argument_types(spec, node), strict=True)
        )
        return self._folding.fold(node, compile_call(spec, arguments, self._host))

    def _find_function(self, node: Node) -> FunctionSpec:
        spec = FUNCTIONS.get(node.value)
        count = len(node.children)
        if spec is None:
            message = f"unknown function: {node.value}"
        elif not spec.accepts_count(count):
            message = f"function {spec.signature} was given {count} arguments"
        else:
            return spec
        raise SyntaxFaultError(message, text=self._text, position=node.position)

    def _argument(self, node: Node, types: tuple[Type, ...], *, root: bool) -> Run:
        if node.kind is not NodeKind.EXPRESSION_REFERENCE or Type.ANY in types:
            return self._operand(node, root=root)
        # The elements that the expression will see are never the root.
        expression = self.lenient(node.children[0])
        return lambda _: expression


def _split_path(node: Node) -> tuple[Node | None, tuple[str, ...]]:
    """Split `base.a.b.c` into base and keys; the base is None if the path starts with a key."""
    keys: list[str] = []
    while node.kind is NodeKind.SUBEXPRESSION and node.children[1].kind is NodeKind.FIELD:
        keys.append(node.children[1].value)
        node = node.children[0]
    if node.kind is NodeKind.FIELD:
        keys.append(node.value)
        return None, tuple(reversed(keys))
    if node.kind is NodeKind.CURRENT and keys:
        return None, tuple(reversed(keys))
    return node, tuple(reversed(keys))


def _passes_null(node: Node) -> bool:
    if node.kind in (NodeKind.SUBEXPRESSION, NodeKind.INDEX_EXPRESSION):
        return all(map(_passes_null, node.children))
    if node.kind in _AS_THEIR_SOURCE:
        return _passes_null(node.children[0])
    return node.kind in _NULL_FOR_NULL


def _argument_types(spec: FunctionSpec, node: Node) -> list[tuple[Type, ...]]:
    """The types of all arguments: the last one's for those beyond the declared ones."""
    missing = len(node.children) - len(spec.arguments)
    last = spec.arguments[-1] if spec.arguments else (Type.ANY,)
    return [*spec.arguments, *([last] * missing)]


def _both(left: Run, right: Run) -> Run:
    def both(value: Json) -> Json:
        first = left(value)
        return first if is_false(first) else right(value)

    return both


def _forgive(run: Run) -> Run:
    """These projections treat an error of their operand as null."""

    def forgiving(value: Json) -> Json:
        try:
            return run(value)
        except BrokenVariableError:
            raise
        except EvaluationError:
            return None

    return forgiving
