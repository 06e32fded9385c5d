"""The chart under real helm: what it prints, and what it does to a cluster from install to uninstall."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from control_plane.helm import ABSENT, find_helm, run_helm
from control_plane.install import Installation as RunningLictor

from lictor.core.release import VERSION
from lictor.install.build import build_manifests
from lictor.install.installation import Installation
from lictor.install.values import read_values

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "lictor"
GOLDEN = ROOT / "tests" / "unit" / "install" / "chart_golden.yaml"
OLDER = "0.0.9"
MANAGED = "app.kubernetes.io/managed-by"
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: %s}
spec:
  rules:
  - name: labels
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [%s]}}]}
    validate:
      failureAction: Enforce
      message: label it
      pattern: {metadata: {labels: {team: "?*"}}}
"""
REPORT = """
apiVersion: wgpolicyk8s.io/v1alpha2
kind: PolicyReport
metadata: {name: %s, namespace: default}
summary: {pass: 1}
"""


@pytest.fixture(scope="session")
def helm(pytestconfig):
    capture = pytestconfig.pluginmanager.getplugin("terminalreporter")
    found = find_helm(lambda line: capture.write_line(line) if capture else None)
    if found is None:
        pytest.skip(ABSENT)
    return str(found)


# --- what it prints

VALUES = {
    "usual": "",
    "all in one": "allInOne: {enabled: true}\nadmissionController: {replicas: 1}\n",
    "other names": (
        "fullnameOverride: kyverno\nnamespaceOverride: kyverno\nopenreports: {enabled: true}\n"
        "image: {registry: r.example:5000, repository: a/b, digest: 'sha256:0'}\n"
        "reportsController: {rbac: {serviceAccount: {name: mine, annotations: {a: b}}}}\n"
    ),
    "less": (
        "backgroundController: {enabled: false}\ncleanupController: {rbac: {create: false}}\n"
        "crds: {groups: {policies: {generatingpolicies: false}}, customLabels: {x: 'y'}}\n"
        "config: {create: false}\nmetricsConfig: {create: false}\n"
        "admissionController:\n  networkPolicy: {enabled: false}\n"
        "  podDisruptionBudget: {enabled: false}\n  metricsService: {create: false}\n"
        "  rbac: {policyServers: false, createViewRoleBinding: false}\n"
        "rbac: {roles: {aggregate: {admin: false}}}\n"
    ),
    "Pods": """
customLabels: {team: platform}
global:
  tolerations: [{key: a, operator: Exists}]
  priorityClassName: high
  extraEnvVars: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
  imagePullSecrets: [{name: one}]
admissionController:
  replicas: 5
  podLabels: {pod: label}
  podAnnotations: {pod: annotation}
  labels: {object: label}
  annotations: {object: annotation}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  dnsConfig: {nameservers: [10.0.0.1]}
  nodeSelector: {disk: fast}
  podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1}]}
  nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
  webhookServer: {port: 8443}
  metering: {port: 8010}
  updateStrategy: {rollingUpdate: {maxUnavailable: 40%}}
  startupProbe: {failureThreshold: 100, httpGet: {path: /nowhere}}
  extraInitContainers: [{name: first, image: x}]
  extraContainers: [{name: beside, image: x}]
  extraVolumes: [{name: v, emptyDir: {}}]
  extraVolumeMounts: [{name: v, mountPath: /v}]
  container:
    resources: {limits: {memory: 1Gi, cpu: null}}
    extraEnvVars: [{name: A, value: "1"}]
    securityContext: {seccompProfile: {type: Localhost, localhostProfile: p}}
  service: {type: NodePort, nodePort: 30443, annotations: {a: b}, trafficDistribution: PreferClose}
  metricsService: {annotations: {scrape: "yes"}, port: 9000}
  networkPolicy: {ingressFrom: [{ipBlock: {cidr: 10.0.0.0/8}}]}
  podDisruptionBudget: {minAvailable: 50%}
  terminationGracePeriodSeconds: 90
  shutdownDelay: 20s
reportsController: {replicas: 2, tolerations: [{key: b}], podDisruptionBudget: {maxUnavailable: 25%}}
""",
    "scaled": """
admissionController:
  autoscaling:
    enabled: true
    minReplicas: 2
    targetMemoryUtilizationPercentage: 70
    behavior: {scaleDown: {stabilizationWindowSeconds: 300}}
""",
    "flags": """
existingImagePullSecrets: [one, two]
global: {resyncPeriod: 30m}
features:
  logging: {format: json, verbosity: 4}
  policyExceptions: {enabled: true, namespace: "*"}
  globalContext: {maxApiCallResponseLength: 20000000}
  reporting: {mutate: false}
  omitEvents: {eventTypes: []}
  registryClient: {allowInsecure: true, credentialHelpers: [default]}
  tuf: {enabled: true, mirror: "https://tuf.example", rootRaw: '{"a": "<b> & \\"c\\""}'}
admissionController:
  caSecretName: ours
  tlsSecretName: pair
  tlsKeyAlgorithm: ECDSA
  tracing: {enabled: true, address: otel, port: "4318"}
  container: {extraArgs: {webhookTimeout: 5, v: 6, loggingFormat: ""}}
backgroundController: {extraArgs: {genWorkers: 4000000}, metering: {disabled: true}, resyncPeriod: 1h}
""",
    "nothing reported": (
        "features: {reporting: {validate: false, mutate: false, mutateExisting: false, "
        "imageVerify: false, generate: false}}"
    ),
    "settings": """
config:
  excludeGroups: [a, "b:c"]
  excludeUsernames: ["!x"]
  generateSuccessEvents: true
  updateRequestThreshold: 2000000
  maxContextSize: 4Mi
  resourceFiltersExclude: ["[Node,*,*]"]
  resourceFiltersInclude: ["[Foo,*,*]"]
  resourceFiltersExcludeNamespaces: [kube-public]
  resourceFiltersIncludeNamespaces: [mine]
  excludeKyvernoNamespace: false
  webhooks:
    namespaceSelector: {matchLabels: {a: b}}
    objectSelector: {matchExpressions: [{key: k, operator: Exists}]}
  webhookLabels: {l: "<v>"}
  matchConditions: [{name: c, expression: "!(request.userInfo.username == 'ü') && 1 < 2"}]
  annotations: {a: b}
  settings: {defaultRegistry: "", excludeRoles: r}
metricsConfig:
  namespaces: {exclude: [a]}
  metricsRefreshInterval: 24h
  bucketBoundaries: [0.1, 1, 10, 2000000]
  metricsExposure: {kyverno_policy_results_total: null}
""",
    "monitoring": """
prometheusRule: {enabled: true, additionalLabels: {release: prometheus}}
grafana: {enabled: true, annotations: {folder: policies}}
admissionController: {serviceMonitor: {enabled: true, interval: 10s, additionalLabels: {a: b}}}
reportsController: {serviceMonitor: {enabled: true, metricRelabelings: [{action: labeldrop}]}}
""",
    "page": """
web:
  enabled: true
  hosts: policies.example,other.example
  tlsSecretName: pair
  extraArgs: [--boards=mine]
  notifications: {configMapName: told, secretNames: [a, b]}
""",
    "more rights": """
backgroundController:
  rbac:
    viewRoleName: reader
    coreClusterRole: {extraResources: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}
    clusterRole: {extraResources: [{apiGroups: [apps], resources: [deployments], verbs: [create]}]}
""",
}


def print_chart(helm, tmp_path, text, *words, namespace="lictor"):
    path = tmp_path / "values.yaml"
    path.write_text(text, encoding="utf-8")
    command = [helm, "template", "lictor", str(CHART), "-n", namespace, "-f", str(path), *words]
    return run_helm(command, tmp_path)


def sort_objects(manifests):
    """By kind and name, without what only one of the two writes: the Namespace, and Helm's marks."""
    found = {}
    for each in manifests:
        if each["kind"] == "Namespace":
            continue
        body = json.loads(
            json.dumps(each).replace(f'"{MANAGED}": "Helm"', f'"{MANAGED}": "lictor"')
        )
        metadata = body["metadata"]
        metadata.get("annotations", {}).pop("helm.sh/resource-policy", None)
        if not metadata.get("annotations", True):
            del metadata["annotations"]
        key = (each["kind"], metadata.get("namespace"), metadata["name"])
        assert key not in found
        found[key] = body
    return found


# The definitions are two megabytes of YAML: those who say nothing of them leave them out.
WITH_KINDS = ("usual", "other names", "less")


@pytest.mark.parametrize("name", VALUES)
def test_helm_and_install_make_the_same_objects(helm, tmp_path, name):
    text = VALUES[name] if name in WITH_KINDS else f"{VALUES[name]}\ncrds: {{install: false}}\n"
    done = print_chart(helm, tmp_path, text)
    assert done.returncode == 0, done.stderr
    printed = sort_objects(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))
    values = read_values(text, "values.yaml")
    names = {
        "prefix": values.get("fullnameOverride") or "lictor",
        "namespace": values.get("namespaceOverride") or "lictor",
    }
    ours = sort_objects(build_manifests(Installation(version=VERSION, values=values, **names)))
    assert printed.keys() == ours.keys()
    for key, body in ours.items():
        assert printed[key] == body, key


def test_helm_prints_what_it_printed(helm, tmp_path):
    """After a wanted change: LICTOR_WRITE_GOLDENS=1."""
    done = print_chart(helm, tmp_path, "crds: {install: false}")
    text = done.stdout.replace(VERSION, "VERSION")
    if os.environ.get("LICTOR_WRITE_GOLDENS") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_helm_finds_nothing_wrong(helm, tmp_path):
    done = run_helm([helm, "lint", "--strict", str(CHART), "-n", "lictor"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


WRONG = [
    ("admissionController: {replica: 2}", "replica"),
    ("admissionController: {replicas: 0}", "replicas"),
    ("admissionController: {replicas: '2'}", "replicas"),
    ("config: {excludeGroups: a}", "excludeGroups"),
    ("features: {logging: {format: xml}}", "format"),
    ("global: {resyncPeriod: soon}", "resyncPeriod"),
    ("config: {resourceFilters: ['[Pod,*,{{ x }}]']}", "resourceFilters"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[text for text, _ in WRONG])
def test_the_schema_refuses_what_makes_no_sense(helm, tmp_path, text, said):
    done = print_chart(helm, tmp_path, text)
    assert done.returncode != 0
    assert said in done.stderr


def test_namespaces_that_others_need_are_refused(helm, tmp_path):
    done = print_chart(helm, tmp_path, "", namespace="default")
    assert done.returncode != 0
    assert "choose one that is lictor's own" in done.stderr


@pytest.mark.parametrize("name", ["usual", "all in one"])
def test_our_own_chart_passes_our_own_policies(helm, tmp_path, name):
    text = f"{VALUES[name]}\nimage: {{registry: ghcr.io/acme}}\n"
    done = print_chart(helm, tmp_path, text)
    words = ("apply", "examples/policies", "-r", "-")
    judged = subprocess.run(
        [sys.executable, "-m", "lictor", *words],
        input=done.stdout,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    counts = judged.stdout.strip().splitlines()[-1]
    assert "fail: 0, warn: 0, error: 0" in counts
    assert not counts.startswith("pass: 0")


# --- what it does to a cluster


class Release:
    """One release of the chart in a cluster, with names of its own."""

    def __init__(self, helm, cluster, folder, name):
        self.helm, self.cluster, self.folder, self.name = helm, cluster, folder, name
        self.namespace = f"{name}-policies"

    def run(self, *words, check=True):
        command = self.cluster.command(self.helm, *words, "-n", self.namespace)
        command += ["--kubeconfig", str(self.cluster.kubeconfig)]
        done = run_helm(command, self.folder)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def install(self, chart, *words):
        return self.run("install", self.name, str(chart), "--create-namespace", *words)

    def upgrade(self, chart, *words):
        return self.run("upgrade", self.name, str(chart), *words)

    def read(self, *words):
        text = self.cluster.kubectl("get", *words, "-n", self.namespace, "-o", "json").stdout
        return json.loads(text)

    def version(self):
        labels = self.read("deployment", f"{self.name}-admission-controller")["metadata"]["labels"]
        return labels["app.kubernetes.io/version"]

    def list_webhooks(self):
        kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
        names = [each["metadata"]["name"] for each in self.read(kinds)["items"]]
        return [name for name in names if name.startswith(f"{self.name}-")]

    def start_lictor(self):
        """The webhook server, with the command line and the rights that the chart gives it."""
        deployment = self.read("deployment", f"{self.name}-admission-controller")
        running = RunningLictor(
            cluster=self.cluster,
            prefix=self.name,
            namespace=self.namespace,
            deployments={"admission-controller": deployment},
            services=[],
        )
        return running.start_replica(wait=False)


@pytest.fixture(scope="module")
def cluster(open_cluster):
    """A cluster of our own: kinds that others installed belong to no release."""
    with open_cluster() as plane:
        yield plane


@pytest.fixture
def release(helm, cluster, tmp_path):
    made = Release(helm, cluster, tmp_path, "lictor")
    yield made
    made.run("uninstall", made.name, check=False)


@pytest.fixture
def older(tmp_path):
    """The chart as an older version of it might have been: fewer kinds, fewer roles."""
    folder = tmp_path / "older"
    shutil.copytree(CHART, folder)
    about = folder / "Chart.yaml"
    about.write_text(about.read_text(encoding="utf-8").replace(VERSION, OLDER), encoding="utf-8")
    (folder / "files/crds/policies.deletingpolicies.json").unlink()
    shutil.rmtree(folder / "templates" / "rbac")
    return folder


def wait_until(is_so, seconds=60):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def serves_kinds(cluster):
    # kubectl gives up on a definition that has no conditions yet.
    words = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    return cluster.kubectl(*words, check=False).returncode == 0


def test_upgrade_and_rollback_keep_policies_and_reports(release, older, cluster):
    release.install(older)
    assert release.version() == OLDER
    wait_until(lambda: serves_kinds(cluster))
    cluster.kubectl("apply", "-f", "-", stdin=POLICY % (release.name, "nowhere"))
    cluster.kubectl("apply", "-f", "-", stdin=REPORT % release.name)
    kept = (("clusterpolicy", release.name), ("policyreport", release.name, "-n", "default"))
    before = [
        cluster.kubectl("get", *each, "-o", "jsonpath={.metadata.uid}").stdout for each in kept
    ]
    release.upgrade(CHART, "--set", "admissionController.replicas=2,config.excludeGroups={a,b}")
    assert release.version() == VERSION
    assert release.read("configmap", release.name)["data"]["excludeGroups"] == "a,b"
    assert release.read("clusterrole", f"{release.name}:rbac:view:policies")["rules"]
    release.run("rollback", release.name, "1")
    assert release.version() == OLDER
    assert release.read("configmap", release.name)["data"]["excludeGroups"] == "system:nodes"
    after = [
        cluster.kubectl("get", *each, "-o", "jsonpath={.metadata.uid}").stdout for each in kept
    ]
    assert after == before
    cluster.kubectl("delete", *kept[0])
    cluster.kubectl("delete", *kept[1])


# What Helm deletes is what this policy is asked about.
ON_DELETE = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: %s}
spec:
  webhookConfiguration: {failurePolicy: Fail}
  rules:
  - name: deletions
    match: {any: [{resources: {kinds: [ClusterRole], operations: [DELETE]}}]}
    validate: {failureAction: Enforce, message: keep it, deny: {}}
"""


def test_uninstall_leaves_kinds_and_policies_but_no_webhook(release, cluster):
    release.install(CHART)
    wait_until(lambda: serves_kinds(cluster))
    first = release.start_lictor()
    cluster.kubectl("apply", "-f", "-", stdin=ON_DELETE % release.name)
    webhook = f"{release.name}-resource-validating-webhook-cfg"
    wait_until(lambda: asks_about(release, webhook, "clusterroles"))
    uid = cluster.kubectl("get", "clusterpolicy", release.name, "-o", "jsonpath={.metadata.uid}")
    # Nobody answers any more: the API server would refuse to delete a ClusterRole.
    first.process.kill()
    release.run("uninstall", release.name)
    assert release.list_webhooks() == []
    left = release.read("deployment,service,serviceaccount,role,rolebinding,networkpolicy")["items"]
    names = [each["metadata"]["name"] for each in left]
    assert [name for name in names if name.startswith(release.name)] == []
    roles = release.read("clusterrole,clusterrolebinding")["items"]
    assert [role for role in roles if role["metadata"]["name"].startswith(f"{release.name}:")] == []
    again = cluster.kubectl("get", "clusterpolicy", release.name, "-o", "jsonpath={.metadata.uid}")
    assert again.stdout == uid.stdout
    assert release.read("configmap", release.name)["data"]
    # What was left belongs to the release that comes back.
    release.install(CHART)
    assert release.version() == VERSION
    second = release.start_lictor()
    wait_until(lambda: webhook in release.list_webhooks())
    release.run("uninstall", release.name)
    # This one still runs, and may not make new ones.
    assert second.process.is_running()
    assert release.list_webhooks() == []
    time.sleep(3)
    assert release.list_webhooks() == []
    second.process.stop()
    cluster.kubectl("delete", "clusterpolicy", release.name)


def asks_about(release, webhook, resource):
    if webhook not in release.list_webhooks():
        return False
    found = release.read("validatingwebhookconfiguration", webhook)
    rules = [rule for each in found.get("webhooks") or () for rule in each.get("rules") or ()]
    return any(resource in rule["resources"] for rule in rules)


def test_notes_say_what_to_do_next(release):
    said = release.install(
        CHART, "--dry-run=server", "--set", "admissionController.replicas=1"
    ).stdout
    notes = said.partition("NOTES:")[2]
    assert f"as {release.name} in namespace {release.namespace}" in notes
    assert "Warning: there is one webhook server" in notes
