"""Which small changes of an expression or a pattern's value would turn its meaning around?"""

import re
from collections.abc import Iterator

# A CEL token that a change can be made to; texts come first, so that nothing inside them counts.
_CEL_TOKEN = re.compile(
    r"""(?P<text>[rRbB]{0,2}(?:'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))"""
    r"|(?P<comment>//[^\n]*)"
    r"|(?P<operator>==|!=|<=|>=|&&|\|\||<|>|!has\(|\bhas\(|!|\.all\(|\.exists\()"
    r"|(?P<word>\b(?:true|false)\b)"
    r"|(?P<number>(?<![\w.])\d+(?![\w.]))",
    re.DOTALL,
)
_OPPOSITES = {
    "==": ("!=",), "!=": ("==",), "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="),
    ">=": (">", "<"), "&&": ("||",), "||": ("&&",), "!has(": ("has(",), "has(": ("!has(",),
    "!": ("",), ".all(": (".exists(",), ".exists(": (".all(",), "true": ("false",),
    "false": ("true",),
}  # fmt: skip
_COMPARISONS = {">=": ">", "<=": "<", ">": ">=", "<": "<=", "!": ""}
_COMPARED = re.compile(r"\s*(>=|<=|>|<|!)\s*(.+)", re.DOTALL)
_FLIPPED = {"true": "false", "false": "true", "?*": "*"}


def change_expression(expression: str) -> Iterator[tuple[str, str]]:
    """Each change of one token of a CEL expression: what was changed, and the new expression."""
    for found in _CEL_TOKEN.finditer(expression):
        token = found.group()
        for other in _change_token(found):
            changed = expression[: found.start()] + other + expression[found.end() :]
            shown = f'"{other}"' if other else "nothing"
            yield f'"{token}" became {shown}', changed


def _change_token(found: re.Match[str]) -> tuple[str, ...]:
    token = found.group()
    match found.lastgroup:
        case "number":
            return (str(int(token) + 1),)
        case "text":
            quotes = 3 if token.endswith(("'''", '"""')) else 1
            return (f"{token[:-quotes]}~{token[-quotes:]}",)
        case "comment":
            return ()
        case _:
            return _OPPOSITES[token]


def change_pattern_text(value: str) -> Iterator[str]:
    """Each change of the text of a pattern that other values fit: alternatives, comparisons."""
    for mark in ("|", "&"):
        parts = value.split(mark)
        if len(parts) > 1 and "{{" not in value:
            for index in range(len(parts)):
                yield mark.join(parts[:index] + parts[index + 1 :]).strip()
            return
    compared = _COMPARED.fullmatch(value)
    if compared:
        yield f"{_COMPARISONS[compared[1]]}{compared[2]}"
    elif value in _FLIPPED:
        yield _FLIPPED[value]
    elif value != "*":
        yield f"!{value}"
