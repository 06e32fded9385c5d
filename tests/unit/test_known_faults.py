"""Faults that others had and told of (CVEs), tried on us; docs/explanation/threat-model.md lists them all."""

import orjson
import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request
from lictor.core.model.result import Status
from lictor.core.ports import NoLookups

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]},
}


def judge(documents, resource, **how):
    text = b"\n---\n".join(map(orjson.dumps, documents))
    loaded = load_documents(text, "test")
    programs = compile_documents(
        loaded.records,
        lookups=NoLookups(),
    )
    return Engine(programs).evaluate(Request.of(resource, **how)).results


def policy(body, *, kind="ClusterPolicy", kinds=("Pod",), namespace=""):
    rule = {"name": "rule", "match": {"any": [{"resources": {"kinds": list(kinds)}}]}, **body}
    metadata = {"name": "policy", **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"background": False, "rules": [rule]},
    }


REFUSE = {"validate": {"failureAction": "Enforce", "message": "no", "deny": {}}}


def test_what_is_on_its_way_out_is_judged():
    """CVE-2023-34091: objects with a deletionTimestamp were left alone, finalizers or not."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/never"],
        },
        "spec": {"type": "LoadBalancer"},
    }
    old = {**service, "spec": {"type": "ClusterIP"}}
    pattern = {"message": "no", "failureAction": "Enforce"}
    documents = [
        policy(
            {"validate": {**pattern, "pattern": {"spec": {"type": "ClusterIP"}}}}, kinds=["Service"]
        )
    ]
    (result,) = judge(documents, service, operation="UPDATE", old=old)
    assert result.status is Status.FAIL


KEYLESS = {"keyless": {"subjectRegExp": "good", "issuerRegExp": "good"}}


@pytest.mark.parametrize(
    "verification",
    [
        pytest.param({"attestors": [{"entries": [KEYLESS]}]}, id="CVE-2025-29778"),
        pytest.param({"attestors": [{"entries": [KEYLESS]}], "mutateDigest": True}, id="CVE-2022-47633"),
        pytest.param({"type": "Notary", "attestors": [{"entries": [KEYLESS]}]}, id="CVE-2023-42813"),
        pytest.param({"useCache": True, "attestors": [{"entries": [KEYLESS]}]}, id="CVE-2026-122321"),
    ],
)  # fmt: skip
def test_an_image_that_nobody_has_verified_does_not_pass(verification):
    rule = {"verifyImages": [{"imageReferences": ["*"], **verification}]}
    results = judge([policy(rule)], POD)
    # No registry to ask; the digest of the finished object is then missing as well.
    assert [result.status for result in results] == [Status.ERROR, Status.FAIL]


@pytest.mark.parametrize("version", ["latest", "v1.24", "v1.19"])
def test_an_unconfined_pod_is_refused(version):
    """CVE-2023-33191: the seccomp control of the version latest was not enforced."""
    pod = {**POD, "spec": {**POD["spec"], "securityContext": {"seccompProfile": {"type": "Unconfined"}}}}  # fmt: skip
    body = {"validate": {"message": "no", "podSecurity": {"level": "baseline", "version": version}}}
    (result,) = judge([policy(body)], pod)
    assert result.status is Status.FAIL


def exception(name, names, namespaces):
    resources = {"kinds": ["Pod"], "names": names, "namespaces": namespaces}
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": name, "namespace": "exceptions"},
        "spec": {
            "match": {"any": [{"resources": resources}]},
            "exceptions": [{"policyName": "policy", "ruleNames": ["rule"]}],
        },
    }


@pytest.mark.parametrize(
    ("name", "namespace", "status"),
    [
        ("web", "shop", Status.FAIL),
        ("evil-ingress", "shop", Status.FAIL),
        ("agent", "ingress", Status.FAIL),
        ("agent", "shop", Status.SKIP),
        ("my-ingress", "ingress", Status.SKIP),
    ],
)
def test_two_exceptions_are_no_more_than_each_of_them(name, namespace, status):
    """CVE-2026-84200: with a second exception, parts of both were enough."""
    exceptions = [
        exception("narrow", ["agent"], ["shop"]),
        exception("wide", ["*ingress*"], ["ingress"]),
    ]
    pod = {**POD, "metadata": {"name": name, "namespace": namespace}}
    (result,) = judge([policy(REFUSE), *exceptions], pod)
    assert result.status is status


@pytest.mark.parametrize(
    "text",
    ["{{ @ | no_such_function(@) }}", "{{ @ | no_such_function }}", "{{@}}", "{{ request.@ }}"],
)
def test_queries_that_make_no_sense_harm_nobody(text):
    """CVE-2025-47281: one of these ended the whole process."""
    condition = {"key": text, "operator": "Equals", "value": "x"}
    deny = {"conditions": {"any": [condition]}}
    broken = policy({"validate": {"message": "no", "failureAction": "Enforce", "deny": deny}})
    other = policy(REFUSE)
    other["metadata"] = {"name": "other"}
    results = {result.policy.name: result.status for result in judge([broken, other], POD)}
    assert results["other"] is Status.FAIL
    assert results["policy"] in (Status.ERROR, Status.PASS, Status.FAIL)


@pytest.mark.parametrize(
    "patch", ["{{ request.object.metadata.annotations }}", "{{ none }}", "null"]
)
def test_a_patch_that_is_nothing_harms_nobody(patch):
    """CVE-2026-41485: a patch from a variable that is null ended the whole process."""
    loop = {"list": "request.object.spec.containers", "patchesJson6902": patch}
    other = policy(REFUSE)
    other["metadata"] = {"name": "other"}
    results = judge([policy({"mutate": {"foreach": [loop]}}), other], POD)
    found = {result.policy.name: result.status for result in results}
    assert found["other"] is Status.FAIL
    assert found["policy"] in (Status.ERROR, Status.SKIP)


@pytest.mark.parametrize(
    "api_version", ["wgpolicyk8s.io/v1alpha2", "openreports.io/v1alpha1", "reports.kyverno.io/v1"]
)
def test_policies_of_a_namespace_have_no_say_about_its_reports(api_version):
    """Kubewarden's CVE-2025-24376: they could alter what is reported about their namespace."""
    kind = {"wgpolicyk8s.io": "PolicyReport", "openreports.io": "Report"}.get(
        api_version.partition("/")[0], "EphemeralReport"
    )
    report = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "r", "namespace": "shop"},
    }
    own = policy(REFUSE, kind="Policy", kinds=["Pod", kind], namespace="shop")
    assert judge([own], report) == ()
    assert judge([own], POD) != ()
    assert judge([policy(REFUSE, kinds=[kind])], report) != ()
