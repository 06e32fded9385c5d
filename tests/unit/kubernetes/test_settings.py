"""The installation's ConfigMap: what it says, and who and what is left alone by it."""

import time

import msgspec
import pytest

from lictor.core.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.kubernetes.request_filter import build_filter, build_resource_filter
from lictor.kubernetes.settings import CallerExclusion, ResourceFilterEntry, Settings, read_settings


def read(**data: str) -> Settings:
    return read_settings({"data": data})


def test_nothing_given_is_all_defaults():
    assert read_settings(None) == Settings()
    assert read_settings({}) == Settings()
    assert read_settings({"data": None}) == Settings()
    assert Settings().problems == ()


def test_everything_given():
    found = read(
        resourceFilters="[Event,*,*] [*/*,kyverno,*]",
        excludeUsernames="!system:serviceaccount:a:b, system:serviceaccount:a:*",
        excludeGroups="system:nodes",
        excludeRoles="team:admin",
        excludeClusterRoles="cluster-admin,!edit",
        defaultRegistry="registry.corp/mirror",
        enableDefaultRegistryMutation="false",
        generateSuccessEvents="True",
        successEventActions="Resource Passed, Resource Mutated",
        webhooks='{"namespaceSelector": {"matchLabels": {"a": "b"}}, "objectSelector": {}}',
        webhookAnnotations='{"a": "b"}',
        webhookLabels='{"c": "d"}',
        matchConditions='[{"name": "n", "expression": "true", "odd": 1}]',
        updateRequestThreshold="20",
        maxContextSize="3Mi",
    )
    assert found == Settings(
        resource_filters=(
            ResourceFilterEntry("Event", "*", "*"),
            ResourceFilterEntry("*/*", "kyverno", "*"),
        ),
        exclude_usernames=CallerExclusion(
            ("system:serviceaccount:a:*",), ("system:serviceaccount:a:b",)
        ),
        exclude_groups=CallerExclusion(("system:nodes",)),
        exclude_roles=CallerExclusion(("team:admin",)),
        exclude_cluster_roles=CallerExclusion(("cluster-admin",), ("edit",)),
        default_registry="registry.corp/mirror",
        enable_default_registry_mutation=False,
        generate_success_events=True,
        success_event_actions=frozenset({"Resource Passed", "Resource Mutated"}),
        webhook_namespace_selector={"matchLabels": {"a": "b"}},
        webhook_object_selector={},
        webhook_annotations={"a": "b"},
        webhook_labels={"c": "d"},
        match_conditions=({"name": "n", "expression": "true"},),
        update_request_threshold=20,
        max_context_size=3 * 1024 * 1024,
    )
    assert found.needs_roles


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("", ()),
        ("[Pod,default,nginx],[Pod,kube-system,*]", (("Pod", "default", "nginx"), ("Pod", "kube-system", "*"))),
        ("[Pod,default,nginx]\n[Node,,]", (("Pod", "default", "nginx"), ("Node", "", ""))),
        ("[ Pod , default , nginx ]", (("Pod", "default", "nginx"),)),
        ("[apps/v1/Deployment.status,*,*]", (("apps/v1/Deployment.status", "*", "*"),)),
    ],
)  # fmt: skip
def test_resource_filters(text, filters):
    found = read(resourceFilters=text)
    assert found.resource_filters == tuple(ResourceFilterEntry(*each) for each in filters)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"resourceFilters": "[]"}, "resourceFilters: [] is not of the form [kind,namespace,name]"),
        ({"resourceFilters": "[Pod,a,b,c]"}, "resourceFilters: [Pod,a,b,c] is not of the form"),
        ({"resourceFilters": "[a/b/c/d/e,*,*]"}, "is not of the form"),
        ({"resourceFilters": "[Pod,a,b] Pod,c,d"}, "ignored, as not in [kind,namespace,name]: ' Pod,c,d'"),
        ({"resourceFilters": "[Pod]"}, "[Pod] has no namespace and name, and so matches only objects without"),
        ({"resourceFilters": "[Pod,*]"}, "[Pod,*] has no name, and so"),
        ({"defaultRegistry": "-bad-"}, "defaultRegistry: '-bad-' is not a valid DNS hostname"),
        ({"enableDefaultRegistryMutation": "maybe"}, "enableDefaultRegistryMutation: expected true or false"),
        ({"generateSuccessEvents": "yes"}, "generateSuccessEvents: expected true or false, not 'yes'"),
        ({"webhooks": "{"}, "webhooks: is not JSON"),
        ({"webhooks": "[{}, {}]"}, "webhooks: expected a JSON object"),
        ({"webhooks": '{"namespaceSelector": 1}'}, "must be label selectors"),
        ({"webhookAnnotations": '{"a": 1}'}, "webhookAnnotations: expected a JSON object of texts"),
        ({"webhookLabels": "[]"}, "webhookLabels: expected a JSON object of texts"),
        ({"matchConditions": '[{"name": "x"}]'}, "matchConditions: expected a JSON list"),
        ({"updateRequestThreshold": "many"}, "updateRequestThreshold: expected a whole number"),
        ({"maxContextSize": "big"}, "maxContextSize: expected a size such as 2Mi, not 'big'"),
        ({"maxContextSize": "0"}, "maxContextSize: expected more than zero"),
    ],
)  # fmt: skip
def test_bad_entries_are_told_and_keep_their_defaults(data, problem):
    found = read(**data)
    assert problem in found.problems[0]
    kept = read(**data, excludeGroups="a")
    assert kept.exclude_groups == CallerExclusion(("a",))
    if "resourceFilters" not in data:
        assert {**_as_dict(found), "problems": ()} == _as_dict(Settings())


def _as_dict(settings: Settings) -> dict:
    return {name: getattr(settings, name) for name in settings.__struct_fields__}


def test_webhooks_as_older_releases_wrote_them():
    assert read(webhooks='[{"objectSelector": {}}]').webhook_object_selector == {}


DEPLOYMENT = GroupVersionKind("apps", "v1", "Deployment")
POD = GroupVersionKind("", "v1", "Pod")
NAMESPACE = GroupVersionKind("", "v1", "Namespace")


@pytest.mark.parametrize(
    ("filters", "kind", "subresource", "namespace", "name", "filtered"),
    [
        ("[Pod,*,*]", POD, "", "a", "b", True),
        ("[Pod,*,*]", POD, "exec", "a", "b", False),
        ("[Pod/*,*,*]", POD, "exec", "a", "b", True),
        ("[Pod/exec,*,*]", POD, "exec", "a", "b", True),
        ("[Pod/exec,*,*]", POD, "", "a", "b", False),
        ("[*/exec,*,*]", POD, "exec", "a", "b", True),
        ("[*/*,kube-*,*]", POD, "log", "kube-system", "b", True),
        ("[*/*,kube-*,*]", POD, "", "shop", "b", False),
        ("[*,shop,*]", POD, "", "shop", "b", True),
        ("[*,shop,*]", POD, "exec", "shop", "b", False),
        ("[Pod,shop,web-?]", POD, "", "shop", "web-1", True),
        ("[Pod,shop,web-?]", POD, "", "shop", "web-10", False),
        ("[apps/v1/Deployment,*,*]", DEPLOYMENT, "", "a", "b", True),
        ("[batch/v1/Deployment,*,*]", DEPLOYMENT, "", "a", "b", False),
        ("[v1/Deployment,*,*]", DEPLOYMENT, "", "a", "b", True),
        ("[*/Deployment,*,*]", DEPLOYMENT, "", "a", "b", True),
        ("[Pod,*]", POD, "", "a", "b", False),
        ("[Pod]", POD, "", "", "", True),
        # A filter of a namespace's objects means the namespace as well.
        ("[*,kube-system,*]", NAMESPACE, "", "kube-system", "kube-system", True),
        ("[*,kube-system,*]", NAMESPACE, "", "", "kube-system", True),
        ("[Namespace,kube-system,x]", NAMESPACE, "", "", "kube-system", True),
        ("[Namespace,kube-system,x]", NAMESPACE, "", "", "shop", False),
        ("", POD, "", "a", "b", False),
    ],
)
def test_what_is_filtered(filters, kind, subresource, namespace, name, filtered):
    is_filtered = build_resource_filter(read(resourceFilters=filters))
    for _ in range(2):  # the second time from memory
        assert is_filtered(kind, subresource, namespace, name) is filtered


def make_request(caller: Caller | None = None, **admission: object) -> Request:
    kind = GroupVersionKind("", "v1", str(admission.pop("kind", "Pod")))
    asked = {
        "namespace": "shop",
        "name": "web",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        **admission,
    }
    return Request(
        kind=kind,
        object=None,
        operation=Operation.CONNECT,
        subresource=str(admission.get("subResource", "")),
        caller=caller or Caller(),
        admission=asked,
    )


@pytest.mark.parametrize(
    ("data", "caller", "excluded"),
    [
        ({"excludeUsernames": "jane"}, Caller("jane"), True),
        ({"excludeUsernames": "jane"}, Caller("joe"), False),
        ({"excludeUsernames": "system:*"}, Caller("system:node:a"), True),
        ({"excludeGroups": "ops"}, Caller("x", groups=("dev", "ops")), True),
        ({"excludeGroups": "op?"}, Caller("x", groups=("dev", "ops")), True),
        ({"excludeGroups": "ops"}, Caller("ops"), False),
        ({"excludeRoles": "shop:*"}, Caller("x", roles=("shop:admin",)), True),
        ({"excludeClusterRoles": "admin"}, Caller("x", cluster_roles=("admin",)), True),
        ({"excludeClusterRoles": "admin"}, Caller("x", roles=("admin",)), False),
        # A name that is never excluded wins, whichever list it stands in.
        ({"excludeGroups": "ops", "excludeUsernames": "!jane"}, Caller("jane", groups=("ops",)), False),
        ({"excludeGroups": "ops", "excludeUsernames": "!jane"}, Caller("joe", groups=("ops",)), True),
        ({"excludeUsernames": "!jane"}, Caller("joe"), False),
        ({}, Caller("joe"), False),
    ],
)  # fmt: skip
def test_who_is_left_alone(data, caller, excluded):
    assert build_filter(read(**data))(make_request(caller)) is excluded


def test_a_subresource_counts_as_of_its_owner():
    is_left_alone = build_filter(read(resourceFilters="[Pod/exec,shop,*]"))
    assert is_left_alone(make_request(kind="PodExecOptions", subResource="exec"))
    assert not is_left_alone(make_request(kind="PodExecOptions", subResource="attach"))


def test_kinds_of_our_own_book_keeping_are_left_alone():
    is_left_alone = build_filter(Settings())
    assert is_left_alone(make_request(kind="UpdateRequest"))
    assert not is_left_alone(make_request(kind="ClusterPolicy"))


@pytest.mark.parametrize(
    ("username", "kind", "excluded"),
    [
        ("system:serviceaccount:lictor:lictor-reports-controller", "PolicyReport", True),
        ("system:serviceaccount:lictor:lictor-reports-controller", "ConfigMap", False),
        ("system:serviceaccount:shop:robot", "PolicyReport", False),
    ],
)
def test_reports_that_lictor_writes_are_exempt(username, kind, excluded):
    is_left_alone = build_filter(Settings(), own_accounts="system:serviceaccount:lictor:")
    named = GroupVersionKind("wgpolicyk8s.io", "v1alpha2", kind)
    asked = msgspec.structs.replace(make_request(Caller(username)), kind=named)
    assert is_left_alone(asked) is excluded


def test_resources_without_a_review():
    settings = read(resourceFilters="[Pod,shop,*]", excludeUsernames="*")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}}
    assert build_filter(settings)(Request.of(pod))
    assert not build_filter(settings, skip_resource_filters=True)(Request.of(pod))


def test_is_quick():
    groups = ",".join(f"group-{number}" for number in range(20))
    filters = "".join(f"[Kind{n},*,*][*/*,namespace-{n},*]" for n in range(40))
    is_left_alone = build_filter(read(excludeGroups=groups, resourceFilters=filters))
    request = make_request(Caller("jane", groups=("a", "b", "c")))
    is_left_alone(request)
    start = time.process_time()
    for _ in range(2000):
        assert not is_left_alone(request)
    assert (time.process_time() - start) / 2000 < 100e-6


def test_forged_kinds_do_not_pile_up():
    is_filtered = build_resource_filter(read(resourceFilters="[Pod,*,*]"))
    for number in range(9000):
        is_filtered(GroupVersionKind("", "v1", f"Kind{number}"), "", "a", "b")
    held = is_filtered.__closure__ or ()
    sizes = [len(cell.cell_contents) for cell in held if isinstance(cell.cell_contents, dict)]
    assert max(sizes) <= 4096
