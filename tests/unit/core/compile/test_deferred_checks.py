"""Checks that are compiled when first needed: the same answers, and nothing compiled for nobody."""

import re
from pathlib import Path

import pytest

import lictor
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.errors import DeadlineError
from lictor.core.load.policies import load_documents
from lictor.core.model.program import DeferredCheck
from lictor.core.model.result import Status

TEXT = b"""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: a}
spec:
  rules:
  - name: named
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: call it x
      pattern: {metadata: {name: x}}
  - name: broken
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: never
      foreach:
      - list: request.object.spec.containers
        pattern: {name: "{{ element.name | nosuch(@) }}"}
"""


def make_pod(name):
    container = {"name": "c", "image": "i"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}  # fmt: skip


@pytest.fixture
def records():
    return [sourced.record for sourced in load_documents(TEXT, "a.yaml").policies]


def list_answers(programs, pod):
    results = Engine(programs).evaluate(pod).results
    return [(result.rule, result.status, result.message) for result in results]


@pytest.mark.parametrize("name", ["x", "y"])
def test_answers_are_the_same(records, name):
    pod = make_pod(name)
    now, later = (compile_documents(records, is_lazy=lazy) for lazy in (False, True))
    told = list_answers(later, pod)
    assert told == list_answers(now, pod)
    assert ("broken", Status.ERROR) in [(rule, status) for rule, status, _ in told]


def test_what_a_check_is_compiled_from_is_let_go():
    made = []
    check = DeferredCheck(lambda given: lambda _: tuple(given), made)
    assert check.resolve() is check.resolve()
    assert check(None) == ()
    assert check._arguments == ()


def test_a_check_that_could_not_be_compiled_in_time_is_compiled_again():
    tries = []

    def compile_check(given):
        tries.append(given)
        if len(tries) == 1:
            raise DeadlineError("no time left")
        return lambda _: ()

    check = DeferredCheck(compile_check, "given")
    with pytest.raises(DeadlineError):
        check.resolve()
    assert check(None) == ()
    assert tries == ["given", "given"]


def test_equal_queries_of_policies_that_come_one_by_one_are_compiled_once(records):
    known = {}
    first = list_answers(compile_documents(records, is_lazy=True, queries=known), make_pod("x"))
    before = dict(known)
    assert "element.name | nosuch(@)" in before
    again = list_answers(compile_documents(records, is_lazy=True, queries=known), make_pod("x"))
    assert again == first
    assert ("broken", Status.ERROR) in [(rule, status) for rule, status, _ in again]
    assert known.keys() == before.keys()
    assert all(known[text] is before[text] for text in before)


def test_rules_of_other_kinds_stay_uncompiled(records):
    programs = compile_documents(records, is_lazy=True)
    checks = {rule.name: rule.check for program in programs for rule in program.rules}
    deferred = {name: check for name, check in checks.items() if isinstance(check, DeferredCheck)}
    assert deferred == checks
    Engine(programs).evaluate(make_pod("x"))
    made = {name for name, check in deferred.items() if check._made is not None}
    assert made == {"named", "broken"}
    assert "autogen-named" in checks


def test_checks_are_deferred_in_one_module():
    source = Path(lictor.__file__).parent
    builders = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"(?<!class )\bDeferredCheck\(", path.read_text(encoding="utf-8"))
    ]
    assert builders == ["core/compile/deferral.py"]
