"""Rego's builtins give OPA's values, and none of them runs away."""

import json
import time
from pathlib import Path

import pytest

from lictor.core.errors import FunctionError, GuestTimeError, LictorError, ModuleError
from lictor.core.lang.rego import BuiltinRun, find_builtins
from lictor.core.lang.rego.values import RegoSet, dump_value, parse_value, write_value
from lictor.core.lang.wasm_records import GuestLimits, NoHostCalls

# tests/wasm/test_rego_opa.py asks OPA whether the table is right.
TABLE = Path(__file__).parents[4] / "wasm" / "rego" / "builtins.jsonl"
ROWS = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def start(**limits):
    run = BuiltinRun(GuestLimits(**limits), NoHostCalls())
    run.begin(1_700_000_000_000_000_000, limits.get("seconds", 2.0))
    return run


def call(name, text, run=None):
    function = find_builtins([name])[name]
    return function(run or start(), parse_value(f"[{text}]"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['builtin']}({row['arguments'][:40]})")
def test_values_are_those_of_opa(row):
    if row["value"] is None:
        with pytest.raises(FunctionError):
            call(row["builtin"], row["arguments"])
        return
    value = call(row["builtin"], row["arguments"])
    assert write_value(value) == row["value"]
    # What goes back into the module is the same value.
    assert write_value(parse_value(dump_value(value).decode())) == row["value"]


def test_chance_is_the_same_during_one_evaluation():
    run = start()
    names = ['"a", 1000000', '"b", 1000000']
    first = [call("rand.intn", each, run) for each in names]
    ids = [call("uuid.rfc4122", each, run) for each in ('"a"', '"b"')]
    assert first == [call("rand.intn", each, run) for each in names]
    assert ids == [call("uuid.rfc4122", each, run) for each in ('"a"', '"b"')]
    assert ids[0] != ids[1]
    assert call("time.now_ns", "", run) == 1_700_000_000_000_000_000
    run.begin(2, None)
    assert ids[0] != call("uuid.rfc4122", '"a"', run)


@pytest.mark.parametrize("name", ["http.send", "net.lookup_ip_addr"])
def test_what_reaches_outside_is_refused(name):
    with pytest.raises(ModuleError, match=f"uses the network.*{name}"):
        find_builtins(["sprintf", name])


def test_all_that_is_missing_is_told():
    with pytest.raises(ModuleError, match=r"unsupported builtins: a\.x, b\.y"):
        find_builtins(["b.y", "sprintf", "a.x"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("net.cidr_expand", '"10.0.0.0/8"'),
        ("net.cidr_expand", '"::/0"'),
        ("numbers.range_step", "0, 999999999999, 1"),
        ("sprintf", '"%*v", [1000000, 1]'),
        ("sprintf", json.dumps("%999999d" * 20) + ", [1]"),
        ("sprintf", json.dumps("%999999[1]d" * 5000) + ", [1]"),
        ("json.marshal_with_options", json.dumps([1] * 100_000) + ", " + json.dumps({"indent": "x" * 100_000})),
        ("json.patch", '{"a": [1]}, ' + json.dumps([{"op": "copy", "from": "/a", "path": "/a/-"}] * 60)),
        ("object.subset", json.dumps([1] * 60_000) + ", " + json.dumps([1] * 30_000 + [2])),
        ("strings.any_prefix_match", json.dumps(["a"] * 20_000) + ", " + json.dumps(["b"] * 20_000)),
        ("units.parse", '"1e999999"'),
        ("units.parse_bytes", '"1e999999"'),
        ("time.add_date", "0, 999999999, 999999999, 999999999"),
        ("yaml.unmarshal", json.dumps("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{n}: &{n} [{','.join(f'*{p}' for _ in range(9))}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)))),
        ("strings.render_template", json.dumps("{{" * 20_000) + ", {}"),
        ("regex.replace", f'"{"a" * 50_000}", "(a*)*b", "x"'),
        ("semver.is_valid", f'"{"9" * 100_000}.0.0"'),
        ("graph.reachable_paths", json.dumps({str(n): [str(m) for m in range(24)] for n in range(24)}) + ', ["0"]'),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_nothing_takes_long_or_makes_much(name, text):
    run = start(seconds=1.0, output_bytes=1 << 20)
    began = time.process_time()
    try:
        value = call(name, text, run)
    except (FunctionError, LictorError, ValueError):
        value = None
    assert len(dump_value(value)) <= 1 << 20
    assert time.process_time() - began < 3


def test_a_builtin_that_takes_long_is_stopped():
    run = start(seconds=-1.0)
    with pytest.raises(GuestTimeError, match="time limit"):
        call("net.cidr_expand", '"10.0.0.0/24"', run)


@pytest.mark.parametrize(
    "text",
    ["1", "-2.50", '"a\\"b"', "[]", "{}", "set()", "{1}", '{"a": {1, "x"}}', "{[1]: {null}}", "1e3",
     "[true, false, null]", '{"b": 1, "a": [set(), {}]}'],
)  # fmt: skip
def test_values_are_written_as_they_are_read(text):
    value = parse_value(text)
    again = parse_value(dump_value(value).decode())
    assert write_value(again) == write_value(value)


@pytest.mark.parametrize("text", ["", "{", "{1", "[1", "{1: }", "{1: 2, 3}", "[1] 2", "nul", "{,}"])
def test_what_is_no_value_is_no_value(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_value(text)


def test_sets_are_sorted_as_rego_sorts():
    value = parse_value('{"b", 2, null, [1], {"k": 1}, {1}, true, 1.5, "a", 1}')
    assert isinstance(value, RegoSet)
    assert write_value(value) == '{null, true, 1, 1.5, 2, "a", "b", [1], {"k": 1}, {1}}'
