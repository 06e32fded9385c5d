"""Leaves of a pattern, such as `?*`, `>=1Gi & <4Gi`, `!a | 1h-2h`, 5 or null, as tests in CEL."""

import re

from lictor.addons.convert.cel_tests import (
    FALSE,
    TRUE,
    Atom,
    Test,
    all_of,
    any_of,
    compare,
    for_all,
    negate,
)
from lictor.addons.convert.cel_values import CelValue
from lictor.addons.convert.writing import literal, quote, regex_of, wrap
from lictor.core.errors import CompileError
from lictor.core.lang.pattern.scalar import (
    compile_scalar,
    read_duration,
    read_quantity,
    split_operator,
)
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.raw import Json

_END = r"([-|+]?[0-9]+(?:\.[0-9]+)?[A-Za-z]*)"
_RANGE = re.compile(f"{_END}-{_END}")
_OUTSIDE = re.compile(f"{_END}!-{_END}")
_DURATION = r"^[+-]?([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$"
_METHODS = {
    "<": "isLessThan",
    ">": "isGreaterThan",
}


def accepts_absence(pattern: Json) -> bool:
    """Whether the pattern accepts a missing value."""
    return compile_scalar(pattern)(None)


def translate_scalar(pattern: Json, target: CelValue) -> Test:
    """The test of a value that is there."""
    if target.type == "list":
        element = CelValue("value", target.shape.element)
        return for_all(target.text, "value", translate_scalar(pattern, element))
    if target.type == "map":
        # Neither texts nor numbers are maps; only existence can be tested for one.
        return FALSE
    if pattern is None:
        return _translate_nothing(target)
    if isinstance(pattern, bool):
        return compare(wrap(target.text), "==", literal(pattern))
    if isinstance(pattern, str):
        return _translate_text(pattern, target)
    return _translate_number(pattern, target)


def _translate_nothing(target: CelValue) -> Test:
    zeros = {"string": ['""'], "number": ["0"], "boolean": ["false"]}
    sought = zeros.get(target.type, ["null", '""', "0", "false"])
    return any_of(compare(wrap(target.text), "==", zero) for zero in sought)


def _translate_number(pattern: float, target: CelValue) -> Test:
    number = compare(wrap(target.text), "==", literal(pattern))
    if target.type in ("number", "boolean"):
        return number
    text = compare(wrap(target.text), "==", quote(literal(pattern)))
    return text if target.type == "string" else any_of((number, text))


def _translate_text(pattern: str, target: CelValue) -> Test:
    alternatives = [
        [part.strip(" ") for part in alternative.strip(" ").split("&")]
        for alternative in pattern.split("|")
    ]
    words = [parts[0] for parts in alternatives if len(parts) == 1 and _is_word(parts[0])]
    if len(words) == len(alternatives) > 1 and target.type in ("string", ""):
        return Atom(f"{wrap(target.text)} in {literal(words)}")
    return any_of(all_of(_translate_part(part, target) for part in parts) for parts in alternatives)


def _is_word(text: str) -> bool:
    return (
        split_operator(text)[0] == ""
        and not has_wildcard(text)
        and text not in ("true", "false")
        and not _RANGE.fullmatch(text)
        and not _OUTSIDE.fullmatch(text)
        and read_duration(text) is None
        and read_quantity(text) is None
    )


def _translate_part(text: str, target: CelValue) -> Test:
    sign, operand = split_operator(text)
    if not sign:
        outside, inside = _OUTSIDE.fullmatch(text), _RANGE.fullmatch(text)
        if outside is not None:
            ends = (("<", outside.group(1)), (">", outside.group(2)))
            return any_of(_translate_comparison(*end, target) for end in ends)
        if inside is not None:
            ends = ((">=", inside.group(1)), ("<=", inside.group(2)))
            return all_of(_translate_comparison(*end, target) for end in ends)
    return _translate_comparison(sign, operand.strip(), target)


def _translate_comparison(sign: str, operand: str, target: CelValue) -> Test:
    if read_duration(operand) is not None or read_quantity(operand) is not None:
        return translate_amount(sign, operand, target)
    if sign in ("", "!"):
        fits = translate_wildcard(operand, target)
        return fits if not sign else negate(fits)
    # Texts have no order.
    return FALSE


def translate_wildcard(pattern: str, target: CelValue) -> Test:
    """The test of a text that may hold wildcards; booleans answer to their names."""
    if pattern in ("true", "false") and target.type in ("boolean", ""):
        truth = compare(wrap(target.text), "==", pattern)
        if target.type == "boolean":
            return truth
        return any_of((truth, compare(wrap(target.text), "==", quote(pattern))))
    if not pattern.strip("*") and pattern:
        return TRUE
    if target.type in ("boolean", "number"):
        return _translate_stiff(pattern, target)
    return match_text(pattern, target.text)


def _translate_stiff(pattern: str, target: CelValue) -> Test:
    if pattern in ("?*", "*?"):
        return TRUE
    if has_wildcard(pattern):
        raise CompileError(f"the pattern {pattern!r} is compared with a {target.type}")
    return FALSE


def match_text(pattern: str, text: str) -> Test:
    """The test of a text by a wildcard pattern, as the simplest CEL expression."""
    value = wrap(text)
    if not has_wildcard(pattern):
        return compare(value, "==", quote(pattern))
    if pattern in ("?*", "*?"):
        return compare(value, "!=", '""')
    if not pattern.strip("*"):
        return TRUE
    pieces = pattern.split("*")
    if "?" not in pattern and len(pieces) == 2 and not all(pieces):
        prefix, suffix = pieces
        call = f"startsWith({quote(prefix)})" if prefix else f"endsWith({quote(suffix)})"
        return Atom(f"{value}.{call}")
    if "?" not in pattern and len(pieces) == 3 and not pieces[0] and not pieces[2]:
        return Atom(f"{value}.contains({quote(pieces[1])})")
    return Atom(f"{value}.matches({quote(regex_of(pattern))})")


def translate_amount(sign: str, operand: str, target: CelValue) -> Test:
    """The comparison with a quantity, a duration or a number."""
    compared = "==" if not sign else "!=" if sign == "!" else sign
    if target.type == "number":
        return _compare_number(compared, operand, target)
    if target.type == "boolean":
        # Neither an amount nor a text that fits one.
        return TRUE if compared == "!=" else FALSE
    text = wrap(target.text) if target.type == "string" else f"string({target.text})"
    quantity = _compare_quantity(compared, operand, text)
    if read_duration(operand) is None or operand == "0":
        return quantity
    length = compare(f"duration({text})", compared, f"duration({quote(operand)})")
    is_length = Atom(f'{text}.matches("{_DURATION}")')
    return any_of((all_of((is_length, length)), all_of((negate(is_length), quantity))))


def _compare_number(sign: str, operand: str, target: CelValue) -> Test:
    amount = read_quantity(operand)
    if amount is None or amount != amount.to_integral_value():
        raise CompileError(f"a number is compared with {operand!r}")
    return compare(wrap(target.text), sign, str(int(amount)))


def _compare_quantity(sign: str, operand: str, text: str) -> Test:
    if read_quantity(operand) is None:
        return TRUE if sign == "!=" else FALSE
    is_amount = Atom(f"isQuantity({text})")
    other = f"quantity({quote(operand)})"
    if sign in ("==", "!="):
        same = compare(f"quantity({text}).compareTo({other})", "==", "0")
        return all_of((is_amount, same)) if sign == "==" else negate(all_of((is_amount, same)))
    strict = sign in ("<", ">")
    method = _METHODS[sign if strict else {"<=": ">", ">=": "<"}[sign]]
    test = Atom(f"quantity({text}).{method}({other})")
    return all_of((is_amount, test if strict else negate(test)))
