import importlib
import json
import re
import subprocess
import sys

import pytest
import yaml

import lictor


def test_all_lists_exactly_what_is_public():
    assert sorted(lictor.__all__) == sorted(lictor._HOME_OF)
    assert lictor.__all__ == sorted(lictor.__all__)


def test_every_public_name_is_there():
    for name in lictor.__all__:
        home = importlib.import_module(lictor._HOME_OF[name])
        assert getattr(lictor, name) is getattr(home, lictor._OWN_NAMES.get(name, name))


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(lictor, "no_such_name")


def test_importing_costs_nothing_heavy():
    heavy = "click, msgspec, yaml, orjson, re2, jmespath, rich, cryptography"
    script = f"import sys, lictor; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "need-team"},
    "spec": {
        "rules": [
            {
                "name": "team",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {
                    "failureAction": "Enforce",
                    "message": "a team is needed",
                    "pattern": {"metadata": {"labels": {"team": "?*"}}},
                },
            }
        ]
    },
}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}}


@pytest.mark.parametrize(
    "document",
    [POLICY, json.dumps(POLICY), json.dumps(POLICY).encode(), yaml.safe_dump(POLICY)],
    ids=["dict", "json", "bytes", "yaml"],
)
def test_policies_from_dicts_and_text(document):
    engine = lictor.Engine(lictor.parse_policies(document))
    assert not engine.evaluate(POD).allowed
    assert engine.evaluate({**POD, "metadata": {"labels": {"team": "a"}}}).allowed


def test_several_documents_and_lists():
    other = {**POLICY, "metadata": {"name": "other"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [POLICY, other]}
    assert len(lictor.parse_policies(POLICY, yaml.safe_dump(other))) == 2
    assert len(lictor.parse_policies(listed)) == 2


def test_the_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", lictor.__version__)


def make_engine():
    return lictor.Engine(lictor.parse_policies(POLICY))


def rule(**body):
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    spec = {"validationFailureAction": "Enforce", "rules": [{"name": "r", "match": match, **body}]}
    return {**POLICY, "spec": spec}


def cel(kind, group="policies.kyverno.io/v1", **spec):
    rules = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}  # fmt: skip
    spec = {"matchConstraints": {"resourceRules": [rules]}, **spec}
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "p"}, "spec": spec}


NATIVE = "admissionregistration.k8s.io/v1"


@pytest.mark.parametrize(
    "policy",
    [
        rule(),
        rule(validat={"pattern": {}}),
        rule(verifyImages=[]),
        rule(validate={"message": "no"}),
        rule(validate={"patern": {}}),
        rule(validate={"foreach": [{"list": "request.object.spec.containers", "patern": {}}]}),
        rule(validate={"cel": {"expresions": []}}),
        rule(validate={"pattern": {"spec": {"=(hostPID": False}}}),
        rule(validate={"anyPattern": [{"spec": {"hostPID)": False}}]}),
        rule(mutate={"patchStrategicMerg": {}}),
        rule(generate={"kindd": "ConfigMap"}),
        cel("ValidatingPolicy", validatons=[{"expression": "false"}]),
        cel("MutatingPolicy", mutatons=[]),
        cel("ValidatingAdmissionPolicy", NATIVE, validatons=[]),
        cel("MutatingAdmissionPolicy", NATIVE, mutatons=[]),
    ],
    ids=lambda policy: json.dumps(policy["spec"].get("rules", [policy])[0])[:120],
)
def test_a_rule_without_a_body_is_an_error(policy):
    verdict = lictor.Engine(lictor.parse_policies(policy)).evaluate(
        {**POD, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    )
    assert not verdict.allowed
    assert {str(result.status) for result in verdict.results} == {"error"}
    assert all(result.message for result in verdict.results)


@pytest.mark.parametrize(
    "key",
    [
        "{{ images.containers.*.registry }}",
        "{{ images.*.*.registry[] }}",
        "{{ images.containers.*.registry || `[]` }}",
        "{{ bad[].registry }}",
    ],
)
def test_an_image_that_cannot_be_parsed_is_an_error(key):
    """A projection takes what it cannot look at for null, but never a variable as such."""
    condition = {"key": key, "operator": "AnyIn", "value": ["evil.example"]}
    policy = rule(
        context=[{"name": "bad", "variable": {"value": "{{ images.containers.*.registry }}"}}],
        validate={"deny": {"conditions": {"any": [condition]}}},
    )
    images = [{"name": "a", "image": "a:1"}, {"name": "b", "image": "NGINX:::x"}]
    engine = lictor.Engine(lictor.parse_policies(policy))
    verdict = engine.evaluate({**POD, "spec": {"containers": images}})
    assert not verdict.allowed
    [result] = verdict.results
    assert str(result.status) == "error"
    assert "NGINX:::x" in result.message
    assert engine.evaluate({**POD, "spec": {"containers": images[:1]}}).allowed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lictor.Engine("policies/"), "load_policies"),
        (lambda: lictor.Engine(None), "load_policies"),
        (lambda: lictor.Engine([POLICY]), "programs, not dict"),
        (lambda: lictor.load_policies(POLICY), "takes paths, not dict; parse_policies"),
        (lambda: lictor.load_policies(None), "takes paths, not NoneType"),
        (lictor.load_policies, "there are no policies"),
        (lictor.parse_policies, "there are no policies"),
        (lambda: lictor.parse_policies(POD), "there are no policies"),
        (lambda: lictor.parse_policies(3), "text or a dict, not int"),
        (lambda: lictor.parse_policies({"kind": object()}), "document 1: is not JSON"),
        (lambda: lictor.parse_policies({**POLICY, "spec": 3}), "document 1:1:"),
        (lambda: lictor.Request.of(None), "a dict as JSON gives it, not NoneType"),
        (lambda: lictor.Request.of(POD, operation="PATCH"), "'PATCH' is no operation"),
        (lambda: lictor.Engine([]), "an Engine without programs would allow everything"),
        (lambda: make_engine().evaluate("a Pod"), "not str"),
        (lambda: make_engine().evaluate([POD]), "not list"),
        (lambda: make_engine().evaluate({}), "needs `kind`"),
        (lambda: make_engine().evaluate({"kind": "Pod"}), "needs `kind` and `apiVersion`"),
        (lambda: lictor.load_policies("no-such-file.yaml"), "No such file"),
    ],
)
def test_wrong_calls_are_errors_of_ours(call, message):
    with pytest.raises(lictor.LictorError, match=re.escape(message)):
        call()


def test_objects_are_read_from_files(tmp_path):
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all([POD, {**POD, "kind": "Job"}]))
    listed = {"apiVersion": "v1", "kind": "List", "items": [POD]}
    (tmp_path / "list.json").write_text(json.dumps(listed))
    assert sorted(each["kind"] for each in lictor.load_resources(tmp_path)) == ["Job", "Pod", "Pod"]
    with pytest.raises(lictor.LictorError):
        lictor.load_resources(tmp_path / "missing.yaml")
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(lictor.LoadError, match="no objects in"):
        lictor.load_resources(tmp_path / "empty.yaml")
