"""Gatekeeper's templates and OPA's builtins, compiled to Wasm: verdicts and messages are OPA's own."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from shared_cases import CASES

sys.path.append(str(Path(__file__).parents[1] / "wasm"))

from opa_program import NoCompilerError, Opa, Rego, find_opa, module_folder
from rego_site import Cluster, group_objects, open_rego

from lictor.core.errors import ModuleError
from lictor.core.lang.wasm_records import ExecutionMode, GuestAnswer

TABLES = CASES / "kubewarden"
LIBRARY = CASES / "gatekeeper-library"
# Values that differ each time.
RANDOM = re.compile(r"rand\.|uuid\.rfc4122|now_ns")
REFUSED = ("http.send",)
_ASKING = """package p

answer(text) := {"response": {"uid": "", "allowed": false, "status": {"message": text}}}

main := answer(json.marshal(v)) if v := EXPRESSION

main := answer("undefined") if not has_value

has_value if v := EXPRESSION
"""


@pytest.fixture(scope="module")
def opa() -> Iterator[Opa]:
    try:
        program = find_opa()
    except NoCompilerError as error:
        pytest.skip(str(error))
    with Opa(program) as running:
        yield running


def _rows(name: str) -> list[dict[str, Any]]:
    text = (TABLES / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _read_template(path: str) -> dict[str, str]:
    template = yaml.safe_load((LIBRARY / path).read_text(encoding="utf-8"))
    target = template["spec"]["targets"][0]
    code = [each["source"] for each in target.get("code", ()) if each["engine"] == "Rego"]
    source = code[0] if code else target
    libs = {f"lib{at}.rego": text for at, text in enumerate(source.get("libs") or ())}
    return {"policy.rego": source["rego"], **libs}


def _judge(opa: Opa, row: dict[str, Any]) -> GuestAnswer:
    rego = Rego(_read_template(row["template"]), row["entrypoint"], "v0")
    cluster = Cluster(group_objects(row.get("inventory") or ()))
    guest = open_rego(opa.build(rego, module_folder()), ExecutionMode.GATEKEEPER, host=cluster)
    # A second time, on the warm instance: the first request must not show.
    first = guest.validate(row["request"], row["settings"])
    assert guest.validate(row["request"], row["settings"]) == first
    return first


def test_verdicts_and_messages_of_the_library_are_those_of_opa(opa: Opa) -> None:
    rows, wrong = _rows("rego-cases.jsonl"), []
    for row in rows:
        answer, expected = _judge(opa, row), row["expect"]
        messages = None if expected["allowed"] else ", ".join(expected["messages"])
        if (answer.accepted, answer.message) != (expected["allowed"], messages):
            wrong.append((row["suite"], row["case"], answer, expected))
    assert len(rows) >= 155
    assert wrong == []


def test_assertions_of_all_suites_of_the_library_hold(opa: Opa) -> None:
    suites = {row["suite"] for row in _rows("rego-cases.jsonl")}
    wrong = []
    for row in _rows("rego-cases.jsonl"):
        answer = _judge(opa, row)
        wrong += [
            (row["suite"], row["case"], answer, each)
            for each in row["assertions"]
            if not _holds(each, answer)
        ]
    assert len(suites) == 28
    assert wrong == []


def _holds(assertion: dict[str, Any], answer: GuestAnswer) -> bool:
    wanted = assertion.get("violations", "yes") not in ("no", False, 0)
    text = answer.message or ""
    found = not answer.accepted and bool(re.search(assertion.get("message", ""), text))
    return found == wanted


@pytest.mark.parametrize(
    "row",
    _rows("rego-builtins.jsonl") if TABLES.is_dir() else [],
    ids=lambda row: row["expression"].partition("(")[0],
)
def test_builtins_give_the_values_of_opa(opa: Opa, row: dict[str, Any]) -> None:
    expression = row["expression"]
    text = _ASKING.replace("EXPRESSION", expression)
    module = opa.build(Rego({"policy.rego": text}, "p/main"), module_folder())
    if expression.startswith(REFUSED):
        with pytest.raises(ModuleError, match=r"the network with http\.send"):
            open_rego(module, ExecutionMode.OPA)
        return
    answer = open_rego(module, ExecutionMode.OPA).validate({}, {})
    if RANDOM.search(expression):
        assert answer.message != "undefined"
    elif row["opa"].get("undefined"):
        assert answer.message == "undefined"
    else:
        assert _settle(json.loads(answer.message)) == _settle(row["opa"]["value"])


def _settle(value: Any) -> Any:
    # A set is written as an array, in no order.
    return sorted(value, key=repr) if isinstance(value, list) else value


def test_large_requests_are_judged_like_small_ones(opa: Opa) -> None:
    """More than the module has memory for at first: it must grow, and stay right after it."""
    rows = [row for row in _rows("rego-cases.jsonl") if "privileged-containers" in row["suite"]]
    for row in rows:
        rego = Rego(_read_template(row["template"]), row["entrypoint"], "v0")
        guest = open_rego(opa.build(rego, module_folder()), ExecutionMode.GATEKEEPER)
        large = {**row["request"], "options": {"note": "x" * 3_000_000}}
        for request in (large, row["request"], large):
            answer = guest.validate(request, row["settings"])
            assert answer.accepted == row["expect"]["allowed"], row["case"]
    assert rows
