"""Builtins that older compilers of Rego left to the host are offered too."""

import pytest

from lictor.core.lang.rego import BuiltinRun, find_builtins, list_builtins
from lictor.core.lang.wasm_records import GuestLimits, NoHostCalls


@pytest.mark.parametrize(
    ("text", "expected"), [('{"a": 1}', True), ("[1, 2]", True), ("{a}", False), (7, False)]
)
def test_json_is_valid(text: object, expected: object) -> None:
    run = BuiltinRun(GuestLimits(), NoHostCalls())
    assert find_builtins(["json.is_valid"])["json.is_valid"](run, [text]) is expected


@pytest.mark.parametrize("name", list_builtins())
def test_what_is_listed_is_offered(name: str) -> None:
    assert name in find_builtins([name])
