"""Policies into webhooks: how they are grouped, named and limited."""

import pytest
from webhook_samples import (
    CHANGE,
    USUAL,
    classic,
    mutating,
    resource_rule,
    settle,
    surround,
    validating,
)

from lictor.controllers.webhook_configuration.cel import draft_named
from lictor.controllers.webhook_configuration.classic import draft_classic, draft_everything
from lictor.controllers.webhook_configuration.draft import (
    WebhookEndpoint,
    name_webhook,
    render_webhook,
)
from lictor.core.families.registry import registry
from lictor.kubernetes.flags import Flags

OWN = {"webhookConfiguration": {"matchConditions": [{"name": "a", "expression": "true"}]}}
USUAL_SELECTOR = settle(**USUAL).webhook_namespace_selector
CONDITIONS = [{"name": "mine", "expression": "object.spec.x == 1"}]


def cel(kind):
    return registry().get("policies.kyverno.io", kind)


def draft(*policies, around=None, mutating=False):
    return draft_classic(policies, around or surround(), mutating=mutating)


def draft_validating(*policies, around=None):
    return draft_named(policies, cel("ValidatingPolicy"), around or surround(), mutating=False)


def show_rules(one):
    return [
        (rule["apiGroups"][0], ",".join(rule["resources"]), rule["scope"]) for rule in one.rules
    ]


# --- classic


def test_policies_of_one_failure_policy_share_a_webhook():
    drafts = draft(
        classic("a", ["ConfigMap"]),
        classic("b", ["Namespace"], failurePolicy="Ignore"),
        classic("c", ["Deployment"]),
    )
    assert [(each.name, each.path, show_rules(each)) for each in drafts] == [
        ("validate.lictor.svc-ignore", "/validate/ignore", [("", "namespaces", "*")]),
        (
            "validate.lictor.svc-fail",
            "/validate/fail",
            [("", "configmaps", "Namespaced"), ("apps", "deployments", "Namespaced")],
        ),
    ]
    assert drafts[1].namespace_selector == USUAL_SELECTOR
    assert drafts[1].conditions == []
    assert [policy.name for policy in drafts[1].policies] == ["a", "c"]


def test_policies_with_conditions_have_their_own():
    settings = settle(matchConditions='[{"name":"all","expression":"1 == 1"}]', **USUAL)
    around = surround(settings)
    shared, one, other = draft(
        classic("a", ["ConfigMap"], **OWN),
        classic("b", ["ConfigMap"], namespace="ns", **OWN),
        classic("c", ["ConfigMap"]),
        around=around,
    )
    assert shared.conditions == [{"name": "all", "expression": "1 == 1"}]
    assert (one.name, one.path) == (
        "validate.lictor.svc-fail-finegrained-a",
        "/validate/fail/finegrained/a",
    )
    assert one.conditions == [{"name": "a", "expression": "true"}]
    assert (other.name, other.path) == (
        "validate.lictor.svc-fail-finegrained-ns-b",
        "/validate/fail/finegrained/ns/b",
    )
    assert other.namespace_selector["matchExpressions"][0]["values"] == ["ns"]


def test_conditions_that_are_refused_are_left_to_us():
    around = surround(explain=lambda one: "no" if one.conditions else "")
    (one,) = draft(classic("a", ["ConfigMap"], **OWN), around=around)
    assert one.conditions == []
    assert one.path == "/validate/fail/finegrained/a"


def test_changes():
    (one,) = draft(classic("a", ["ConfigMap"], CHANGE), mutating=True)
    assert (one.name, one.path, one.reinvocation) == (
        "mutate.lictor.svc-fail",
        "/mutate/fail",
        "IfNeeded",
    )
    assert one.rules[0]["operations"] == ["CREATE", "UPDATE"]
    assert draft(classic("a", ["ConfigMap"], CHANGE)) == []


def test_a_policy_of_a_namespace_reaches_no_further():
    (one,) = draft(classic("a", ["*"], namespace="ns"))
    assert show_rules(one) == [("*", "*,pods/ephemeralcontainers", "Namespaced")]
    first = one.namespace_selector["matchExpressions"][0]
    assert (first["operator"], first["values"]) == ("In", ["ns"])


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        ("*", [("*", "*,pods/ephemeralcontainers", "*")]),
        ("*/*", [("*", "*/*", "*")]),
        ("*/scale", [("*", "*/scale", "*")]),
        ("Pod/exec", [("", "pods/exec", "Namespaced")]),
        ("apps/v1/*", [("apps", "*", "*")]),
        # The API server knows no such wildcard.
        ("app?/v1/*", [("apps", "deployments,replicasets", "Namespaced")]),
        ("Widget?", None),
    ],
)
def test_kinds(kind, rules):
    drafts = draft(classic("a", [kind]))
    assert [show_rules(each) for each in drafts] == ([] if rules is None else [rules])


@pytest.mark.parametrize(
    ("kind", "rules", "test"),
    [
        ("Widget", ("*", "*", "*"), 'request.kind.kind == "Widget"'),
        (
            "example.com/v1/Widget",
            ("example.com", "*", "*"),
            '(request.kind.kind == "Widget" && request.resource.group == "example.com")',
        ),
        (
            "Widget/scale",
            ("*", "*/scale", "*"),
            '(has(request.subResource) && request.subResource == "scale")',
        ),
    ],
)
def test_kinds_that_are_not_served_yet(kind, rules, test):
    """Their resources may have any name; the first object must not pass before rules follow."""
    shared, other = draft(classic("a", ["ConfigMap", kind]))
    assert (shared.path, shared.rules[0]["resources"]) == (other.path, ["configmaps"])
    resources = rules[1] if "/" in rules[1] else f"{rules[1]},pods/ephemeralcontainers"
    expected = resources if rules[0] == "*" else rules[1]
    assert show_rules(other) == [(rules[0], expected, rules[2])]
    assert other.name == f"{shared.name}-unserved"
    assert other.conditions[0] == {"name": "only-kinds-not-served-yet", "expression": test}


@pytest.mark.parametrize(
    ("seconds", "own", "expected"),
    [(None, False, 10), (20, False, 20), (5, False, 10), (5, True, 5), (20, True, 20)],
)
def test_timeouts(seconds, own, expected):
    spec = {"webhookConfiguration": dict(OWN["webhookConfiguration"]) if own else {}}
    if seconds is not None:
        spec["webhookConfiguration"]["timeoutSeconds"] = seconds
    (one,) = draft(classic("a", ["ConfigMap"], **spec))
    assert one.timeout == expected


def test_timeout_never_beyond_what_the_api_server_takes():
    (one,) = draft(classic("a", ["ConfigMap"]), around=surround(flags=Flags(webhook_timeout=99)))
    assert one.timeout == 30


def test_side_effects_follow_reports():
    around = surround(flags=Flags(admission_reports=False))
    assert draft(classic("a", ["ConfigMap"]), around=around)[0].side_effects == "None"
    assert draft(classic("a", ["ConfigMap"]))[0].side_effects == "NoneOnDryRun"


def test_everything_is_guarded():
    drafts = draft_everything(surround(), mutating=False)
    assert [each.path for each in drafts] == ["/validate/ignore", "/validate/fail"]
    assert {each["name"] for each in drafts[1].conditions} >= {"leave-cold-start-alone"}
    assert drafts[0].rules[0]["resources"] == ["*/*"]


# --- CEL


def test_cel_policies_share_by_failure_policy():
    drafts = draft_validating(
        validating("b", resource_rule("pods", "secrets")),
        validating("a", resource_rule("secrets", operations=("UPDATE",))),
        validating("c", resource_rule("services"), failurePolicy="Ignore"),
    )
    assert [(each.name, each.path) for each in drafts] == [
        ("vpol.validate.lictor.svc-fail", "/vpol/a/b"),
        ("vpol.validate.lictor.svc-ignore", "/vpol/c"),
    ]
    assert show_rules(drafts[0]) == [("", "secrets", "*"), ("", "pods,secrets", "*")]


def test_pod_controllers():
    (one,) = draft_validating(validating("a", resource_rule("pods")))
    assert show_rules(one) == [
        ("", "pods", "*"),
        ("apps", "daemonsets,deployments,replicasets,statefulsets", "*"),
        ("batch", "cronjobs", "*"),
        ("batch", "jobs", "*"),
    ]


def test_conditions_of_pods_and_of_their_controllers():
    (one,) = draft_validating(validating("a", resource_rule("pods"), matchConditions=CONDITIONS))
    assert one.name == "vpol.validate.lictor.svc-fail-finegrained-a"
    assert [each["name"] for each in one.conditions] == [
        "autogen-mine",
        "autogen-cronjobs-mine",
        "autogen-defaults-mine",
    ]
    assert one.conditions[0]["expression"] == (
        "!((object.apiVersion == 'v1' && object.kind =='Pod')) || (object.spec.x == 1)"
    )
    assert one.conditions[1]["expression"].endswith(
        "object.kind =='CronJob')) || (object.spec.jobTemplate.spec.template.spec.x == 1)"
    )


def test_conditions_where_there_may_be_no_object():
    policy = validating(
        "a", resource_rule("pods", operations=("DELETE",)), matchConditions=CONDITIONS
    )
    (one,) = draft_validating(policy)
    assert one.conditions[0]["expression"].startswith("!((request.kind.group == '' &&")


def test_conditions_of_other_kinds_stay_as_they_are():
    policy = validating("a", resource_rule("secrets"), matchConditions=CONDITIONS)
    assert draft_validating(policy)[0].conditions == CONDITIONS


def test_conditions_that_only_we_understand():
    around = surround(explain=lambda one: "no" if one.conditions else "")
    policies = [
        validating("a", resource_rule("secrets"), matchConditions=CONDITIONS),
        validating("b", resource_rule("secrets")),
    ]
    (one,) = draft_validating(*policies, around=around)
    assert (one.name, one.path) == ("vpol.validate.lictor.svc-fail", "/vpol/a/b")
    assert one.conditions == []


@pytest.mark.parametrize(
    ("spec", "constraints", "timeout", "match_policy"),
    [
        ({"webhookConfiguration": {"timeoutSeconds": 3}}, {}, 3, "Equivalent"),
        ({}, {"matchPolicy": "Exact"}, 10, "Exact"),
    ],
)
def test_demands_of_their_own(spec, constraints, timeout, match_policy):
    policy = validating("a", resource_rule("secrets"), constraints=constraints, **spec)
    (one,) = draft_validating(policy)
    assert one.name.endswith("-finegrained-a")
    assert (one.timeout, one.match_policy) == (timeout, match_policy)


def test_selectors_that_agree_are_shared_and_others_are_not():
    selecting = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
    one = validating("one", resource_rule("secrets"), constraints=selecting)
    two = validating("two", resource_rule("secrets"), constraints=selecting)
    plain = validating("plain", resource_rule("secrets"))
    (shared,) = draft_validating(one, two)
    assert shared.path == "/vpol/one/two"
    assert shared.namespace_selector["matchLabels"] == {"env": "prod"}
    paths = {each.path: each.namespace_selector for each in draft_validating(one, plain, two)}
    # One policy's selector must not hide requests from another.
    assert paths["/vpol/plain"] == USUAL_SELECTOR
    assert paths["/vpol/one"]["matchLabels"] == {"env": "prod"}
    assert sorted(paths) == ["/vpol/one", "/vpol/plain", "/vpol/two"]


def test_a_policy_that_is_refused_does_not_hold_up_others():
    def explain(one):
        return "bad rule" if any(policy.name == "bad" for policy in one.policies) else ""

    drafts = draft_validating(
        validating("bad", resource_rule("secrets")),
        validating("good", resource_rule("secrets")),
        around=surround(explain=explain),
    )
    assert [(each.path, each.refusal) for each in drafts] == [
        ("/vpol/bad", "bad rule"),
        ("/vpol/good", ""),
    ]


def test_policies_of_namespaces():
    policies = [
        validating("same", resource_rule("secrets"), namespace="one"),
        validating("same", resource_rule("secrets"), namespace="two"),
    ]
    (one,) = draft_named(policies, cel("NamespacedValidatingPolicy"), surround(), mutating=False)
    assert (one.name, one.path) == ("nvpol.validate.lictor.svc-fail", "/nvpol/same")
    assert one.namespace_selector["matchExpressions"][0]["values"] == ["one", "two"]
    assert show_rules(one) == [("", "secrets", "Namespaced")]


def test_reinvocation_and_names_of_changes():
    around = surround()
    first = mutating("a", resource_rule("secrets"), reinvocationPolicy="IfNeeded")
    second = mutating("a", resource_rule("secrets"), namespace="ns")
    (one,) = draft_named([first, second], cel("MutatingPolicy"), around, mutating=True)
    (two,) = draft_named([first, second], cel("NamespacedMutatingPolicy"), around, mutating=True)
    assert (one.reinvocation, two.reinvocation) == ("IfNeeded", "Never")
    # Names must be unique within a configuration.
    assert one.name != two.name


# --- names and addresses


def test_names_are_never_too_long():
    policy = classic("a" * 250, ["ConfigMap"])
    name = name_webhook("validate.lictor.svc", "Fail", policy)
    assert len(name) <= 253
    assert name.endswith(policy.uid[:36])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (
            WebhookEndpoint("Q0E=", "ns", "svc", 8443),
            {
                "caBundle": "Q0E=",
                "service": {"name": "svc", "namespace": "ns", "path": "/p", "port": 8443},
            },
        ),
        (
            WebhookEndpoint("Q0E=", "ns", "svc", server="192.0.2.1:9443"),
            {"caBundle": "Q0E=", "url": "https://192.0.2.1:9443/p"},
        ),
    ],
)
def test_addresses(address, expected):
    assert address.connect("/p") == expected


def test_every_default_is_written():
    (one,) = draft(classic("a", ["ConfigMap"]))
    webhook = render_webhook(one, WebhookEndpoint("Q0E=", "ns", "svc"), mutating=True)
    assert webhook["matchPolicy"] == "Equivalent"
    assert webhook["objectSelector"] == {}
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert "matchConditions" not in webhook


def test_kinds_of_a_policy_are_collected_once():
    policy = classic("a", ["ConfigMap"])
    [first] = draft(policy)
    assert policy.derive(("shared_webhook", False), lambda: pytest.fail("collected again"))
    [second] = draft(policy)
    assert first.rules == second.rules
