"""What becomes of the text of a policy about Pods for the controllers of Pods."""

import json

import pytest

from lictor.core.families.kyverno_cel.autogen import describe_match, list_template_paths
from lictor.core.load.policies import load_documents
from lictor.core.model.cel_policy import PodControllers, ValidatingSpec
from lictor.core.model.constraints import MatchResources, ResourceRule
from lictor.core.model.metadata import LabelSelector
from lictor.core.model.policy import CelExpression

PODS = ResourceRule(
    operations=("CREATE",), api_groups=("",), api_versions=("v1",), resources=("pods",)
)
ABOUT_PODS = MatchResources(resource_rules=(PODS,))


@pytest.mark.parametrize(
    ("floor", "text", "expected"),
    [
        ("defaults", "object.spec.a", "object.spec.template.spec.a"),
        ("defaults", "oldObject.spec.a", "oldObject.spec.template.spec.a"),
        ("defaults", "object.metadata.labels", "object.spec.template.metadata.labels"),
        ("cronjobs", "object.spec.a", "object.spec.jobTemplate.spec.template.spec.a"),
        (
            "cronjobs",
            "oldObject.metadata.x",
            "oldObject.spec.jobTemplate.spec.template.metadata.x",
        ),
        ("defaults", "object.kind", "object.kind"),
        ("defaults", "object.?spec.a", "object.?spec.a"),
        ("defaults", "'ü<&>\"' + object.spec.a", "'ü<&>\"' + object.spec.template.spec.a"),
    ],
)
def test_text(floor, text, expected):
    spec = ValidatingSpec(ABOUT_PODS, validations=(CelExpression(text, "in " + text),))
    floors = {each.name: each for each in list_template_paths(ABOUT_PODS, None)}
    rewritten = floors[floor].rewrite(spec)
    assert rewritten.validations == (CelExpression(expected, "in " + expected),)
    assert rewritten.match_constraints == floors[floor].constraints


@pytest.mark.parametrize(
    ("controllers", "expected"),
    [
        (None, {"cronjobs": ["cronjobs"], "defaults": ["daemonsets", "deployments", "replicasets", "statefulsets", "jobs"]}),
        (("deployments",), {"defaults": ["deployments"]}),
        (("cronjobs", "unknown"), {"cronjobs": ["cronjobs"]}),
        ((), {}),
    ],
)  # fmt: skip
def test_controllers(controllers, expected):
    found = {
        floor.name: [r for rule in floor.constraints.resource_rules for r in rule.resources]
        for floor in list_template_paths(ABOUT_PODS, PodControllers(controllers))
    }
    assert found == expected


@pytest.mark.parametrize(
    "constraints",
    [
        None,
        MatchResources(),
        MatchResources(resource_rules=(PODS, PODS)),
        MatchResources(resource_rules=(PODS,), exclude_resource_rules=(PODS,)),
        MatchResources(
            resource_rules=(PODS,), object_selector=LabelSelector(match_labels={"a": "b"})
        ),
        *(
            MatchResources(resource_rules=(rule,))
            for rule in (
                ResourceRule(("x",), ("CREATE",), ("",), ("v1",), ("pods",)),
                ResourceRule((), ("CREATE",), ("*",), ("v1",), ("pods",)),
                ResourceRule((), ("CREATE",), ("",), ("*",), ("pods",)),
                ResourceRule((), ("CREATE",), ("",), ("v1",), ("pods", "services")),
                ResourceRule((), (), ("",), ("v1",), ("pods",)),
            )
        ),
    ],
)
def test_only_policies_about_pods_alone(constraints):
    assert list(list_template_paths(constraints, None)) == []


def test_empty_selectors_do_not_count():
    constraints = MatchResources(LabelSelector(), LabelSelector(), (PODS,))
    assert len(list(list_template_paths(constraints, None))) == 2


def test_the_namespaces_of_a_policy_are_those_of_its_variants():
    chosen = LabelSelector(match_labels={"a": "b"})
    constraints = MatchResources(resource_rules=(PODS,), namespace_selector=chosen)
    paths = list(list_template_paths(constraints, None))
    assert [each.constraints.namespace_selector for each in paths] == [chosen, chosen]


# --- custom workloads

JOBSETS = {"podControllers": {"controllers": ["jobsets.v1alpha2.jobset.x-k8s.io", "deployments"]}}
TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "a:1"}]}}
PODS_ONLY = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
}


def job_set(*templates, **more):
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "n"},
        "spec": {"jobs": list(templates)},
        **more,
    }


def custom_policy(kind, **spec):
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "p"},
        "spec": {"autogen": JOBSETS, "matchConstraints": PODS_ONLY, **spec},
    }


NAMED = {"validations": [{"expression": "object.metadata.name == 'set'", "message": "m"}]}
OTHER_NAME = {**TEMPLATE, "metadata": {"name": "x"}}
NO_POD = "extraction mode: no pod template found in jobset.x-k8s.io/v1alpha2/JobSet"
MUTATION = {
    "mutations": [
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {
                "expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"
            },
        }
    ]
}
IMAGES = {
    "attestors": [{"name": "me", "cosign": {"key": {"data": "k"}}}],
    "validationConfigurations": {"mutateDigest": False, "verifyDigest": False, "required": False},
    "validations": [{"expression": "images.containers == ['a:1']", "message": "m"}],
}


@pytest.mark.parametrize(
    ("document", "resource", "expected"),
    [
        (custom_policy("ValidatingPolicy", **NAMED), job_set(TEMPLATE, TEMPLATE), [("", "pass", "success")]),
        (custom_policy("ValidatingPolicy", **NAMED), job_set(TEMPLATE, OTHER_NAME), [("", "fail", "m (pod template at spec.jobs[1])")]),
        (custom_policy("ValidatingPolicy", **NAMED), job_set(), [("", "error", NO_POD)]),
        (custom_policy("ValidatingPolicy", **NAMED), job_set(status={"jobs": [TEMPLATE]}), [("", "error", NO_POD)]),
        # No Pod template: a container has no image.
        (custom_policy("ValidatingPolicy", **NAMED), job_set({"spec": {"containers": [{"name": "a"}]}}), [("", "error", NO_POD)]),
        (custom_policy("ImageValidatingPolicy", **IMAGES), job_set(TEMPLATE), [("p", "pass", "success")]),
        (custom_policy("ImageValidatingPolicy", **IMAGES), job_set({"spec": {"containers": [{"name": "a", "image": "b"}]}}), [("p", "fail", "m (pod template at spec.jobs[0])")]),
        (custom_policy("MutatingPolicy", **MUTATION), job_set(TEMPLATE), [("", "skip", "extraction mode: mutation for custom workload CRDs is not yet supported")]),
    ],
)  # fmt: skip
def test_pod_templates_of_custom_workloads(summarize, document, resource, expected):
    assert summarize([document], resource) == expected


def test_custom_workloads_are_a_variant_without_conditions():
    document = custom_policy(
        "ValidatingPolicy", matchConditions=[{"name": "c", "expression": "true"}], **NAMED
    )
    (record,) = load_documents(json.dumps(document), "policy.yaml").records
    variants = describe_match(record).variants
    assert [(name, len(conditions)) for name, _, conditions in variants] == [
        ("extract", 0),
        ("defaults", 1),
    ]
