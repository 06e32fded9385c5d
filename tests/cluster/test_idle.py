"""An idle cluster stays as it is: no policy causes objects that cause more of them."""

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx2
import pytest
import yaml
from shared_cases import SHARED

from lictor.kubernetes.connection import build_ssl_context
from lictor.kubernetes.kubeconfig import load_config

PATIENCE = 300.0
# Renewed all the time by every controller that elects a leader.
EXPECTED = {"Lease"}
LIBRARY = SHARED / "conformance" / "policy-library"

RECORD = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "record-creation"},
    "spec": {
        "background": False,
        "rules": [
            {
                "name": "add-user",
                "match": {"any": [{"resources": {"kinds": ["*"]}}]},
                "mutate": {
                    "patchStrategicMerge": {
                        "metadata": {
                            "annotations": {"made-by": "{{ request.userInfo | to_string(@) }}"}
                        }
                    }
                },
            },
            {
                "name": "has-owner",
                "match": {"any": [{"resources": {"kinds": ["*"]}}]},
                "validate": {"pattern": {"metadata": {"labels": {"owner": "?*"}}}},
            },
        ],
    },
}
EVERYTHING = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*"],
    "operations": ["CREATE", "UPDATE"],
}
CONFIG_MAP = (
    '[{"kind": dyn("ConfigMap"), "apiVersion": dyn("v1"),'
    ' "metadata": dyn({"name": object.metadata.name + "-x", "namespace": "default"})}]'
)
CEL_GENERATE = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "GeneratingPolicy",
    "metadata": {"name": "shadow"},
    "spec": {
        "matchConstraints": {"resourceRules": [{**EVERYTHING, "apiGroups": [""]}]},
        "generate": [{"expression": f'generator.Apply("default", {CONFIG_MAP})'}],
    },
}
CEL_AUDIT = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "ValidatingPolicy",
    "metadata": {"name": "owner"},
    "spec": {
        "evaluation": {"background": {"enabled": False}},
        "validationActions": ["Audit"],
        "matchConstraints": {"resourceRules": [EVERYTHING]},
        "validations": [{"expression": "has(object.metadata.labels)"}],
    },
}
CEL_MUTATE = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "MutatingPolicy",
    "metadata": {"name": "count"},
    "spec": {
        "evaluation": {"mutateExisting": {"enabled": True}},
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "resourceRules": [{**EVERYTHING, "apiGroups": [""], "resources": ["configmaps"]}],
        },
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": "Object{metadata: Object.metadata{annotations: "
                    "Object.metadata.annotations{seen: string(time.now())}}}"
                },
            }
        ],
    },
}
GENERATE = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "copies"},
    "spec": {
        "rules": [
            {
                "name": "copy",
                "match": {
                    "any": [{"resources": {"kinds": ["Config*"], "namespaces": ["default"]}}]
                },
                "generate": {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": "{{ request.object.metadata.name }}-y",
                    "namespace": "default",
                    "synchronize": True,
                    "data": {"data": {"a": "b"}},
                },
            }
        ]
    },
}


@contextmanager
def run_cluster(folder, policies, *more):
    kubeconfig = folder / "kubeconfig"
    words = [f"--kubeconfig={kubeconfig}", "--port=0", f"--policies={policies}", *more]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "lictor", "up", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert "in force" in process.stdout.readline(), (folder / "errors").read_text()
            config = load_config(str(kubeconfig))
            context = build_ssl_context(config)
            with httpx2.Client(
                base_url=config.server, verify=context, timeout=60, trust_env=False
            ) as client:
                yield client
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def read_versions(client):
    """The resourceVersion of every object."""
    paths = ["/api/v1"]
    for group in client.get("/apis").json()["groups"]:
        paths += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
    found = {}
    for path in paths:
        for resource in client.get(path).json()["resources"]:
            if "/" in resource["name"] or "list" not in resource["verbs"]:
                continue
            for item in client.get(f"{path}/{resource['name']}").json()["items"]:
                metadata = item["metadata"]
                key = (resource["kind"], metadata.get("namespace", ""), metadata["name"])
                found[key] = metadata["resourceVersion"]
    return found


def list_changes(before, after):
    """What was written or deleted in between."""
    keys = before.keys() | after.keys()
    changed = (key for key in keys if before.get(key) != after.get(key))
    return sorted(key for key in changed if key[0] not in EXPECTED)


def wait_until_quiet(client, seconds):
    """Wait until nothing was written for a while: policies are in force, every scan has finished."""
    deadline = time.monotonic() + PATIENCE
    before = read_versions(client)
    while True:
        time.sleep(seconds)
        after = read_versions(client)
        changes = list_changes(before, after)
        if not changes:
            return after
        assert time.monotonic() < deadline, f"still written: {changes[:20]}"
        before = after


def check_stays_idle(client, seconds):
    before = wait_until_quiet(client, min(seconds, 10.0))
    time.sleep(seconds)
    changes = list_changes(before, read_versions(client))
    assert not changes, changes


def test_rules_about_all_kinds_cause_no_loop(tmp_path):
    policies = tmp_path / "policies"
    policies.mkdir()
    for policy in (RECORD, GENERATE, CEL_GENERATE, CEL_AUDIT, CEL_MUTATE):
        (policies / f"{policy['metadata']['name']}.yaml").write_text(yaml.safe_dump(policy))
    with run_cluster(tmp_path, policies) as client:
        body = {"metadata": {"name": "trigger"}, "data": {"a": "b"}}
        answer = client.post("/api/v1/namespaces/default/configmaps", json=body)
        assert answer.status_code == 201, answer.text
        assert "made-by" in json.dumps(answer.json()["metadata"])
        check_stays_idle(client, 10.0)
        answer = client.get("/api/v1/namespaces/default/configmaps").json()
        names = {item["metadata"]["name"] for item in answer["items"]}
        # What a rule made is no trigger of the same rule.
        assert "trigger-y" in names
        assert not any(name.endswith("-y-y") for name in names), names


@pytest.mark.slow
@pytest.mark.skipif(not LIBRARY.is_dir(), reason="no public policies beside the project")
def test_the_public_library_leaves_an_idle_cluster_alone(tmp_path):
    with run_cluster(tmp_path, LIBRARY, "--grant-all") as client:
        check_stays_idle(client, 60.0)
