"""A policy is looked at in a process of its own before it is stored."""

import asyncio
from collections.abc import Iterator

import pytest
from serving import make_policy, require_label

from lictor.policies.trial_jobs import start_helper
from lictor.policies.trials import Limits, Trials
from lictor.webhook.policy_admission import review_policy
from lictor.webhook.policy_webhooks import PolicyReview, review_within_limits, run_review
from lictor.webhook.review_result import ReviewResult


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    made = Trials(start_helper(run_review), Limits(cpu_seconds=1))
    yield made
    made.close()


def _review(review: PolicyReview, trials: Trials) -> ReviewResult:
    return asyncio.run(review_within_limits(review, trials))


def test_the_opinion_is_the_same(trials: Trials) -> None:
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing", "plural": "things"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True}],
        },
    }
    for document in (
        make_policy("fine", require_label("x")),
        make_policy("broken", {**require_label("x"), "validate": {"pattern": {"+-(a)": 1}}}),
        make_policy("custom", {**require_label("x"), "match": {"any": []}}),
    ):
        from lictor.core.facts.resource_names import builtin_names

        here = review_policy(document, None, builtin_names().with_crds([crd]))
        assert _review(PolicyReview(document, crds=(crd,)), trials) == here


def test_what_takes_too_long_is_refused_with_the_reason(trials: Trials) -> None:
    rules = [{**require_label("x"), "name": f"r{number}"} for number in range(6000)]
    large = make_policy("large", *rules)
    result = _review(PolicyReview(large), trials)
    assert not result.allowed
    assert "cannot be compiled within the limits: it takes more than" in result.message
    # What is there already may be labelled, and deleted.
    labelled = {**large, "metadata": {"name": "large", "labels": {"a": "b"}}}
    assert _review(PolicyReview(labelled, large), trials).allowed


def test_nested_calls_are_no_reason(trials: Trials) -> None:
    text = "'aaaaaaaaaa'"
    for _ in range(12):
        text = f"regex_replace_all('a', {text}, 'aaaaaaaaaa')"
    rule = require_label("x")
    condition = {"key": f"{{{{ {text} }}}}", "operator": "Equals", "value": "x"}
    rule["validate"] = {"message": "m", "deny": {"conditions": {"any": [condition]}}}
    assert _review(PolicyReview(make_policy("nested", rule)), trials).allowed
