"""What a real Prometheus sees of a running lictor: each query of the dashboard, each alert, each metric."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from background_site import HOME, Site, make_role, until
from control_plane.install import install_lictor
from prometheus_client.parser import text_string_to_metric_families
from prometheus_server import Prometheus, needs_prometheus

from lictor.install.monitoring import build_rule_groups, render_dashboard_file
from lictor.kubernetes.metrics import METRICS, MetricType

sys.path.append(str(Path(__file__).parents[1] / "unit" / "webhook"))
from collectors import HttpCollector

pytestmark = needs_prometheus
TEAM = "observed"
SELECTOR = 'namespace="lictor"'
# What Grafana would put in.
VARIABLES = {"$__rate_interval": "30s", "$namespace": "lictor"}
CONTROLLERS = ("background-controller", "reports-controller", "cleanup-controller")
# Those of another program, and those that a healthy lictor does not show.
ELSEWHERE = re.compile(
    r"(kubewarden|lictor_notifications)_.*|kyverno_(cleanup|deleting|ttl)_controller_errors"
)


def make_policy(kind, name, spec, version="kyverno.io/v1"):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def make_rule(name, kind="Pod", **work):
    match = {"any": [{"resources": {"kinds": [kind], "namespaces": [TEAM]}}]}
    return {"name": name, "match": match, **work}


def make_cel_policy(kind, name, kinds="pods", **spec):
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": [kinds],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": TEAM}}
    constraints = {"resourceRules": [rule], "namespaceSelector": selector}
    return make_policy(
        kind, name, {"matchConstraints": constraints, **spec}, "policies.kyverno.io/v1"
    )


def refuse_label(name, action):
    pattern = {"metadata": {"=(labels)": {f"=({name})": "never"}}}
    return {"failureAction": action, "message": f"not {name}", "pattern": pattern}


MADE = {"apiVersion": "v1", "kind": "ConfigMap"}
UNKNOWN = {"deny": {"conditions": {"all": [{"key": "{{ parse_json(request.object.metadata.name) }}", "operator": "Equals", "value": "x"}]}}, "failureAction": "Audit", "message": "m"}  # fmt: skip
POLICIES = [
    make_policy("ClusterPolicy", "refuse", {"rules": [make_rule("bad", validate=refuse_label("bad", "Enforce"))]}),
    make_policy("ClusterPolicy", "undecided", {"rules": [make_rule("unknown", validate=UNKNOWN)]}),
    make_policy("ClusterPolicy", "mutate", {"rules": [make_rule("mark", mutate={"patchStrategicMerge": {"metadata": {"labels": {"+(seen)": "yes"}}}})]}),
    make_policy("ClusterPolicy", "generate", {"rules": [make_rule("copy", generate={**MADE, "name": "copy-of-{{request.object.metadata.name}}", "namespace": TEAM, "data": {"data": {"a": "b"}}})]}),
    make_cel_policy("ValidatingPolicy", "vpol", validationActions=["Audit"], validations=[{"expression": "!has(object.metadata.labels) || !('odd' in object.metadata.labels)", "message": "odd"}]),
    make_cel_policy("ImageValidatingPolicy", "ivpol", validationActions=["Audit"], failurePolicy="Ignore", matchImageReferences=[{"glob": "*"}], attestors=[{"name": "a", "cosign": {"key": {"data": "x"}}}], validations=[{"expression": "false", "message": "never"}]),
    make_cel_policy("MutatingPolicy", "mpol", mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'m': 'p'}}]"}}]),
    make_cel_policy("GeneratingPolicy", "gpol", variables=[{"name": "made", "expression": "[{'kind': dyn('ConfigMap'), 'apiVersion': dyn('v1'), 'metadata': dyn({'name': dyn('made-' + object.metadata.name), 'namespace': dyn(object.metadata.namespace)})}]"}], generate=[{"expression": f"generator.Apply('{TEAM}', variables.made)"}]),
    make_policy("ClusterCleanupPolicy", "cleanup", {"schedule": "* * * * *", "match": {"any": [{"resources": {"kinds": ["ConfigMap"], "namespaces": [TEAM], "names": ["swept-*"]}}]}}, "kyverno.io/v2"),
    make_policy("DeletingPolicy", "deleting", {"schedule": "* * * * *", "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}, "conditions": [{"name": "c", "expression": "object.metadata.name.startsWith('dusted')"}]}, "policies.kyverno.io/v1"),
]  # fmt: skip
DELETES = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {
        "name": "cleanup:tests",
        "labels": {"rbac.kyverno.io/aggregate-to-cleanup-controller": "true"},
    },
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["configmaps", "pods"],
            "verbs": ["get", "list", "watch", "delete"],
        }
    ],
}


def make_config_map(name, **labels):
    return {**MADE, "metadata": {"name": name, "namespace": TEAM, "labels": labels}}


def make_pod(name, **labels):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "127.0.0.1:1/app:1"}]},
    }


def make_pods(site, number):
    """Requests of all sorts: allowed, refused, changed, undecided."""
    site.apply(make_pod(f"fine-{number}"), make_pod(f"odd-{number}", odd="yes"))
    words = ("create", "-f", "-")
    bad = json.dumps(make_pod(f"bad-{number}", bad="yes"))
    refused = site.plane.kubectl(*words, stdin=bad, check=False)
    assert refused.returncode != 0


def list_expressions():
    for panel in json.loads(render_dashboard_file())["panels"]:
        for target in panel.get("targets", ()):
            yield fill_in(target["expr"])


def fill_in(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


@pytest.fixture(scope="module")
def collector():
    with HttpCollector() as made:
        yield made


@pytest.fixture(scope="module")
def site(open_cluster, collector):
    """Lictor with all its controllers, as they run in Pods."""
    tracing = ("--enableTracing", "--tracingAddress=127.0.0.1", f"--tracingPort={collector.port}", "--tracingProtocol=http")  # fmt: skip
    with open_cluster(loopback=True) as plane:
        flags = ("--backgroundScanInterval=10s", "--ttlReconciliationInterval=1s")
        made = Site(plane, install_lictor(plane, namespace=HOME, flags=flags, replicas=0))
        made.installation.start_replica(*tracing)
        made.make_namespace(TEAM)
        made.apply(make_role("tests", ["configmaps"]), DELETES)
        for component in CONTROLLERS:
            made.installation.start_controller(component)
        made.apply(*POLICIES)
        until(lambda: all(made.is_ready(each) for each in POLICIES[:8]), "the policies")
        yield made
        made.installation.stop()


@pytest.fixture(scope="module")
def prometheus(site, tmp_path_factory):
    replicas = [*site.installation.replicas, *site.installation.controllers]
    targets = [f"{site.plane.address}:{each.metrics_port}" for each in replicas]
    folder = tmp_path_factory.mktemp("prometheus")
    with Prometheus(folder, targets, build_rule_groups(SELECTOR)) as made:
        yield made


def test_each_query_of_the_dashboard_has_an_answer(site, prometheus):
    site.apply(make_config_map("swept-1"), make_config_map("dusted-1"))
    site.apply(make_config_map("expires", **{"cleanup.kyverno.io/ttl": "1s"}))
    # A policy comes and goes while Prometheus looks.
    extra = make_policy("ClusterPolicy", "brief", {"rules": [make_rule("bad", validate=refuse_label("x", "Audit"))]})  # fmt: skip
    site.install(extra)
    site.kubectl("delete", "clusterpolicy", "brief")
    missing = set(list_expressions())
    assert len(missing) > 40
    deadline = time.monotonic() + 150
    number = 0
    while missing and time.monotonic() < deadline:
        make_pods(site, number)
        number += 1
        time.sleep(1)
        missing = {each for each in missing if not prometheus.query(each)}
    assert sorted(missing) == []
    refused = 'sum(kyverno_admission_requests_total{request_allowed="false",resource_kind="Pod"})'
    assert prometheus.query(refused)[0] >= number - 2
    assert prometheus.query("count(kyverno_info)") == [4]


def test_alerts_are_loaded_and_quiet_where_all_is_well(prometheus):
    groups = prometheus.ask("rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(rules) == {rule["alert"] for group in build_rule_groups() for rule in group["rules"]}
    assert {name: rule["health"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
    firing = {name for name, rule in rules.items() if rule["state"] == "firing"}
    # One of the policies is made to fail.
    assert firing <= {"LictorPolicyErrors"}


def test_everything_that_is_shown_is_declared(site):
    replicas = [*site.installation.replicas, *site.installation.controllers]
    seen = set()
    for replica in replicas:
        page = httpx2.get(
            f"http://{site.plane.address}:{replica.metrics_port}/metrics", trust_env=False
        )
        for family in text_string_to_metric_families(page.text):
            if not family.name.startswith(("python_", "process_")):
                seen.add(check_family(family))
    hidden = {name for name in METRICS if not ELSEWHERE.fullmatch(name)} - seen
    assert hidden == set()


def check_family(family):
    metric = METRICS[family.name]
    assert (family.type, family.documentation) == (str(metric.type), metric.help)
    own = {"le"} if metric.type is MetricType.HISTOGRAM else set()
    for sample in family.samples:
        assert set(sample.labels) - own <= set(metric.labels), sample
    return family.name


def test_spans_reach_the_collector(site, collector):
    make_pods(site, "traced")

    def list_rules():
        return {
            attribute.value.string_value
            for span in collector.spans
            if span.name == "ADMISSION CREATE Pod"
            for event in span.events
            for attribute in event.attributes
            if attribute.key == "kyverno.policy.name"
        }

    until(lambda: {"refuse", "mutate", "mpol"} <= list_rules(), "spans")
    assert collector.resource["service.name"] == "kyverno"
    assert collector.resource["k8s.pod.name"].startswith("lictor-admission-controller")


def test_the_log_level_changes_without_a_restart(site):
    replicas = [*site.installation.replicas, *site.installation.controllers]
    patch = json.dumps({"data": {"logLevel": "debug"}})
    words = ("patch", "configmap", "lictor", "-n", HOME, "--type=merge", "-p")
    site.kubectl(*words, patch)
    for replica in replicas:
        until(
            lambda replica=replica: "level=debug" in replica.process.read_log(), replica.component
        )
    site.kubectl(*words, json.dumps({"data": {"logLevel": None}}))


def test_lictor_up_shows_the_same(tmp_path):
    """Webhook and controllers are one process there, and its supervisor shows restarts too."""
    (tmp_path / "policy.json").write_text(json.dumps(POLICIES[0]))
    command = [
        sys.executable,
        "-m",
        "lictor",
        "up",
        f"--kubeconfig={tmp_path / 'config'}",
        "--port=0",
    ]
    process = subprocess.Popen(
        [*command, f"--policies={tmp_path / 'policy.json'}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        url = next(found[0] for line in lines if (found := re.search(r"http://\S+/metrics", line)))
        names = set()

        def has_everything():
            page = httpx2.get(url, trust_env=False).text
            names.update(map(check_family, text_string_to_metric_families(page)))
            return {"kyverno_controller_reconcile", "lictor_scan_kinds", "lictor_webhook_healthy"} <= names  # fmt: skip

        until(has_everything, "metrics of the controllers")
        assert {"kyverno_info", "kyverno_policy_rule_info_total", "lictor_worker_restarts"} <= names
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
