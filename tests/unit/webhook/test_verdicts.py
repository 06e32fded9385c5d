"""Which requests are refused: what a policy names, and what was wrong before."""

from base64 import b64decode
from pathlib import Path

import orjson
import pytest
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.core.raw import JsonObject

EXEC: JsonObject = {
    "kind": {"group": "", "version": "v1", "kind": "PodExecOptions"},
    "subResource": "exec",
    "object": {"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]},
}
SCALE: JsonObject = {
    "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
    "subResource": "scale",
    "object": {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}},
    "oldObject": {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}},
}
NODE: JsonObject = {
    "kind": {"group": "", "version": "v1", "kind": "Node"},
    "resource": {"group": "", "version": "v1", "resource": "nodes"},
    "name": "n1",
    "namespace": "",
    "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
}


def deny(*kinds: str, **rule: object) -> JsonObject:
    """A rule that refuses everything of these kinds."""
    return {
        "name": "no",
        "match": {"any": [{"resources": {"kinds": list(kinds)}}]},
        "validate": {"failureAction": "Enforce", "message": "no", "deny": {}},
        **rule,
    }


def deny_user(name: str, **rule: object) -> JsonObject:
    """A rule that refuses what one user does to Pods."""
    test = {"key": "{{request.userInfo.username}}", "operator": "Equals", "value": name}
    body = {"failureAction": "Enforce", "deny": {"conditions": {"any": [test]}}}
    return deny("Pod", validate=body, **rule)


def refuses(tmp_path: Path, review: JsonObject, *rules: JsonObject) -> bool:
    bench = Bench(write_policies(tmp_path, make_policy("p", *rules)))
    return not bench.ask("/validate/fail", review)["allowed"]


@pytest.mark.parametrize(
    ("rule", "subresource", "refused"),
    [
        # The old object broke the rule, too.
        (deny("Pod"), "", False),
        (deny("Pod"), "ephemeralcontainers", False),
        (deny("Pod/*"), "status", False),
        # Through a subresource alone the old object was never judged.
        (deny("Pod/ephemeralcontainers"), "ephemeralcontainers", True),
        (deny("Pod/status"), "status", True),
        (deny("*/status"), "status", True),
        (deny("Pod/resize"), "resize", True),
        # Nobody created it.
        (deny("Pod", match={"any": [{"subjects": [{"kind": "User", "name": "ann"}]}]}), "", True),
        (
            deny("Pod", exclude={"any": [{"subjects": [{"kind": "User", "name": "bob"}]}]}),
            "",
            False,
        ),
        # What the caller does, the same caller would have done before.
        (deny_user("ann"), "", False),
        (deny_user("bob"), "", False),
        # Preconditions, whatever they say.
        (deny("Pod", preconditions={"all": []}), "", True),
        (deny_user("ann", preconditions={"all": []}), "", True),
    ],
)
def test_updates_may_keep_what_was_wrong_before(
    tmp_path: Path, rule: JsonObject, subresource: str, *, refused: bool
) -> None:
    review = make_review(operation="UPDATE", subResource=subresource)
    if not rule["match"]["any"][0].get("resources"):
        rule["match"]["any"][0]["resources"] = {"kinds": ["Pod"]}
    assert refuses(tmp_path, review, rule) is refused


def test_an_old_object_that_cannot_be_judged_excuses_nothing(tmp_path: Path) -> None:
    gone = {"key": "{{request.object.metadata.labels.team}}", "operator": "Equals", "value": "x"}
    body = {"failureAction": "Enforce", "deny": {"conditions": {"any": [gone]}}}
    review = make_review({"team": "x"}, operation="UPDATE", oldObject={**NODE["object"]})
    old = review["request"]["object"]
    review["request"]["oldObject"] = {**old, "metadata": {"name": "web", "namespace": "shop"}}
    assert refuses(tmp_path, review, deny("Pod", validate=body))


def test_assertions_excuse_what_was_wrong_before(tmp_path: Path) -> None:
    body = {"failureAction": "Enforce", "assert": {"object": {"metadata": {"name": "other"}}}}
    review = make_review(operation="UPDATE")
    assert not refuses(tmp_path, review, deny("Pod", validate=body, preconditions={"all": []}))


@pytest.mark.parametrize(
    ("kinds", "request_", "refused"),
    [
        (["Pod/*"], {}, False),
        (["Pod/*"], EXEC, True),
        (["v1/Pod/*"], {}, False),
        (["*/*"], {}, True),
        (["*/*"], EXEC, True),
        (["*"], EXEC, False),
        (["Pod"], EXEC, False),
        (["Pod/exec"], EXEC, True),
        (["Pod/status"], {"subResource": "ephemeralcontainers"}, False),
        # The kind of what is sent to a subresource is not that of its owner.
        (["PodExecOptions"], EXEC, False),
        (["Scale"], {**SCALE, "oldObject": None}, False),
        (["Deployment/*"], {**SCALE, "oldObject": None}, True),
    ],
)
def test_a_policy_is_asked_about_what_it_names(
    tmp_path: Path, kinds: list[str], request_: JsonObject, *, refused: bool
) -> None:
    operation = "CONNECT" if request_ is EXEC else "CREATE"
    review = make_review(operation=operation, **request_)
    assert refuses(tmp_path, review, deny(*kinds)) is refused


@pytest.mark.parametrize(
    ("kind", "refused"),
    # A Scale was no Deployment before; to a rule about everything it was a Scale.
    [("Deployment/*", True), ("Deployment/scale", True), ("*/scale", True), ("*/*", False)],
)
def test_what_is_sent_to_a_subresource_was_of_its_own_kind_before(
    tmp_path: Path, kind: str, *, refused: bool
) -> None:
    assert refuses(tmp_path, make_review(operation="UPDATE", **SCALE), deny(kind)) is refused


def test_exec_lies_in_the_namespace_of_its_pod(tmp_path: Path) -> None:
    there = {"kinds": ["Pod/exec"], "namespaces": ["shop"]}
    elsewhere = {"kinds": ["Pod/exec"], "namespaces": ["bank"]}
    review = make_review(operation="CONNECT", **EXEC)
    assert refuses(tmp_path, review, deny(match={"any": [{"resources": there}]}))
    assert not refuses(tmp_path, review, deny(match={"any": [{"resources": elsewhere}]}))


def test_a_request_without_a_namespace_has_none_to_ask_for(tmp_path: Path) -> None:
    test = {"key": "{{request.namespace}}", "operator": "Equals", "value": "shop"}
    rule = deny("Pod", "Node", preconditions={"all": [test]})
    assert refuses(tmp_path, make_review(), rule)
    assert refuses(tmp_path, make_review(**NODE), rule)
    fallback = {**test, "key": "{{request.namespace || ''}}"}
    assert not refuses(
        tmp_path, make_review(**NODE), deny("Node", preconditions={"all": [fallback]})
    )


@pytest.mark.parametrize("phase", ["validate", "mutate"])
def test_selecting_by_the_labels_of_no_namespace_is_refused(tmp_path: Path, phase: str) -> None:
    where = {"kinds": ["Pod"], "namespaceSelector": {"matchLabels": {"env": "prod"}}}
    rule = deny(match={"any": [{"resources": where}]})
    if phase == "mutate":
        del rule["validate"]
        rule["mutate"] = {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}
    bench = Bench(write_policies(tmp_path, make_policy("p", rule)))
    assert bench.ask(f"/{phase}/fail", make_review())["allowed"]
    bench.state.labels = None
    response = bench.ask(f"/{phase}/fail", make_review())
    assert not response["allowed"]
    assert 'namespace "shop" not found' in response["status"]["message"]


def test_policies_that_only_audit_are_not_named_in_a_refusal(tmp_path: Path) -> None:
    elsewhere = [{"action": "Enforce", "namespaces": ["bank"]}]
    audited = require_label("cost", "Audit")
    audited["validate"]["failureActionOverrides"] = elsewhere
    policies = write_policies(
        tmp_path,
        make_policy("teams", require_label("team")),
        make_policy("costs", audited),
    )
    message = Bench(policies).ask("/validate/fail", make_review())["status"]["message"]
    assert "teams:" in message
    assert "costs:" not in message


def cel_policy(
    kind: str, operations: list[str], resources: list[str], **spec: object
) -> JsonObject:
    rule = {"apiGroups": [""], "apiVersions": ["v1"]}
    rules = [{**rule, "operations": operations, "resources": resources}]
    metadata = {"name": "p"} | ({"namespace": "shop"} if kind.startswith("Namespaced") else {})
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"matchConstraints": {"resourceRules": rules}, **spec},
    }


@pytest.mark.parametrize(("namespace", "refused"), [("shop", True), ("bank", False)])
def test_namespaced_policies_judge_exec(tmp_path: Path, namespace: str, *, refused: bool) -> None:
    policy = cel_policy(
        "NamespacedValidatingPolicy",
        ["CONNECT"],
        ["pods/exec"],
        validations=[{"expression": "object.metadata.namespace != 'shop'", "message": "no"}],
    )
    review = make_review(operation="CONNECT", **EXEC)
    review["request"]["namespace"] = namespace
    bench = Bench(write_policies(tmp_path, policy))
    assert bench.ask("/nvpol/p", review)["allowed"] is not refused


def test_a_patch_of_exec_fits_what_was_sent(tmp_path: Path) -> None:
    change = "[JSONPatch{op: 'replace', path: '/command', value: ['true']}]"
    policy = cel_policy(
        "NamespacedMutatingPolicy",
        ["CONNECT"],
        ["pods/exec"],
        mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": change}}],
    )
    bench = Bench(write_policies(tmp_path, policy))
    response = bench.ask("/nmpol/p", make_review(operation="CONNECT", **EXEC))
    assert orjson.loads(b64decode(response["patch"])) == [
        {"op": "replace", "path": "/command/0", "value": "true"}
    ]


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"validations": [{"expression": "object.spec.nope == 1"}]}, True),
        (
            {
                "validations": [{"expression": "false"}],
                "matchConditions": [{"name": "c", "expression": "object.spec.nope == 1"}],
            },
            False,
        ),
    ],
)
def test_ignore_is_about_conditions_not_validations(
    tmp_path: Path, spec: JsonObject, *, refused: bool
) -> None:
    policy = cel_policy("ValidatingPolicy", ["CREATE"], ["pods"], failurePolicy="Ignore", **spec)
    bench = Bench(write_policies(tmp_path, policy))
    assert bench.ask("/vpol/p", make_review())["allowed"] is not refused


def test_an_empty_message_expression_names_the_index(tmp_path: Path) -> None:
    validation = {"expression": "false", "message": "written", "messageExpression": "''"}
    policy = cel_policy("ValidatingPolicy", ["CREATE"], ["pods"], validations=[validation])
    response = Bench(write_policies(tmp_path, policy)).ask("/vpol/p", make_review())
    told = "Policy p failed: CEL expression validation failed at index 0"
    assert response["status"]["message"] == told


VERIFYING: JsonObject = {
    "name": "signed",
    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
    "verifyImages": [
        {
            "failureAction": "Enforce",
            "imageReferences": ["ghcr.io/shop/*", "docker.io/nginx:*"],
            "skipImageReferences": ["ghcr.io/shop/free:*"],
            "mutateDigest": False,
            "attestors": [{"entries": [{"keys": {"publicKeys": "k"}}]}],
        }
    ],
}


@pytest.mark.parametrize(
    ("image", "refused"),
    [
        ("ghcr.io/shop/web:1", True),
        ("nginx", True),
        ("nginx:1.25", True),
        ("ghcr.io/shop/free:1", False),
        ("quay.io/shop/web:1", False),
        ("docker.io/library/busybox", False),
        ("Not An Image", True),
    ],
)
def test_images_that_a_rule_names_do_not_pass_unverified(
    tmp_path: Path, image: str, *, refused: bool
) -> None:
    review = make_review()
    review["request"]["object"]["spec"]["initContainers"] = [{"name": "i", "image": image}]
    review["request"]["object"]["spec"]["containers"] = [{"name": "c", "image": "quay.io/x/y"}]
    policies = write_policies(tmp_path, make_policy("images", VERIFYING))
    response = Bench(policies, guard=policies.guard).ask("/mutate/fail", review)
    assert response["allowed"] is not refused
    if refused and image != "Not An Image":
        message = response["status"]["message"].replace("\n    ", " ")
        assert "registry" in message


def test_refused_deletions_say_why_they_were_judged(tmp_path: Path) -> None:
    told = "note that p.no names no operations, and so refuses deletions, too"
    bench = Bench(write_policies(tmp_path, make_policy("p", deny("Pod"))))
    message = bench.ask("/validate/fail", make_review(operation="DELETE"))["status"]["message"]
    assert message.count(told) == 1
    assert told not in bench.ask("/validate/fail", make_review())["status"]["message"]
    meant = {"kinds": ["Pod"], "operations": ["DELETE"]}
    rule = deny(match={"any": [{"resources": meant}]})
    bench = Bench(write_policies(tmp_path, make_policy("p", rule)))
    message = bench.ask("/validate/fail", make_review(operation="DELETE"))["status"]["message"]
    assert "operations" not in message
