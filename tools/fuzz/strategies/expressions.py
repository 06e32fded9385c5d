"""JMESPath by its grammar over all functions, and texts with `{{ }}` around it."""

import json

from lictor.core.lang.jmespath import FUNCTIONS
from lictor.core.lang.jmespath.functions.spec import FunctionSpec, Type
from strategies.json_values import MEANINGFUL, noise, scalar, text, value
from strategies.source import Source

_KNOWN = (
    "request.object", "request.object.metadata.name", "request.object.metadata.labels",
    "request.object.spec.containers", "request.object.spec", "request.operation",
    "request.object.metadata.namespace", "request.object.spec.containers[].image", "request.namespace",
    "request.object.spec.containers[0].name", "request.object.kind", "images", "images.containers.*",
)  # fmt: skip
_ROOTS = (
    *_KNOWN, "request.oldObject", "request", "request.userInfo", "element", "elementIndex", "target",
    "serviceAccountName", "first", "second", "third", "a", "b", "@", "name", "spec", "containers",
    "metadata", '"a.b"', '"\\ud800"', "*", "request.object.data.a",
)  # fmt: skip
_COMPARATORS = ("==", "!=", "<", "<=", ">", ">=")
_TOKENS = (
    "(", ")", "[", "]", "[?", "{", "}", ".", "*", "@", "&", "&&", "|", "||", "!", ":", ",", "'", "`",
    '"', "-", "0", "-1", "99999999999999999999", "[]", "==", "a", "\\", "\u00e4", "$x", "..", "->",
)  # fmt: skip


def literal(source: Source) -> str:
    """A raw text or a JSON literal."""
    if source.chance(50):
        return "'" + text(source).replace("'", "\\'") + "'"
    made = scalar(source) if source.chance(80) else value(source, 2)
    try:
        return "`" + json.dumps(made).replace("`", "\\`") + "`"
    except (ValueError, RecursionError):
        return "`1`"


def _path(source: Source, depth: int) -> str:
    if depth <= 0 or source.chance(80):
        base = source.pick(_KNOWN if source.chance(60) else _ROOTS)
    else:
        base = _group(source, depth)
    steps = (
        ".name",
        ".*",
        "[0]",
        "[-1]",
        "[*]",
        "[]",
        "[::2]",
        "[1:3]",
        '."x y"',
        ".spec",
        "[::0]",
    )
    for _ in range(source.count(3) if source.chance(40) else 0):
        base += source.pick(steps)
    if depth > 0 and source.chance(15):
        base += f"[?{expression(source, depth - 1)}]"
    return base


def _group(source: Source, depth: int) -> str:
    inner = [expression(source, depth - 1) for _ in range(1 + source.count(2))]
    dice = source.random()
    if dice < 0.4:
        return f"({inner[0]})"
    if dice < 0.7:
        return f"[{', '.join(inner)}]"
    pairs = ", ".join(f"k{index}: {part}" for index, part in enumerate(inner))
    return f"{{{pairs}}}"


def _binary(source: Source, depth: int) -> str:
    sign = source.pick((*_COMPARATORS, "&&", "||", "|"))
    return f"{expression(source, depth - 1)} {sign} {expression(source, depth - 1)}"


_BY_TYPE = {
    Type.ANY: ("`1`", "'a'", "`[1]`", "@"),
    Type.ARRAY: ("`[1, 2]`", '`["a", "b"]`', "request.object.spec.containers", "`[]`", "`[{}, 1]`"),
    Type.BOOL: ("`true`", "`false`"),
    Type.EXPRESSION: ("&@", "&name", "&length(@)", "&to_string(@)", "&a.b"),
    Type.NUMBER: ("`0`", "`1`", "`-1`", "`2.5`", "`1e308`", "`99999999999`", "`-0.0`", "`1e-9`"),
    Type.NUMBERS: ("`[1, 2.5]`", "`[]`", "`[1e308, 1e308]`", "`[-1]`"),
    Type.OBJECT: ("`{}`", '`{"a": 1}`', "request.object.metadata.labels", "request.object"),
    Type.STRING: ("request.object.metadata.name", "name", "''"),
    Type.STRINGS: ('`["a", "b"]`', "`[]`", "keys(@)"),
}


def _argument(source: Source, types: tuple[Type, ...], depth: int) -> str:
    if depth > 0 and source.chance(15):
        return expression(source, depth - 1)
    kind = source.pick(types) if source.chance(95) else source.pick(tuple(Type))
    if kind is Type.STRING and source.chance(75):
        return "'" + source.pick(MEANINGFUL).replace("'", "\\'") + "'"
    if kind is Type.ANY and source.chance(60):
        return literal(source)
    return source.pick(_BY_TYPE[kind])


def call(source: Source, depth: int = 1, spec: FunctionSpec | None = None) -> str:
    """A call of any function, most often with arguments that it takes."""
    spec = spec if spec is not None else source.pick(_SPECS)
    kinds = list(spec.arguments)
    if spec.variadic:
        kinds += [kinds[-1]] * source.count(2)
    if source.chance(3):
        kinds = kinds[:-1] if source.chance(50) else [*kinds, (Type.ANY,)]
    arguments = ", ".join(_argument(source, types, depth) for types in kinds)
    return f"{spec.name}({arguments})"


_SPECS = tuple(FUNCTIONS.values())


def expression(source: Source, depth: int = 2) -> str:
    """A query by the grammar."""
    dice = source.random()
    if dice < 0.3 or depth <= 0:
        return _path(source, depth)
    if dice < 0.4:
        return literal(source)
    if dice < 0.72:
        return call(source, depth)
    if dice < 0.87:
        return _binary(source, depth)
    return f"!{_path(source, depth)}" if dice < 0.91 else _group(source, depth)


def query(source: Source) -> str:
    """A query, or what is left of one after an accident."""
    made = expression(source, 3) if source.chance(85) else call(source, 2)
    for _ in range(source.count(3) if source.chance(15) else 0):
        at = source.randrange(len(made) + 1)
        made = made[:at] + source.pick(_TOKENS) + made[at + source.count(3) :]
    return made


def growing(source: Source) -> str:
    """A short query that asks for a large answer: each step doubles what came before."""
    step = source.pick(("[@, @]", "[@, @][]", "{a: @, b: @}", "map(&[@, @], to_array(@))"))
    last = source.pick(
        ("to_string(@)", "@", "@ == @", "[@, @] | [0] == [1]", "length(@)", "[]", "[][][][]",
         "join('', map(&to_string(@), @))", "sort_by(@, &to_string(@))", "contains(@, `1`)",
         "parse_json(to_string(@))", "*.*.*.*", "replace_all(to_string(@), 'a', to_string(@))")
    )  # fmt: skip
    return " | ".join([*[step] * source.randrange(1, 60), last])


def long_call(source: Source) -> str:
    """A call whose arguments are the long texts and lists of the subject."""
    spec = source.pick(_SPECS)
    kinds = (
        [*spec.arguments, *[spec.arguments[-1]] * source.count(2)]
        if spec.variadic
        else spec.arguments
    )
    return f"{spec.name}({', '.join(_long_argument(source, types) for types in kinds)})"


def _long_argument(source: Source, types: tuple[Type, ...]) -> str:
    kind = source.pick(types)
    if kind is Type.STRING:
        return source.pick(("long", "other", "long", literal(source)))
    return _LARGE.get(kind) or source.pick(_BY_TYPE[kind])


_LARGE = {
    Type.ARRAY: "many",
    Type.STRINGS: "words",
    Type.NUMBERS: "numbers",
    Type.OBJECT: "wide",
    Type.ANY: "long",
}


def template(source: Source) -> str:
    """A text with variables: whole, in between, nested, escaped, shallow, unbalanced."""
    inner = expression(source, 2)
    forms = (
        f"{{{{ {inner} }}}}",
        f"{{{{{inner}}}}}",
        f"a-{{{{ {inner} }}}}-b",
        f"{{{{ {inner} }}}}{{{{ {source.pick(_ROOTS)} }}}}",
        f"{{{{ request.object.{{{{ {inner} }}}} }}}}",
        "{{ request.object.metadata.{{ 'name' }} }}",
        f"\\{{{{ {inner} }}}}",
        f"x {{{{- {inner} }}}} y",
        f"{{{{ {inner}",
        f"{inner} }}}}",
        f"{{{{{{ {inner} }}}}}}",
        noise(source) + f"{{{{ {inner} }}}}" + noise(source),
        f"{{{{ {inner} }}}} \\{{{{ {inner} }}}} {{{{ {{{{ {inner} }}}} }}}}",
    )
    return source.pick(forms)


def maybe_template(source: Source, percent: float = 25) -> str:
    """A text that may hold variables."""
    return template(source) if source.chance(percent) else text(source)
