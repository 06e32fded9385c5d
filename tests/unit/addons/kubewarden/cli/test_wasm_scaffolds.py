"""Files to start from: requests, manifests, converted policies, packages for Artifact Hub."""

from typing import Any

import pytest

from lictor.addons.kubewarden.cli.scaffolds import (
    ManifestOptions,
    scaffold_artifact_hub,
    scaffold_manifest,
    scaffold_request,
    scaffold_vap,
)
from lictor.core.errors import LoadError
from lictor.core.lang.wasm_module import ModuleMetadata

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}
HUB = {
    "io.kubewarden.policy.title": "labels",
    "io.kubewarden.policy.version": "0.10.0",
    "io.kubewarden.policy.description": "Labels that must be there",
    "io.kubewarden.policy.author": "Ann <ann@example.com>, Bob",
    "io.kubewarden.policy.ociUrl": "registry.example/labels",
    "io.artifacthub.displayName": "Labels",
    "io.artifacthub.resources": "Pod",
}


@pytest.mark.parametrize(
    ("operation", "new", "old", "made"),
    [
        ("", POD, None, "CREATE"),
        ("", POD, POD, "UPDATE"),
        ("", None, POD, "DELETE"),
        ("CONNECT", POD, None, "CONNECT"),
    ],
)
def test_requests(operation: str, new: Any, old: Any, made: str) -> None:
    request = scaffold_request(operation, new, old)
    assert request["operation"] == made
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (request["name"], request["namespace"]) == ("a", "b")
    assert (request.get("object"), request.get("oldObject")) == (new, old)


@pytest.mark.parametrize(
    ("operation", "new", "old", "told"),
    [
        ("CREATE", None, None, "give --object"),
        ("CREATE", POD, POD, "--old-object"),
        ("UPDATE", POD, None, "give --old-object"),
        ("DELETE", POD, POD, "--object"),
    ],
)
def test_requests_that_nobody_can_make(operation: str, new: Any, old: Any, told: str) -> None:
    with pytest.raises(LoadError, match=told):
        scaffold_request(operation, new, old)


def test_manifest_grants_nothing_that_was_not_asked_for() -> None:
    wanted = ({"apiVersion": "v1", "kind": "Namespace"},)
    annotations = {"io.kubewarden.policy.title": "My Labels"}
    metadata = ModuleMetadata(context_aware_resources=wanted, annotations=annotations)
    plain = scaffold_manifest("a.wasm", metadata, ManifestOptions(kind="ClusterAdmissionPolicy"))
    assert plain["metadata"]["name"] == "my-labels"
    assert "contextAwareResources" not in plain["spec"]
    for kind, granted in (("ClusterAdmissionPolicy", list(wanted)), ("AdmissionPolicy", None)):
        wishes = ManifestOptions(kind=kind, grants_context=True)
        made = scaffold_manifest("a.wasm", metadata, wishes)
        assert made["spec"].get("contextAwareResources") == granted


@pytest.mark.parametrize("title", ["My Title", "-a", "a_b"])
def test_titles_that_name_no_object(title: str) -> None:
    wishes = ManifestOptions(kind="AdmissionPolicy", title=title)
    with pytest.raises(LoadError, match="--title"):
        scaffold_manifest("a.wasm", ModuleMetadata(), wishes)


def policy(**spec: Any) -> dict[str, Any]:
    rules = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": []} | spec,
    }


def binding(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]} | spec,
    }


@pytest.mark.parametrize(
    ("actions", "mode"), [(["Deny"], None), (["Audit"], "monitor"), (["Warn", "Deny"], None)]
)
def test_a_binding_that_does_not_refuse_monitors(actions: list[str], mode: str | None) -> None:
    made = scaffold_vap(policy(), binding(validationActions=actions), "cel")
    assert made["spec"].get("mode") == mode


def test_selectors_of_policy_and_binding_both_count() -> None:
    given = policy()
    given["spec"]["matchConstraints"]["namespaceSelector"] = {"matchLabels": {"a": "1", "b": "1"}}
    narrowed = binding(matchResources={"namespaceSelector": {"matchLabels": {"a": "2", "c": "3"}}})
    made = scaffold_vap(given, narrowed, "cel")
    assert made["spec"]["namespaceSelector"] == {
        "matchLabels": {"a": "1", "b": "1", "c": "3"},
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["2"]}],
    }


@pytest.mark.parametrize(
    ("given", "bound", "told"),
    [
        (policy(), binding(policyName="another"), "not for 'p'"),
        (policy(paramKind={"kind": "ConfigMap"}), binding(), "go together"),
        (policy(matchConstraints={"excludeResourceRules": [{}]}), binding(), "no counterpart"),
        (
            policy(matchConstraints={"resourceRules": [{"resourceNames": ["a"]}]}),
            binding(),
            "names",
        ),
        (policy(), binding(matchResources={"resourceRules": [{}]}), "of a binding"),
        (binding(), binding(), "expected a ValidatingAdmissionPolicy,"),
    ],
)
def test_what_cannot_be_expressed_is_refused(given: Any, bound: Any, told: str) -> None:
    with pytest.raises(LoadError, match=told):
        scaffold_vap(given, bound, "cel")


def test_artifact_hub() -> None:
    made = scaffold_artifact_hub(ModuleMetadata(annotations=HUB), "now", "questions: []\n")
    assert made["containersImages"][0]["image"] == "registry.example/labels:v0.10.0"
    assert made["maintainers"] == [{"name": "Ann", "email": "ann@example.com"}, {"name": "Bob"}]
    assert made["annotations"]["kubewarden/questions-ui"] == "questions: []\n"


@pytest.mark.parametrize("name", [name for name in HUB if not name.endswith("ociUrl")])
def test_artifact_hub_names_what_is_missing(name: str) -> None:
    annotations = {key: text for key, text in HUB.items() if key != name}
    with pytest.raises(LoadError, match=name):
        scaffold_artifact_hub(ModuleMetadata(annotations=annotations), "now", None)
