"""What an installation consists of, and that it may do no more than it must."""

import itertools
import json

import pytest

import lictor
from lictor.core.errors import UsageError
from lictor.install.build import build_manifests
from lictor.install.installation import Installation
from lictor.kubernetes.settings import read_settings


def install(**wishes):
    wishes = {"skip_crds": True, **wishes}
    return build_manifests(Installation(image="lictor:1", version="1.2.3", **wishes))


def list_names(manifests, kind):
    return [each["metadata"]["name"] for each in manifests if each["kind"] == kind]


def find(manifests, kind, name):
    return next(m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name)


USUAL = install(skip_crds=False)
AS_KYVERNO = install(prefix="kyverno", namespace="kyverno")
SMALL = install(all_in_one=True, replicas=1)
CONTROLLERS = ("admission", "background", "reports", "cleanup")


# --- which objects


def test_kinds_come_in_an_order_in_which_they_can_be_applied():
    order = [kind for kind, _ in itertools.groupby(each["kind"] for each in USUAL)]
    assert order[:2] == ["Namespace", "CustomResourceDefinition"]
    assert order[-1] == "Deployment"
    places = {kind: [e["kind"] for e in USUAL].index(kind) for kind in order}
    assert places["ServiceAccount"] < places["ConfigMap"] < places["Service"] < places["Deployment"]


NAMES = [
    ("Deployment", [f"kyverno-{name}-controller" for name in CONTROLLERS]),
    ("ServiceAccount", [f"kyverno-{name}-controller" for name in CONTROLLERS]),
    ("ConfigMap", ["kyverno", "kyverno-metrics"]),
    (
        "Service",
        [
            "kyverno-svc",
            "kyverno-svc-metrics",
            "kyverno-background-controller-metrics",
            "kyverno-reports-controller-metrics",
            "kyverno-cleanup-controller-metrics",
        ],
    ),
    ("PodDisruptionBudget", ["kyverno-admission-controller"]),
    ("NetworkPolicy", [f"kyverno-{name}-controller" for name in CONTROLLERS]),
    (
        "Role",
        [
            "kyverno:admission-controller:policy-servers",
            *(f"kyverno:{name}-controller" for name in CONTROLLERS),
        ],
    ),
]


@pytest.mark.parametrize(("kind", "names"), NAMES, ids=[kind for kind, _ in NAMES])
def test_names_are_those_that_people_know(kind, names):
    assert list_names(AS_KYVERNO, kind) == names


def test_one_deployment_does_everything():
    assert list_names(SMALL, "Deployment") == ["lictor-admission-controller"]
    assert list_names(SMALL, "ServiceAccount") == ["lictor-admission-controller"]
    assert list_names(SMALL, "PodDisruptionBudget") == []
    containers = SMALL[-1]["spec"]["template"]["spec"]["containers"]
    assert [each["args"][: each["args"].index("--namespace=lictor")] for each in containers] == [
        ["serve"],
        ["control", "background", "reports", "cleanup"],
    ]
    ports = [port for each in containers for port in each["ports"]]
    assert len({port["containerPort"] for port in ports}) == len(ports)
    assert len({port["name"] for port in ports}) == len(ports)
    for binding in (each for each in SMALL if each["kind"].endswith("RoleBinding")):
        assert [each["name"] for each in binding["subjects"]] == ["lictor-admission-controller"]


@pytest.mark.parametrize(
    ("flags", "delay", "grace"),
    [({}, "10s", 60), ({"shutdownDelay": "1m"}, "1m", 110)],
    ids=["usual", "someone knows better"],
)
def test_pods_have_time_to_finish(flags, delay, grace):
    pod = find(install(flags=flags), "Deployment", "lictor-admission-controller")
    spec = pod["spec"]["template"]["spec"]
    assert f"--shutdownDelay={delay}" in spec["containers"][0]["args"]
    assert spec["terminationGracePeriodSeconds"] == grace


def test_pods_have_a_place_for_modules_that_is_no_memory():
    pod = find(USUAL, "Deployment", "lictor-admission-controller")["spec"]["template"]["spec"]
    (cache,) = [volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "cache"]
    assert "medium" not in cache
    for container in pod["containers"]:
        variables = {each["name"]: each.get("value") for each in container["env"]}
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert mounts[variables["XDG_CACHE_HOME"]] == "cache"


def test_no_object_is_there_twice():
    keys = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in USUAL
    ]
    assert len(keys) == len(set(keys))


def test_labels_say_what_belongs_together():
    for each in USUAL:
        if each["kind"] == "CustomResourceDefinition":
            continue
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "lictor"
        assert labels["app.kubernetes.io/instance"] == "lictor"
        assert labels["app.kubernetes.io/version"] == "1.2.3"
        assert {"app.kubernetes.io/name", "app.kubernetes.io/component"} <= labels.keys()


@pytest.mark.parametrize("manifests", [USUAL, SMALL], ids=["usual", "small"])
def test_selectors_find_their_pods(manifests):
    pods = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in manifests
        if each["kind"] == "Deployment"
    ]
    selectors = {
        "Service": lambda spec: spec["selector"],
        "Deployment": lambda spec: spec["selector"]["matchLabels"],
        "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
        "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
    }
    for each in manifests:
        if each["kind"] in selectors:
            wanted = selectors[each["kind"]](each["spec"]).items()
            assert sum(wanted <= labels.items() for labels in pods) == 1, each["metadata"]["name"]


@pytest.mark.parametrize("manifests", [USUAL, SMALL], ids=["usual", "small"])
def test_every_port_of_a_service_is_open(manifests):
    containers = {}
    for each in manifests:
        if each["kind"] == "Deployment":
            component = each["metadata"]["labels"]["app.kubernetes.io/component"]
            containers[component] = each["spec"]["template"]["spec"]["containers"]
    rules = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: {
            port["port"] for rule in each["spec"]["ingress"] for port in rule["ports"]
        }
        for each in manifests
        if each["kind"] == "NetworkPolicy"
    }
    for service in (each for each in manifests if each["kind"] == "Service"):
        component = service["spec"]["selector"]["app.kubernetes.io/component"]
        ports = {p["containerPort"] for c in containers[component] for p in c["ports"]}
        targets = {port["targetPort"] for port in service["spec"]["ports"]}
        assert targets <= ports
        assert targets <= rules[component]


@pytest.mark.parametrize("has_web", [True, False])
def test_metrics_are_for_pods_of_the_cluster_only(*, has_web):
    """Where an API server or a browser calls from cannot be said; who reads metrics can be."""
    chosen = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "watch"}}}]
    for given, expected in ((None, [{"namespaceSelector": {}}]), (chosen, chosen)):
        values = {"web": {"enabled": has_web}}
        if given is not None:
            values["global"] = {"metricsFrom": given}
        made = [each for each in install(values=values) if each["kind"] == "NetworkPolicy"]
        assert len(made) == (5 if has_web else 4)
        for rule in (rule for each in made for rule in each["spec"]["ingress"]):
            ports = {port["port"] for port in rule["ports"]}
            assert ports <= {8000, 8001} or ports <= {8443, 9443}
            assert rule.get("from") == (expected if ports <= {8000, 8001} else None)


# --- what Pods may do to their node

RESTRICTED = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: restricted}
spec:
  rules:
  - name: restricted
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      failureAction: Enforce
      podSecurity: {level: restricted, version: latest}
  - name: careful
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      failureAction: Enforce
      message: root file systems are for reading, and memory has a limit
      pattern:
        spec:
          containers:
          - securityContext: {readOnlyRootFilesystem: true}
            resources:
              limits: {memory: "?*"}
              requests: {cpu: "?*", memory: "?*"}
            livenessProbe: {httpGet: {path: /health/liveness}}
            readinessProbe: {httpGet: {path: /health/readiness}}
"""


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(RESTRICTED)
    return lictor.Engine(lictor.load_policies(str(path)))


@pytest.mark.parametrize("manifests", [USUAL, SMALL], ids=["usual", "small"])
def test_our_own_pods_keep_the_restricted_standard(engine, manifests):
    judged = 0
    for deployment in (each for each in manifests if each["kind"] == "Deployment"):
        verdict = engine.evaluate(deployment)
        assert [result.message for result in verdict.results if result.failure] == []
        judged += sum(result.status is lictor.Status.PASS for result in verdict.results)
    assert judged >= 2


def test_the_namespace_takes_only_such_pods():
    labels = USUAL[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


# --- rights


def list_rules(manifests, *kinds):
    return [
        pytest.param(rule, id=f"{each['metadata']['name']}-{number}")
        for each in manifests
        if each["kind"] in kinds
        for number, rule in enumerate(each.get("rules", ()))
    ]


READ = {"get", "list", "watch"}
FORBIDDEN_VERBS = {"*", "escalate", "bind", "impersonate", "deletecollection"}


@pytest.mark.parametrize("rule", list_rules(USUAL, "Role", "ClusterRole"))
def test_rights_are_named_one_by_one(rule):
    for part in ("apiGroups", "resources", "verbs"):
        assert "*" not in rule[part]
        assert not any(word.endswith("/*") for word in rule[part])
    assert rule["verbs"]


CONTROLLER_RULES = [
    param
    for each in USUAL
    if each["kind"] in ("Role", "ClusterRole") and "-controller" in each["metadata"]["name"]
    for param in list_rules([each], "Role", "ClusterRole")
]


@pytest.mark.parametrize("rule", CONTROLLER_RULES)
def test_controllers_have_no_dangerous_verbs(rule):
    assert not FORBIDDEN_VERBS & set(rule["verbs"])


@pytest.mark.parametrize("rule", list_rules(USUAL, "ClusterRole"))
def test_nobody_reads_secrets_or_runs_things_in_all_namespaces(rule):
    assert not {"secrets", "pods", "pods/exec", "serviceaccounts/token", "nodes/proxy"} & set(
        rule["resources"]
    )


def test_what_the_background_may_write_without_being_given_more():
    role = find(USUAL, "ClusterRole", "lictor:background-controller:core")
    written = {
        name
        for rule in role["rules"]
        for name in rule["resources"]
        if set(rule["verbs"]) - READ and rule["apiGroups"][0].partition(".")[2] != "kyverno.io"
        if rule["apiGroups"] != ["kyverno.io"]
    }
    furnishing = {"configmaps", "resourcequotas", "limitranges", "networkpolicies"}
    assert written == {*furnishing, "events"}


@pytest.mark.parametrize("rule", list_rules(USUAL, "ClusterRole"))
def test_policies_and_exceptions_are_written_by_people_only(rule):
    written = set(rule["verbs"]) - READ
    kinds = {name for name in rule["resources"] if "polic" in name and "/" not in name}
    groups = {"kyverno.io", "policies.kyverno.io"}
    if written and kinds and groups & set(rule["apiGroups"]):
        people = find(USUAL, "ClusterRole", "lictor:rbac:admin:policies")
        assert rule in people["rules"]
        assert "policyexceptions" not in kinds


# Rights for policies with servers and webhooks of their own, whose names nobody knows beforehand.
WITHOUT_SERVERS = [
    each for each in USUAL if not each["metadata"]["name"].endswith(":policy-servers")
]


@pytest.mark.parametrize("rule", list_rules(WITHOUT_SERVERS, "ClusterRole"))
def test_only_our_own_webhooks_and_role_are_changed(rule):
    changed = set(rule["verbs"]) & {"update", "patch", "delete"}
    for kind in ("validatingwebhookconfigurations", "clusterroles"):
        if kind in rule["resources"] and changed:
            assert rule["resourceNames"]
            assert all(name.startswith(("lictor-", "lictor:")) for name in rule["resourceNames"])


@pytest.mark.parametrize("rule", list_rules(WITHOUT_SERVERS, "Role"))
def test_only_our_own_secrets_are_touched(rule):
    if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
        assert rule["resourceNames"] == [
            "lictor-svc.lictor.svc.lictor-tls-ca",
            "lictor-svc.lictor.svc.lictor-tls-pair",
        ]


def test_rights_for_policy_servers_can_be_taken_away():
    name = "lictor:admission-controller:policy-servers"
    written = {
        resource: set(rule["verbs"]) - READ
        for kind in ("ClusterRole", "Role")
        for rule in find(USUAL, kind, name)["rules"]
        for resource in rule["resources"]
    }
    # Nobody's policies are rewritten, nobody's Pods are run anywhere but in our own namespace.
    assert written["clusteradmissionpolicies"] == {"patch"}
    assert written["validatingwebhookconfigurations"] == {"update", "delete"}
    assert written["secrets"] == {"update"}
    assert not any(
        "deployments" in each["resources"] for each in find(USUAL, "ClusterRole", name)["rules"]
    )


def test_named_secrets_are_the_ones_that_may_be_touched():
    made = install(flags={"caSecretName": "ours", "tlsSecretName": "pair"})
    rules = find(made, "Role", "lictor:admission-controller")["rules"]
    named = [
        rule["resourceNames"]
        for rule in rules
        if rule["resources"] == ["secrets"][:1] and "resourceNames" in rule
    ]
    assert named == [["ours", "pair"]]


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_pull_secrets_are_read_one_by_one(controller):
    made = install(flags={"imagePullSecrets": "one, lictor/two,other/three"})
    rules = find(made, "Role", f"lictor:{controller}-controller")["rules"]
    named = [
        rule for rule in rules if rule["resources"] == ["secrets"] and rule["verbs"] == ["get"]
    ]
    assert [rule["resourceNames"] for rule in named] == [["one", "two"]]


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_rights_can_be_added_by_label(controller):
    role = find(AS_KYVERNO, "ClusterRole", f"kyverno:{controller}-controller")
    assert "rules" not in role
    assert [each["matchLabels"] for each in role["aggregationRule"]["clusterRoleSelectors"]] == [
        {f"rbac.kyverno.io/aggregate-to-{controller}-controller": "true"},
        {
            "app.kubernetes.io/part-of": "kyverno",
            "app.kubernetes.io/instance": "kyverno",
            "app.kubernetes.io/component": f"{controller}-controller",
        },
    ]


def test_people_gain_rights_through_the_roles_that_they_have():
    roles = {
        each["metadata"]["name"]: [
            label.rpartition("-")[2]
            for label in each["metadata"]["labels"]
            if "aggregate-to" in label
        ]
        for each in USUAL
        if each["kind"] == "ClusterRole" and ":rbac:" in each["metadata"]["name"]
    }
    assert len(roles) == 8
    for name, gained in roles.items():
        assert gained == [name.split(":")[2]]


# --- settings and flags


def test_settings_can_be_read_by_those_who_use_them():
    settings = read_settings(find(AS_KYVERNO, "ConfigMap", "kyverno"))
    assert settings.problems == ()
    assert settings.exclude_groups.excluded == ("system:nodes",)
    assert settings.resource_filters
    assert settings.webhook_namespace_selector == {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [name]}
            for name in ("kube-system", "kyverno")
        ]
    }


def test_settings_are_changed_and_taken_away():
    made = install(settings={"excludeGroups": "a,b", "webhooks": "", "maxContextSize": "4Mi"})
    data = find(made, "ConfigMap", "lictor")["data"]
    assert data["excludeGroups"] == "a,b"
    assert data["maxContextSize"] == "4Mi"
    assert "webhooks" not in data


def test_metrics_settings_are_json():
    data = find(USUAL, "ConfigMap", "lictor-metrics")["data"]
    assert json.loads(data["namespaces"]) == {"exclude": [], "include": []}
    assert "kyverno_policy_results_total" in json.loads(data["metricsExposure"])


def test_flags_reach_every_container():
    made = install(
        flags={"enablePolicyException": "true", "omitEvents": ""},
        open_reports=True,
        skip_crds=False,
    )
    for each in made:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                assert "--enablePolicyException=true" in container["args"]
                assert "--openreportsEnabled=true" in container["args"]
                assert not any(word.startswith("--omitEvents") for word in container["args"])
    assert "reports.openreports.io" in list_names(made, "CustomResourceDefinition")


def test_replicas_and_pull_secrets():
    made = install(replicas=5, controller_replicas=2, image_pull_secrets=("a", "b"))
    found = {
        each["metadata"]["name"]: each["spec"] for each in made if each["kind"] == "Deployment"
    }
    assert [spec["replicas"] for spec in found.values()] == [5, 2, 2, 2]
    assert len(list_names(made, "PodDisruptionBudget")) == 4
    pod = found["lictor-reports-controller"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


WRONG = [
    ({"prefix": "Lictor"}, "prefix 'Lictor'"),
    ({"prefix": "l" * 40}, "at most 33"),
    ({"namespace": "a_b"}, "namespace 'a_b'"),
    ({"namespace": "kube-system"}, "choose one that is lictor's own"),
    ({"replicas": 0}, "at least one replica"),
    ({"settings": {"excludeGroup": "a"}}, "did you mean excludeGroups"),
]


@pytest.mark.parametrize(("wishes", "said"), WRONG, ids=[said for _, said in WRONG])
def test_wishes_that_make_no_sense_are_refused(wishes, said):
    with pytest.raises(UsageError, match=said):
        install(**wishes)
