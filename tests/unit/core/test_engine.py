"""The loop: order of work, errors that stop nothing else, and how short the way is."""

import sys

import pytest

import lictor
from lictor.core.assembly import compile_documents
from lictor.core.load.policies import load_documents


def programs(text: str, **options):
    loaded = load_documents(text, "policy.yaml")
    assert not loaded.problems
    return compile_documents([p.record for p in loaded.policies], **options)


def policy(name: str, rules: str, spec: str = "") -> str:
    return f"""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: {name}}}
spec:
  {spec}
  rules:
{rules}
"""


def rule(name: str, body: str) -> str:
    match = "{any: [{resources: {kinds: [ConfigMap]}}]}"
    return f"  - {{name: {name}, match: {match}, {body}}}\n"


NAMED_X = "validate: {message: m, pattern: {metadata: {name: x}}}"
LABEL = "mutate: {patchStrategicMerge: {metadata: {labels: {made: 'yes'}}}}"
HAS_LABEL = "validate: {message: m, pattern: {metadata: {labels: {made: 'yes'}}}}"
BROKEN = "validate: {message: m, deny: {conditions: {any: [{key: '{{ a b }}', operator: Equals, value: 1}]}}}"


def config_map(name: str = "x") -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "d"}}


def statuses(verdict) -> list[tuple[str, str]]:
    return [(result.rule, str(result.status)) for result in verdict.results]


def test_mutation_comes_before_validation_whatever_the_order_of_policies():
    text = (
        policy("check", rule("has-label", HAS_LABEL)) + "---" + policy("fix", rule("label", LABEL))
    )
    resource = config_map()
    verdict = lictor.Engine(programs(text)).evaluate(resource)
    assert statuses(verdict) == [("label", "pass"), ("has-label", "pass")]
    assert verdict.patched["metadata"]["labels"] == {"made": "yes"}
    assert resource == config_map(), "the request's own object is never changed"


def test_a_broken_rule_is_an_error_and_stops_nothing():
    text = policy("p", rule("broken", BROKEN) + rule("named", NAMED_X))
    verdict = lictor.Engine(programs(text)).evaluate(config_map())
    assert statuses(verdict) == [("broken", "error"), ("named", "pass")]


OVERRIDE = "validationFailureActionOverrides: [{action: %s, namespaces: [d]}]"


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ("validationFailureAction: Audit", True),
        ("validationFailureAction: Enforce", False),
        (OVERRIDE % "Enforce", False),
        (f"validationFailureAction: Enforce\n  {OVERRIDE % 'Audit'}", True),
    ],
)
def test_what_enforce_cannot_decide_is_not_allowed(spec, allowed):
    text = policy("p", rule("broken", BROKEN), spec)
    assert lictor.Engine(programs(text)).evaluate(config_map()).allowed is allowed


EVERYWHERE = "validationFailureActionOverrides: [{action: %s}]"
FIRST = (
    "validate: {failureAction: %s, failureActionOverrides: [%s], pattern: {metadata: {name: y}}}"
)
HERE = "{action: %s, namespaces: [d]}"


@pytest.mark.parametrize(
    ("body", "spec", "allowed"),
    [
        # The rule precedes the overrides of the policy, its own overrides precede the rule.
        (FIRST % ("Audit", ""), OVERRIDE % "Enforce", True),
        (FIRST % ("Enforce", ""), OVERRIDE % "Audit", False),
        (FIRST % ("Audit", HERE % "Enforce"), OVERRIDE % "Audit", False),
        (FIRST % ("Enforce", HERE % "Audit"), "validationFailureAction: Enforce", True),
        # An override without namespaces holds everywhere.
        (FIRST.replace("failureAction: %s, ", "") % "", EVERYWHERE % "Enforce", False),
        (FIRST.replace("failureAction: %s, ", "") % (HERE % "Audit"), EVERYWHERE % "Enforce", True),
    ],
)
def test_the_action_of_a_rule_and_the_order_of_overrides(body, spec, allowed):
    text = policy("p", rule("named", body), spec)
    assert lictor.Engine(programs(text)).evaluate(config_map()).allowed is allowed


def test_apply_one_stops_after_the_first_answer():
    text = policy("p", rule("first", NAMED_X) + rule("second", NAMED_X), "applyRules: One")
    assert statuses(lictor.Engine(programs(text)).evaluate(config_map())) == [("first", "pass")]


def test_a_kind_that_no_rule_names_meets_no_rule():
    engine = lictor.Engine(programs(policy("p", rule("named", NAMED_X))))
    secret = {**config_map(), "kind": "Secret"}
    assert engine.evaluate(secret).results == ()


def test_warnings_are_told_where_the_policy_asks_for_them():
    text = policy("p", rule("named", NAMED_X), "emitWarning: true")
    verdict = lictor.Engine(programs(text)).evaluate(config_map("y"))
    assert verdict.warnings == (
        "policy p.named: validation error: m. rule named failed at path /metadata/name/",
    )


def test_the_deadline_is_kept():
    engine = lictor.Engine(programs(policy("p", rule("named", NAMED_X))), clock=lambda: 2.0)
    with pytest.raises(lictor.DeadlineError):
        engine.evaluate(config_map(), deadline=1.0)


def test_a_failure_says_where_and_what():
    verdict = lictor.Engine(programs(policy("p", rule("named", NAMED_X)))).evaluate(config_map("y"))
    failure = verdict.results[0].failure
    assert (failure.path, failure.expected, failure.found) == ("/metadata/name/", "x", "y")


def test_the_way_to_the_first_comparison_is_short():
    """From `evaluate` to the comparison of a one-field pattern: at most 6 frames of ours."""
    body = "validate: {message: m, pattern: {data: {a: b}}}"
    engine = lictor.Engine(programs(policy("p", rule("one-field", body))))
    resource = {**config_map(), "data": {"a": "b"}}
    engine.evaluate(resource)  # the plan is made on the first request
    deepest, depth = 0, 0

    def profile(frame, event, _argument):
        nonlocal deepest, depth
        if "/lictor/" not in frame.f_code.co_filename:
            return
        if event == "call":
            depth += 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(profile)
    try:
        engine.evaluate(lictor.Request.of(resource))
    finally:
        sys.setprofile(None)
    assert 0 < deepest <= 6


@pytest.mark.parametrize(
    "body",
    [
        "validate: {message: m, pattern: {metadata: {name: '{{ multiply(`1e10`, `1e10`) }}'}}}",
        "mutate: {patchStrategicMerge: {data: {a: '{{ multiply(`1e10`, `1e10`) }}'}}}",
    ],
)
def test_a_number_beyond_64_bits_is_filled_in_like_any_other(body):
    verdict = lictor.Engine(programs(policy("p", rule("large", body)))).evaluate(config_map())
    assert statuses(verdict)[0][1] in ("pass", "fail")


@pytest.mark.parametrize("odd", [5, None, ["Pod"], {"a": 1}])
def test_a_kind_that_is_no_text_is_none(odd):
    request = lictor.Request.of({"apiVersion": odd, "kind": odd})
    assert (request.kind.api_version, request.kind.kind) == ("", "")


def test_a_selector_that_makes_no_sense_is_an_error_not_a_rule_turned_off():
    match = "{any: [{resources: {kinds: [ConfigMap], selector: {matchLabels: {team: two words}}}}]}"
    text = policy(
        "p", f"  - {{name: r, match: {match}, {NAMED_X}}}\n", "validationFailureAction: Enforce"
    )
    verdict = lictor.Engine(programs(text)).evaluate(config_map())
    assert statuses(verdict) == [("r", "error")]
    assert "two words" in verdict.results[0].message
    assert not verdict.allowed


@pytest.mark.parametrize(
    ("resources", "kind", "evaluated"),
    [
        ('"*"', "Lease", False),
        ('"*/*"', "Lease", False),
        ('"*", leases', "Lease", True),
        ('"*"', "Secret", True),
    ],
)
def test_a_wildcard_of_a_cel_policy_does_not_stand_for_leases(resources, kind, evaluated):
    text = f"""
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {{name: labels}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: ["*"], apiVersions: ["*"], resources: [{resources}], operations: ["*"]}}
  validations: [{{expression: has(object.metadata.labels)}}]
"""
    api_version = {"Lease": "coordination.k8s.io/v1", "Secret": "v1"}[kind]
    resource = {**config_map(), "apiVersion": api_version, "kind": kind}
    assert bool(lictor.Engine(programs(text)).evaluate(resource).results) is evaluated
