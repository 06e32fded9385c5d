"""CEL is compiled when it is first asked, where that is wanted: the same answers, errors too."""

from typing import Any

import orjson
import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.core.model.program import DeferredCheck, Program
from lictor.core.model.result import Status

Object = dict[str, Any]

PODS = {
    "resourceRules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
        }
    ]
}
RIGHT, WRONG = "object.metadata.name == 'x'", "object.metadata.name == nosuch"
KYVERNO, NATIVE = "policies.kyverno.io/v1", "admissionregistration.k8s.io/v1"
PATCH = '[JSONPatch{op: "add", path: "/metadata/labels", value: {}}]'


def make_policy(kind: str, api_version: str, **spec: Any) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": PODS, **spec},
    }


def make_policies(text: str) -> dict[str, Object]:
    """One of each kind, with a condition."""
    conditions = {"matchConditions": [{"name": "c", "expression": text}]}
    validations = {"validations": [{"expression": text, "message": "call it x"}]}
    patches = {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": PATCH}}]}
    images = {"matchImageReferences": [{"glob": "ghcr.io/*"}], "attestors": []}
    return {
        "validating": make_policy("ValidatingPolicy", KYVERNO, **validations),
        "mutating": make_policy("MutatingPolicy", KYVERNO, **conditions, **patches),
        "generating": make_policy(
            "GeneratingPolicy", KYVERNO, **conditions, generate=[{"expression": "true"}]
        ),
        "images": make_policy("ImageValidatingPolicy", KYVERNO, **images, **validations),
        "native": make_policy("ValidatingAdmissionPolicy", NATIVE, **validations),
        "native, mutating": make_policy(
            "MutatingAdmissionPolicy",
            f"{NATIVE}beta1",
            **conditions,
            reinvocationPolicy="Never",
            **patches,
        ),
    }


def compile_one(policy: Object, *, is_lazy: bool) -> tuple[Program, ...]:
    loaded = load_documents(orjson.dumps(policy), "p")
    assert loaded.records
    return compile_documents(loaded.records, is_lazy=is_lazy)


def make_pod(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "docker.io/a"}]},
    }


def list_made(programs: tuple[Program, ...]) -> list[bool]:
    """Of each check whether it is compiled."""
    checks = [rule.check for program in programs for rule in program.rules]
    return [check._made is not None for check in checks if isinstance(check, DeferredCheck)]


@pytest.mark.parametrize("which", make_policies(RIGHT))
@pytest.mark.parametrize("text", [RIGHT, WRONG])
def test_every_kind_answers_the_same(which: str, text: str) -> None:
    policy = make_policies(text)[which]
    now, later = (compile_one(policy, is_lazy=lazy) for lazy in (False, True))
    for pod in map(make_pod, "xy"):
        told = Engine(later).evaluate(pod)
        assert told == Engine(now).evaluate(pod)
        if text is WRONG:
            assert Status.ERROR in [result.status for result in told.results]


@pytest.mark.parametrize("which", make_policies(RIGHT))
def test_nothing_is_compiled_before_a_request_needs_it(which: str) -> None:
    programs = compile_one(make_policies(RIGHT)[which], is_lazy=True)
    assert len(list_made(programs)) == sum(len(program.rules) for program in programs)
    Engine(programs).evaluate({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})
    assert not any(list_made(programs))
    Engine(programs).evaluate(make_pod("x"))
    # Those for controllers that make Pods still wait for one of these.
    about_pods = 2 if which == "images" else 1
    assert sum(list_made(programs)) == about_pods


def test_a_policy_about_other_namespaces_stays_uncompiled() -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "team"}}
    policy = make_policies(RIGHT)["validating"]
    policy["spec"]["matchConstraints"] = {**PODS, "namespaceSelector": selector}
    programs = compile_one(policy, is_lazy=True)
    pod = make_pod("y")
    pod["metadata"]["namespace"] = "other"
    assert Engine(programs).evaluate(pod).results == ()
    assert not any(list_made(programs))
    pod["metadata"]["namespace"] = "team"
    assert [result.status for result in Engine(programs).evaluate(pod).results] == [Status.FAIL]
