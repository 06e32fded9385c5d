"""ImageValidatingPolicy in a cluster: digests are written, signatures verified, outcomes reported."""

import json
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest
from control_plane.install import install_lictor
from load import until

_UNIT = Path(__file__).parents[1] / "unit"
sys.path[:0] = [str(_UNIT / "core" / "signatures"), str(_UNIT / "images")]
from registry_server import RegistryServer  # noqa: E402
from signing import (  # noqa: E402
    MemoryRegistries,
    make_key,
    make_payload,
    make_signature,
    pem_of,
    push_image,
    push_layers,
)

PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["pods"],
}
OUTCOMES = "kyverno.io/image-verification-outcomes"


class Site:
    """A cluster with lictor, a registry with one signed image and one that is not, and a policy."""

    def __init__(self, plane, server, name):
        self.plane, self.registry, self.installation = plane, name, None
        self.signed, self.unsigned = f"{name}/app:v1", f"{name}/other:v1"
        self.key = make_key()
        registry = MemoryRegistries()
        image = push_image(registry, f"{name}/app")
        unsigned = push_image(registry, f"{name}/other", "two")
        push_layers(registry, image, [make_signature(self.key, make_payload(image))])
        self.digest, self.unsigned_digest = image.digest, unsigned.digest
        _fill(server, registry)

    def kubectl(self, *words, stdin="", check=True):
        return self.plane.kubectl(*words, stdin=stdin, check=check)

    def apply(self, body):
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def create_pod(self, name, image, **metadata):
        """The Pod, or what was said against it."""
        container = {"name": "main", "image": image}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {"containers": [container]},
        }
        done = self.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(body), check=False)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    def is_ready(self):
        found = json.loads(self.kubectl("get", "ivpol", "signed", "-o", "json").stdout)
        return found.get("status", {}).get("conditionStatus", {}).get("ready") is True

    def policy(self, **spec):
        log = {"insecureIgnoreTlog": True, "insecureIgnoreSCT": True}
        attestor = {"name": "team", "cosign": {"key": {"data": pem_of(self.key)}, "ctlog": log}}
        text = "images.containers.all(i, verifyImageSignatures(i, [attestors.team]) > 0)"
        return {
            "apiVersion": "policies.kyverno.io/v1beta1",
            "kind": "ImageValidatingPolicy",
            "metadata": {"name": "signed"},
            "spec": {
                "matchConstraints": {"resourceRules": [PODS]},
                "matchImageReferences": [{"glob": f"{self.registry}/*"}],
                "credentials": {"allowInsecureRegistry": True},
                "attestors": [attestor],
                "validations": [{"expression": text, "message": "sign it"}],
                **spec,
            },
        }


def _fill(server, registry):
    for (repository, name), manifest in registry.manifests.items():
        path = repository.partition("/")[2]
        server.contents[f"/v2/{path}/manifests/{name}"] = manifest.content
    for (repository, digest), content in registry.blobs.items():
        path = repository.partition("/")[2]
        server.contents[f"/v2/{path}/blobs/{digest}"] = content


@pytest.fixture(scope="module")
def site(open_cluster):
    with open_cluster() as plane:
        # Where the cluster has a network of its own, the test is its neighbour.
        host = str(ip_address(plane.address) - 1) if plane.routes_services else "127.0.0.1"
        with RegistryServer(host) as server:
            made = Site(plane, server, f"{host}:{server.port}")
            made.installation = install_lictor(plane)
            made.create_pod("old-tag", made.signed)
            made.create_pod("old", f"{made.unsigned}@{made.unsigned_digest}")
            made.create_pod("old-signed", f"{made.signed}@{made.digest}")
            made.apply(made.policy())
            until(made.is_ready, "the policy is ready")
            yield made


def test_a_signed_image_runs_by_its_digest(site):
    pod = site.create_pod("good", site.signed)
    assert pod["spec"]["containers"][0]["image"] == f"{site.signed}@{site.digest}"


def test_an_unsigned_image_is_refused(site):
    assert "Policy signed failed: sign it" in site.create_pod("bad", site.unsigned)


def test_an_annotation_of_a_user_is_not_believed(site):
    outcome = {"name": "signed", "ruleType": "ImageVerify", "status": "pass"}
    forged = {OUTCOMES: json.dumps({"signed": outcome})}
    assert "sign it" in site.create_pod("forged", site.unsigned, annotations=forged)


def test_an_image_that_does_not_exist_is_denied(site):
    missing = site.signed.replace("app:", "missing:")
    assert f"image {missing} does not have a digest" in site.create_pod("missing", missing)


def test_other_images_are_left_alone(site):
    pod = site.create_pod("elsewhere", "registry.example/app:v1")
    assert pod["spec"]["containers"][0]["image"] == "registry.example/app:v1"


def _read_reports(site):
    listed = json.loads(site.kubectl("get", "polr", "-n", "default", "-o", "json").stdout)
    return {
        report["scope"]["name"]: result
        for report in listed["items"]
        for result in report.get("results") or ()
        if result["policy"] == "signed"
    }


def test_existing_pods_are_reported(site):
    site.installation.start_controller("reports-controller")
    old = {"old", "old-tag", "old-signed"}
    until(lambda: old <= _read_reports(site).keys(), "all are reported")
    found = _read_reports(site)
    # No mutation has written its digest.
    assert found["old-tag"]["message"] == f"image {site.signed} does not have a digest"
    assert found["old-signed"]["result"] == "pass"
    assert (found["old"]["result"], found["old"]["message"]) == ("fail", "sign it")
    assert found["old"]["source"] == "KyvernoImageValidatingPolicy"
    # The author's words do not say why: the properties do.
    assert any(name.startswith("verify ") for name in found["old"]["properties"])
