"""Which answers of rules are counted, and what becomes of a rule with a bug?"""

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from serving import Bench, FixedPolicies, make_policy, make_review, require_label, write_policies

from lictor.core.engine import Engine
from lictor.core.errors import LookupFailedError, OtherThreadError, SlowRequestError
from lictor.core.model.program import Case, Check, CompiledRule, Program
from lictor.core.model.result import Result
from lictor.kubernetes.metrics import RULE_SECONDS


def _serve(folder: Path, change) -> Bench:
    """A policy with two rules, the first of which is changed."""
    rules = (require_label("team"), require_label("app"))
    files = write_policies(folder, make_policy("labels", *rules))
    [program] = files.programs(files.policies[0])
    [first, *others] = [rule for rule in program.rules if rule.name.startswith("need-")]
    made: Program = replace(program, rules=(change(first), *others))
    return Bench(FixedPolicies(files, labels=(made,)))


def _break(error: Exception):
    def check(_: Case) -> tuple[Result, ...]:
        raise error

    return lambda rule: replace(rule, check=check)


def _count(bench: Bench) -> Counter[tuple[str, str]]:
    """How often each rule gave each answer."""
    found: Counter[tuple[str, str]] = Counter()
    for labels, histogram in bench.counters.histograms.get(RULE_SECONDS, {}).items():
        [rule] = [label for label in labels if label.startswith("need-")]
        [status] = [label for label in labels if label in ("pass", "fail", "error")]
        found[rule, status] += histogram.count
        assert histogram.count == sum(histogram.buckets)
    return found


def test_every_answer_is_counted_once(tmp_path: Path) -> None:
    bench = _serve(tmp_path, lambda rule: rule)
    for labels in ({"team": "a", "app": "b"}, {"team": "a"}, {"team": "a", "app": "b"}):
        bench.ask("/validate/fail", make_review(labels))
    assert _count(bench) == {
        ("need-team", "pass"): 3,
        ("need-app", "pass"): 2,
        ("need-app", "fail"): 1,
    }


def test_a_bug_in_a_rule_is_an_error_of_that_rule(tmp_path: Path) -> None:
    bench = _serve(tmp_path, _break(KeyError("oops")))
    told = bench.ask("/validate/fail", make_review({"app": "b"}))
    assert not told["allowed"]
    assert "this should not have happened (KeyError: ''oops'')" in told["status"]["message"]
    assert _count(bench) == {("need-team", "error"): 1, ("need-app", "pass"): 1}


def test_without_timers_a_bug_is_raised(tmp_path: Path) -> None:
    files = write_policies(tmp_path, make_policy("labels", require_label("team")))
    [program] = files.programs(files.policies[0])
    [rule] = [each for each in program.rules if each.name == "need-team"]
    engine = Engine([replace(program, rules=(_break(KeyError("oops"))(rule),))])
    with pytest.raises(KeyError):
        engine.evaluate(make_review()["request"]["object"])


def _fail_to_match(rule: CompiledRule) -> CompiledRule:
    def matches(_: object) -> bool:
        raise LookupFailedError("no such namespace")

    return replace(rule, select=lambda *_: matches)


@pytest.mark.parametrize(
    "change", [_fail_to_match, _break(OtherThreadError("later"))], ids=["matcher", "other thread"]
)
def test_what_was_not_answered_is_not_counted(tmp_path: Path, change) -> None:
    bench = _serve(tmp_path, change)
    told = bench.ask("/validate/fail", make_review({"app": "b"}))
    assert not told["allowed"]
    assert _count(bench) == {("need-app", "pass"): 1}


def test_answers_before_a_request_is_handed_over_are_counted(tmp_path: Path) -> None:
    def check(case: Case) -> tuple[Result, ...]:
        raise SlowRequestError("too slow")

    rules = (require_label("team"), require_label("app"))
    files = write_policies(tmp_path, make_policy("labels", *rules))
    [program] = files.programs(files.policies[0])
    slow: Check = check
    made = replace(
        program,
        rules=tuple(
            replace(rule, check=slow) if rule.name == "need-app" else rule for rule in program.rules
        ),
    )
    bench = Bench(FixedPolicies(files, labels=(made,)))
    told = bench.ask("/validate/fail", make_review({"team": "a"}))
    assert not told["allowed"]
    assert _count(bench) == {("need-team", "pass"): 1}
