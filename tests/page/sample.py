"""Reports, policies and exceptions as a company with a shop would have them; always the same."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
TEAMS = ("cart", "checkout", "search", "login", "payments", "mail", "images", "reviews")
STAGES = ("prod", "staging", "dev")
KINDS = (
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "CronJob"),
    ("v1", "Pod"),
)
# Policy, rule, category, severity, share of failures, message.
RULES = (
    ("team-label", "autogen-has-team", "Ownership", "low", 0.08, "validation error: The label `team` must name the team that answers for this Pod. rule autogen-has-team failed at path /spec/template/metadata/labels/team/"),
    ("no-privileged-pods", "autogen-not-privileged", "Pod Security", "high", 0.03, "validation error: Privileged containers are not allowed. rule autogen-not-privileged failed at path /spec/template/spec/containers/0/securityContext/privileged/"),
    ("known-registries", "only-ours", "Supply Chain", "medium", 0.05, "Images come from registry.example.com only; found docker.io/library/redis:7"),
    ("requests-and-limits", "memory", "Reliability", "medium", 0.12, "validation error: Memory limits are missing. rule memory failed at path /spec/template/spec/containers/0/resources/limits/"),
    ("no-latest-tag", "tag", "Supply Chain", "low", 0.04, "The image tag `latest` says nothing about what runs."),
    ("probes", "readiness", "Reliability", "low", 0.1, "A readiness probe is missing, so traffic comes before the container is ready."),
    ("read-only-root", "root-file-system", "Pod Security", "medium", 0.15, "The root file system must be read-only."),
    ("drop-capabilities", "drop-all", "Pod Security", "critical", 0.01, "Containers must drop ALL capabilities."),
)  # fmt: skip


def list_policy_documents() -> Iterator[dict]:
    for path in sorted((EXAMPLES / "policies").glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())
    for path in sorted((EXAMPLES / "exceptions").glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())
    for team in TEAMS:
        for stage in STAGES:
            labels = {"team": team, "stage": stage}
            yield {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": f"{team}-{stage}", "labels": labels},
            }


def list_reports(chance: random.Random, now: int) -> Iterator[dict]:
    for team in TEAMS:
        for stage in STAGES:
            for number in range(chance.randint(2, 7)):
                yield build_report(chance, now, f"{team}-{stage}", f"{team}-{number}")
    yield build_scan(now)


def build_report(chance: random.Random, now: int, namespace: str, name: str) -> dict:
    api_version, kind = KINDS[chance.randrange(len(KINDS))]
    worse = 2.5 if namespace.endswith("dev") else 1.0 if namespace.endswith("staging") else 0.6
    uid = f"{chance.getrandbits(128):032x}"
    results = [build_entry(chance, now, rule, kind, worse) for rule in RULES]
    return {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "metadata": {"name": uid, "namespace": namespace},
        "scope": {
            "apiVersion": api_version, "kind": kind, "name": name, "namespace": namespace, "uid": uid,
        },
        "results": results,
    }  # fmt: skip


def build_entry(chance: random.Random, now: int, rule: tuple, kind: str, worse: float) -> dict:
    policy, name, category, severity, share, message = rule
    failed = chance.random() < share * worse
    odd = chance.random()
    status = "fail" if failed else "skip" if odd < 0.02 else "error" if odd > 0.995 else "pass"
    text = {"fail": message, "skip": "rule is skipped due to policy exception debug"}
    return {
        "policy": policy,
        "rule": name if kind != "Pod" else name.removeprefix("autogen-"),
        "source": "kyverno",
        "category": category,
        "severity": severity,
        "result": status,
        "message": text.get(status, "rule passed" if status == "pass" else "failed to load context: the API server did not answer"),
        "properties": {"process": "background scan"},
        "timestamp": {"seconds": now - chance.randint(60, 9 * 86400), "nanos": 0},
    }  # fmt: skip


def build_scan(now: int) -> dict:
    """A report of another tool, on what is in no namespace."""
    entries = [
        ("CVE-2024-3094", "critical", "fail", "xz-utils 5.6.1 holds a backdoor; fixed in 5.6.1+really5.4.5"),
        ("CVE-2023-4911", "high", "fail", "glibc 2.36 lets local users become root"),
        ("CVE-2023-0001", "low", "warn", "tzdata is old"),
    ]  # fmt: skip
    return {
        "apiVersion": "openreports.io/v1alpha1",
        "kind": "ClusterReport",
        "metadata": {"name": "node-images"},
        "scope": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        "results": [
            {
                "policy": policy, "rule": "image", "source": "trivy", "category": "Vulnerability", "severity": severity,
                "result": status, "message": text, "properties": {"resolution": "Update the image of the node."},
                "timestamp": {"seconds": now - 3600, "nanos": 0},
            }
            for policy, severity, status, text in entries
        ],
    }  # fmt: skip


HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>\u202e\"'"


def build_hostile_report() -> dict:
    entry = dict.fromkeys(("policy", "rule", "message", "category", "source"), HOSTILE)
    return {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "metadata": {"name": "hostile", "namespace": "shop"},
        "scope": {"apiVersion": "v1", "kind": "Pod", "name": HOSTILE, "namespace": "shop"},
        "results": [
            {**entry, "result": "fail", "severity": "high", "properties": {HOSTILE: HOSTILE}},
            {**entry, "result": "warn", "message": "javascript:window.hacked=3"},
        ],
    }


def list_many_reports(most: int) -> Iterator[dict]:
    """Reports with so many results in all, in 500 namespaces."""
    chance = random.Random(11)
    now = int(time.time())
    for number in range(most // len(RULES)):
        yield build_report(chance, now, f"team-{number % 500:03}", f"app-{number}")
