"""Guides that were written for Kyverno, word for word, on the embedded cluster.

The guides lie beside the project, in ../shared/seeds. Their commands run as they stand there, with
`kyverno` being lictor; their policies are applied as they stand there, once their indentation is
back. What cannot run is in the table below, and in docs/explanation/differences.md with the reason.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from background_site import Site, until
from control_plane.choice import choose_kinds
from control_plane.embedded import EmbeddedCluster
from control_plane.install import install_lictor
from guides.reading import find_block, read_blocks, read_commands, read_fenced
from guides.restoring import restore
from guides.shell import Guide, build_pod, build_policy, open_shell

ROOT = Path(__file__).parents[2]
SEEDS = ROOT.parent / "shared" / "seeds"
PAGE = ROOT / "docs" / "explanation" / "differences.md"
FILES = sorted(SEEDS.glob("*.txt")) if SEEDS.is_dir() else []
COMMANDS = list(dict.fromkeys(command for path in FILES for command in read_commands(path)))
BLOCKS = [block for path in FILES[-1:] for block in read_blocks(path)]
pytestmark = [
    pytest.mark.skipif(not FILES, reason=f"no guides in {SEEDS}"),
    pytest.mark.skipif("embedded" not in choose_kinds(), reason="the guides run on embedded"),
]

# How commands begin that cannot run, as the page says. Whatever is not here must run.
CANNOT = (
    "curl ",
    "tar ",
    "sudo ",
    "helm repo ",
    "helm install argocd",
    "helm install cilium",
    "kubectl get pod signed",
)
# What replaces a chart. The words are those of docs/explanation/differences.md.
INSTALL = ("install", "--namespace", "kyverno", "--prefix", "kyverno", "--apply")
CHARTS = {
    "helm install kyverno kyverno/kyverno --namespace kyverno --create-namespace": ((), 6),
    "helm install kyverno kyverno/kyverno -n kyverno --create-namespace --set=replicaCount=3": (
        ("--replicas=3", "--controller-replicas=3"),
        12,
    ),
    "helm install kyverno kyverno/kyverno --namespace kyverno --create-namespace "
    "--version 3.2.6 --set admissionController.replicas=3 --set backgroundController.replicas=2": (
        ("--replicas=3", "--controller-replicas=2"),
        9,
    ),
}
# Blocks that need signatures of images, and the pipeline of a code forge.
LATER = ("verifyImages:", "- keys:", "jobs:", "run: kyverno test .")

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "registry.internal/web:1.0"}]},
        },
    },
}
AUDITED = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: owner-label}
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [Pod, Namespace]}}]}
    validate: {message: name an owner, pattern: {metadata: {labels: {owner: "?*"}}}}
"""


def find(*words: str) -> Any:
    return restore(find_block(BLOCKS, *words))


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guide]:
    """Lictor in the place of Kyverno, with all policies of the guide."""
    with EmbeddedCluster(loopback=True) as plane:
        installation = install_lictor(plane, prefix="kyverno", namespace="kyverno")
        for component in ("background-controller", "reports-controller"):
            installation.start_controller(component)
        made = open_shell(Site(plane, installation), tmp_path_factory.mktemp("guide"))
        _prepare(made)
        yield made
        installation.stop()


def _prepare(guide: Guide) -> None:
    limits = find("name: require-resource-limits")
    guide.write("policies/require-limits.yaml", limits)
    guide.write("manifests/deployment.yaml", DEPLOYMENT)
    guide.write("kyverno-test.yaml", find("kind: Test"))
    for name in ("payments", "platform"):
        guide.site.make_namespace(name)
    guide.site.kubectl("annotate", "namespace", "payments", "acme.io/cost-center=cc-7")
    rule = find("context:", "- name: default-cost-center-from-ns")[0]
    for policy in (
        find("kind: ClusterRole"),
        limits,
        find("name: default-security-context"),
        find("name: default-deny-netpol"),
        build_policy("cost-center", rule),
        yaml.safe_load(AUDITED),
    ):
        done = guide.create(policy)
        assert done.returncode == 0, done.stderr
        if policy["kind"] == "ClusterPolicy":
            until(lambda policy=policy: guide.site.is_ready(policy), policy["metadata"]["name"])
    for namespace in ("default", "payments"):
        _create_when_mutated(guide, build_pod("good", namespace))


def _create_when_mutated(guide: Guide, pod: Any) -> None:
    """The API server needs a moment to hear of its webhooks."""
    dry = ("create", "--dry-run=server", "-o", "json", "-f", "-")

    def is_mutated() -> bool:
        shown = guide.site.plane.kubectl(*dry, stdin=json.dumps(pod), check=False)
        return "cost-center" in shown.stdout

    until(is_mutated, "mutation")
    assert guide.create(pod).returncode == 0


# --- the commands


def _has_rows(*names: str) -> Callable[[str], None]:
    def check(shown: str) -> None:
        for name in names:
            assert re.search(rf"\b{re.escape(name)}\b", shown), shown

    return check


def _has_ready_policies(shown: str) -> None:
    header, *rows = shown.splitlines()
    column = header.split().index("READY")
    assert len(rows) == 5
    assert {row.split()[column] for row in rows} == {"True"}


def _is_blocked(shown: str) -> None:
    assert 'admission webhook "validate.kyverno.svc-fail" denied the request' in shown
    assert "CPU and memory limits are required" in shown


def _fails_limits(shown: str) -> None:
    assert "policy require-resource-limits -> resource default/Deployment/web failed" in shown
    assert "pass: 0, fail: 1, warn: 0, error: 0, skip: 0" in shown


# Exit code, and what must be seen. The rest of a pipe behind yq is left out where yq is another one.
EXPECTED: dict[str, tuple[int, Callable[[str], None]]] = {
    "kubectl create namespace argocd": (0, _has_rows("namespace/argocd created")),
    "kubectl get policyreport -A": (0, _has_rows("default", "payments", "good")),
    "kubectl get polr -n kube-system -o wide": (0, _has_rows("KIND", "PASS", "kube-scheduler")),
    "kubectl get clusterpolicyreport": (0, _has_rows("Namespace", "payments")),
    "kubectl get crd | grep kyverno.io": (0, _has_rows("clusterpolicies.kyverno.io")),
    "kyverno apply policies/require-limits.yaml --resource manifests/deployment.yaml": (
        1,
        _fails_limits,
    ),
    "kyverno apply policies/ --resource manifests/ --warn-exit-code 0": (1, _fails_limits),
    "kubectl get clusterpolicy": (0, _has_ready_policies),
    "kubectl run bad --image=registry.internal/web:latest --dry-run=server": (1, _is_blocked),
    "kubectl create namespace probe": (0, _has_rows("namespace/probe created")),
}
# Commands that have a test of their own below.
ELSEWHERE = (
    "kubectl -n kyverno get pods",
    "kubectl get polr 1d491ec4-ca84-4b3a-960a-a2aefa3219ba",
    "kubectl get policyreport -n payments -o yaml | yq",
    "kyverno test .",
    "kubectl get pod good -o jsonpath=",
    "kubectl get networkpolicy -n probe default-deny",
)


def test_every_command_runs_or_the_page_says_why_not() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for command in COMMANDS:
        known = (*CANNOT, *CHARTS, *EXPECTED, *ELSEWHERE)
        assert command.startswith(known), f"nobody runs: {command}"
    for begin in CANNOT:
        assert f"`{begin.strip()}" in page, f"{PAGE.name} does not say why not: {begin}"


def test_every_manifest_is_used_or_the_page_says_why_not() -> None:
    used = [block for block in BLOCKS if not any(line in LATER for line in block)]
    assert len(used) == 12
    assert len(BLOCKS) - len(used) == 5


@pytest.mark.parametrize("command", [each for each in COMMANDS if each in EXPECTED])
def test_a_command_of_a_guide(guide: Guide, command: str) -> None:
    code, check = EXPECTED[command]
    if command == "kubectl get polr -n kube-system -o wide":
        guide.create(build_pod("kube-scheduler", "kube-system"))
    if "report" in command or "polr" in command:
        until(lambda: _shows(guide, command, check), command, 60)
        return
    done = guide.type(command)
    assert done.returncode == code, done.stdout + done.stderr
    check(done.stdout + done.stderr)


def _shows(guide: Guide, command: str, check: Callable[[str], None]) -> bool:
    """Reports come a moment after what they report."""
    try:
        check(guide.type(command).stdout)
    except AssertionError:
        return False
    return True


# --- commands with more to them


def test_failures_of_one_report(guide: Guide) -> None:
    [command] = [each for each in COMMANDS if "kubectl get polr 1d491ec4" in each]
    words = "kubectl get polr -n payments -o jsonpath='{.items[0].metadata.name}'"
    until(lambda: guide.type(words).stdout, "a report")
    # The guide shows a report of its own cluster; the name of one's own takes its place.
    command = re.sub(r"polr \S+", f"polr -n payments {guide.type(words).stdout}", command)
    shown = _type_without_yq(guide, command)
    assert [(each["rule"], each["result"]) for each in shown] == [("owner", "fail")]
    assert shown[0]["message"].startswith("validation error: name an owner")
    assert shown[0]["source"] == "kyverno"
    assert set(shown[0]["timestamp"]) == {"nanos", "seconds"}


def _type_without_yq(guide: Guide, command: str) -> list[Any]:
    """What reaches yq, as the programs of that name differ; theirs runs too where it is the one."""
    before, _, after = command.partition(" | yq")
    done = guide.type(before)
    assert done.returncode == 0, done.stderr
    if "mikefarah" in guide.type("yq --version").stdout:
        assert guide.type(f"{before} | yq{after}").returncode == 0
    return list(yaml.safe_load_all(done.stdout))


def test_reports_of_a_namespace_as_yaml(guide: Guide) -> None:
    [command] = [each for each in COMMANDS if "policyreport -n payments -o yaml" in each]
    until(lambda: "good" in guide.type("kubectl get polr -n payments").stdout, "a report")
    [shown] = _type_without_yq(guide, command)
    [report] = shown["items"]
    fenced = next(text for path in FILES for text in read_fenced(path) if "PolicyReport" in text)
    example = yaml.safe_load(fenced)
    assert report["apiVersion"] == example["apiVersion"]
    assert report["metadata"]["labels"] == example["metadata"]["labels"]
    assert report["metadata"]["name"] == report["scope"]["uid"]
    assert set(report["scope"]) == set(example["scope"])
    assert report["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert set(report["summary"]) == set(example["summary"])


def test_the_test_file_of_the_guide(guide: Guide) -> None:
    assert "kyverno test ." in COMMANDS
    refused = guide.type("kyverno test .")
    assert refused.returncode == 1
    assert "fix test" in refused.stdout + refused.stderr
    fixed = guide.type("kyverno fix test . --save")
    assert fixed.returncode == 0, fixed.stderr
    done = guide.type("kyverno test .")
    assert done.returncode == 0, done.stdout
    assert "1 tests passed and 0 tests failed" in done.stdout


def test_a_default_for_pods(guide: Guide) -> None:
    """API servers fill in an empty securityContext, so that nothing is left to add, as in Kyverno."""
    [command] = [each for each in COMMANDS if "kubectl get pod good" in each]
    assert guide.type(command).stdout == ""
    policy = find("name: default-security-context")
    patch = policy["spec"]["rules"][0]["mutate"]["patchStrategicMerge"]["spec"]
    patch["securityContext"] = patch.pop("+(securityContext)")
    guide.site.apply(policy)
    until(lambda: guide.site.is_ready(policy), "the policy")
    pod = build_pod("better")

    def is_mutated() -> bool:
        guide.create(pod)
        shown = guide.type(command.replace("good", "better")).stdout
        guide.site.kubectl("delete", "pod", "better", "--ignore-not-found")
        return shown == "true"

    until(is_mutated, "the default")


def test_a_network_policy_for_each_namespace(guide: Guide) -> None:
    command = "kubectl get networkpolicy -n probe default-deny"
    assert command in COMMANDS
    guide.type("kubectl create namespace probe")
    until(lambda: guide.type(command).returncode == 0, "the network policy")
    guide.type("kubectl delete networkpolicy -n probe default-deny")
    until(lambda: guide.type(command).returncode == 0, "the network policy is back")
    found = guide.site.find("networkpolicy", "default-deny", "probe")
    assert found["spec"]["policyTypes"] == ["Ingress", "Egress"]


# --- parts of policies that a guide shows alone


def test_a_secret_is_cloned_once_the_right_is_there(guide: Guide) -> None:
    every = {"match": {"any": [{"resources": {"kinds": ["Namespace"]}}]}}
    policy = build_policy("clone-regcred", {**every, **find("clone:")})
    guide.site.kubectl("create", "secret", "generic", "regcred", "-n", "platform")
    refused = guide.create(policy)
    assert "kyverno-background-controller requires permissions" in refused.stderr
    role = find("kind: ClusterRole")
    role["metadata"]["name"] = "kyverno:generate-secrets"
    role["rules"] = [{**role["rules"][0], "apiGroups": [""], "resources": ["secrets"]}]
    assert guide.create(role).returncode == 0
    until(lambda: guide.create(policy).returncode == 0, "the right")
    until(lambda: guide.site.is_ready(policy), "the policy")
    guide.site.make_namespace("cloned")
    until(lambda: guide.site.find("secret", "regcred", "cloned"), "the clone")
    guide.site.kubectl("delete", "clusterpolicy", "clone-regcred")


def build_scoped(*words: str) -> Any:
    """A rule's `match` and `exclude` of the guide, around a check that nothing passes."""
    part = find(*words)
    rule = part["spec"]["rules"][0] if "spec" in part else part
    never = {"message": "never", "deny": {}}
    return build_policy("scoped", {**rule, "validate": never}, validationFailureAction="Enforce")


def build_enforced(name: str, *words: str) -> Any:
    return build_policy(name, find(*words), validationFailureAction="Enforce")


WRITABLE = {"securityContext": {"privileged": False}}
PRIVILEGED = {"securityContext": {"privileged": True, "readOnlyRootFilesystem": True}}
DIGEST = f"sha256:{'a' * 64}"
PARTS: list[tuple[str, Callable[[], Any], list[tuple[Any, str]]]] = [
    (
        "readOnlyRootFilesystem",
        lambda: build_enforced("read-only", "readOnlyRootFilesystem: true"),
        [
            (build_pod("a"), ""),
            (build_pod("a", **WRITABLE), "must set readOnlyRootFilesystem"),
            (build_pod("a", **PRIVILEGED), "must set readOnlyRootFilesystem"),
        ],
    ),
    (
        "latest",
        lambda: build_enforced("no-latest", '- "latest"'),
        [
            (build_pod("a"), ""),
            (build_pod("a", image="registry.internal/web:latest"), "or untagged image is not"),
            (build_pod("a", image="registry.internal/web"), "or untagged image is not"),
            (build_pod("a", image=f"registry.internal/web@{DIGEST}"), "or untagged image is not"),
        ],
    ),
    (
        "namespaceSelector",
        lambda: build_scoped("namespaceSelector:"),
        [(build_pod("a"), ""), (build_pod("a", "enforced"), "never")],
    ),
    (
        "exclude",
        lambda: build_scoped("exclude:"),
        [(build_pod("a", "kube-system"), ""), (build_pod("a"), "never")],
    ),
]


@pytest.mark.parametrize(
    ("build", "pods"), [part[1:] for part in PARTS], ids=[part[0] for part in PARTS]
)
def test_a_part_of_a_policy(guide: Guide, build: Any, pods: list[tuple[Any, str]]) -> None:
    guide.site.make_namespace("enforced")
    guide.site.kubectl("label", "namespace", "enforced", "kyverno.io/enforce=true", "--overwrite")
    policy = build()
    assert guide.create(policy).returncode == 0
    until(lambda: guide.site.is_ready(policy), "the policy")
    try:
        for pod, said in pods:
            until(lambda pod=pod, said=said: _answers(guide, pod, said), f"{pod}: {said}", 10)
    finally:
        guide.site.kubectl("delete", "clusterpolicy", policy["metadata"]["name"])


def _answers(guide: Guide, pod: Any, said: str) -> bool:
    words = ("create", "--dry-run=server", "-f", "-")
    done = guide.site.plane.kubectl(*words, stdin=json.dumps(pod), check=False)
    return said in done.stderr if said else done.returncode == 0


def test_a_sidecar_is_added_once_where_the_rule_asks_for_it(guide: Guide) -> None:
    """API servers call webhooks again after what they add; a plain patch would add it twice."""
    policy = build_policy("sidecar", find("patchesJson6902: |-"))
    assert guide.create(policy).returncode == 0
    pod = build_pod("a")
    until(lambda: _answers(guide, pod, "Duplicate value: "), "the second call")
    asked = {"key": "logging-sidecar", "operator": "AnyNotIn"}
    names = "{{ request.object.spec.containers[].name }}"
    policy["spec"]["rules"][0]["preconditions"] = {"all": [{**asked, "value": names}]}
    guide.site.apply(policy)
    until(lambda: _answers(guide, pod, ""), "the sidecar")
    shown = guide.site.plane.kubectl(
        *("create", "--dry-run=server", "-o", "json", "-f", "-"), stdin=json.dumps(pod)
    )
    containers = json.loads(shown.stdout)["spec"]["containers"]
    assert [each["name"] for each in containers] == ["web", "logging-sidecar"]
    guide.site.kubectl("delete", "clusterpolicy", "sidecar")


def test_anchors_that_skip_a_part(guide: Guide) -> None:
    """The guide says that this passes: one part is skipped, the other holds."""
    texts = [text for path in FILES for text in read_fenced(path)]
    pattern, pod = (
        yaml.safe_load(next(text for text in texts if word in text))
        for word in ("!istio-init", "- name: istio-init")
    )
    guide.write("anchors.yaml", build_policy("anchors", {"validate": {"pattern": pattern}}))
    guide.write("pod.yaml", {**build_pod("a"), **pod})
    done = guide.type("kyverno apply anchors.yaml --resource pod.yaml")
    assert "pass: 1, fail: 0, warn: 0, error: 0, skip: 0" in done.stdout


# --- the charts


def test_what_stands_for_the_charts() -> None:
    with EmbeddedCluster(loopback=True) as plane:
        for command, (words, pods) in CHARTS.items():
            assert command in COMMANDS
            line = [sys.executable, "-m", "lictor", *INSTALL, *words]
            line += ["--kubeconfig", str(plane.kubeconfig)]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            until(lambda pods=pods: _count_pods(plane) == pods, f"{pods} pods: {command}")


def _count_pods(plane: EmbeddedCluster) -> int:
    """As the guide asks: kubectl -n kyverno get pods."""
    shown = plane.kubectl("-n", "kyverno", "get", "pods", "--no-headers").stdout
    return len(shown.splitlines())


def test_flags_that_the_guides_name() -> None:
    texts = "\n".join(path.read_text() for path in FILES)
    flags = re.findall(
        r"`--(enableReporting=\S+?|validatingAdmissionPolicyReports|genWorkers)`", texts
    )
    assert len(set(flags)) == 3
    values = {"validatingAdmissionPolicyReports": "=true", "genWorkers": "=20"}
    words = [f"--flag={flag}{values.get(flag, '')}" for flag in flags]
    line = [sys.executable, "-m", "lictor", "install", "--skip-crds", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for flag in flags:
        assert f"--{flag}" in done.stdout
