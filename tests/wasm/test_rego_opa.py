"""Rego's builtins: the table that unit tests hold on to is what OPA itself says."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from opa_program import NoCompilerError, Opa, find_opa

from lictor.core.lang.rego import BuiltinRun, find_builtins
from lictor.core.lang.rego.values import parse_value
from lictor.core.lang.wasm_records import GuestLimits, NoHostCalls

TABLE = Path(__file__).parent / "rego" / "builtins.jsonl"
ROWS = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
_VALUES = (
    '"abc"', '"é\\u0001\\"q"', "0", "7", "-42", "9223372036854775808", "1.5", "-0.001", "1e21",
    "123456789.125", "1e-7", "true", "null", '[1, "a", {"k": 2.50}]', '{"b", "a", 1}', "set()",
    '{"z": [1], "a": {"x": null}}', '{1: "one"}', '""',
)  # fmt: skip
_WIDTHS = ("", "", "", "5", "12", "*", "[1]", "[2]", "[9]", "[x]")
_PRECISIONS = ("", "", ".2", ".0", ".", ".*", ".10")
# Not p: it shows an address of OPA's.
_VERBS = "vsdqxXobOcUeEfFgGtTz%"


@pytest.fixture(scope="module")
def opa() -> Iterator[Opa]:
    try:
        program = find_opa()
    except NoCompilerError as error:
        pytest.skip(str(error))
    with Opa(program) as running:
        yield running


def test_table_of_builtins_is_what_opa_says(opa: Opa) -> None:
    wrong = []
    for row in ROWS:
        call = f"{row['builtin']}({row['arguments']})"
        try:
            found = opa.evaluate(f'sprintf("%v", [[{call}]])')
        except ValueError as error:
            # OPA's own compiler knows that it has no value.
            found = [] if "rego_type_error" in str(error) else [str(error)]
        value = found[0][1:-1] if found else None
        if value != row["value"]:
            wrong.append((call, value, row["value"]))
    assert wrong == []


def _make_format(chance: random.Random) -> str:
    parts = [
        f"{chance.choice(('', 'a ', 'é'))}%{''.join(chance.sample('#0+- ', chance.choice((0, 0, 1, 2))))}"
        f"{chance.choice(_WIDTHS)}{chance.choice(_PRECISIONS)}{chance.choice(_VERBS)}"
        for _ in range(chance.randint(1, 3))
    ]
    return "".join(parts)


def test_formats_give_what_opa_gives(opa: Opa) -> None:
    run = BuiltinRun(GuestLimits(), NoHostCalls())
    run.begin(0, None)
    sprintf = find_builtins(["sprintf"])["sprintf"]
    chance, wrong = random.Random(7), []
    for _ in range(400):
        text = _make_format(chance)
        given = f"[{', '.join(chance.choice(_VALUES) for _ in range(chance.randint(0, 3)))}]"
        made = sprintf(run, [text, parse_value(given)])
        expected = opa.evaluate(f"sprintf({json.dumps(text)}, {given})")
        if [made] != expected:
            wrong.append((text, given, made, expected))
    assert wrong == []
