"""verifyImages in a cluster: both webhooks, digests and annotations, updates, bad policies, scans."""

import json
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest
from control_plane.install import install_lictor
from load import until
from test_image_validating import Site

_UNIT = Path(__file__).parents[1] / "unit"
sys.path[:0] = [str(_UNIT / "core" / "signatures"), str(_UNIT / "images")]
from registry_server import RegistryServer  # noqa: E402
from signing import pem_of  # noqa: E402

ANNOTATION = "kyverno.io/verify-images"


class RuleSite(Site):
    """The same cluster and images, with a rule instead of expressions."""

    def __init__(self, plane, server, name):
        super().__init__(plane, server, name)
        self.server = server

    def is_ready(self):
        found = json.loads(self.kubectl("get", "cpol", "signed", "-o", "json").stdout)
        conditions = found.get("status", {}).get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def policy(self, **block):
        keys = {"publicKeys": pem_of(self.key), "rekor": {"url": "http://r", "ignoreTlog": True}}
        verification = {
            "imageReferences": [f"{self.registry}/*"],
            "failureAction": "Enforce",
            "imageRegistryCredentials": {"allowInsecureRegistry": True},
            "attestors": [{"entries": [{"keys": keys}]}],
            **block,
        }
        rule = {
            "name": "signed",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "verifyImages": [verification],
        }
        return {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "signed"},
            "spec": {"rules": [rule]},
        }

    def set_image(self, pod, image):
        patch = json.dumps([{"op": "replace", "path": "/spec/containers/0/image", "value": image}])
        return self.kubectl("patch", "pod", pod, "--type=json", "-p", patch, check=False).stderr


@pytest.fixture(scope="module")
def site(open_cluster):
    with open_cluster() as plane:
        # Where the cluster has a network of its own, the test is its neighbour.
        host = str(ip_address(plane.address) - 1) if plane.routes_services else "127.0.0.1"
        with RegistryServer(host) as server:
            made = RuleSite(plane, server, f"{host}:{server.port}")
            made.installation = install_lictor(plane)
            made.create_pod("old", made.unsigned)
            made.apply(made.policy())
            until(made.is_ready, "the policy is ready")
            yield made


def test_a_signed_image_runs_by_its_digest(site):
    pod = site.create_pod("good", site.signed)
    assert pod["spec"]["containers"][0]["image"] == f"{site.signed}@{site.digest}"
    repository = site.signed.rpartition(":")[0]
    told = json.loads(pod["metadata"]["annotations"][ANNOTATION])
    assert told == {f"{repository}@{site.digest}": "pass"}


def test_an_unsigned_image_is_refused(site):
    assert "failed to verify image" in " ".join(site.create_pod("bad", site.unsigned).split())


def test_an_annotation_of_a_user_is_not_believed(site):
    forged = {ANNOTATION: json.dumps({site.unsigned: "pass"})}
    assert "signed" in site.create_pod("forged", site.unsigned, annotations=forged)


def test_an_annotation_is_no_way_around_on_update(site):
    forged = {ANNOTATION: json.dumps({site.unsigned: "pass"})}
    pod = site.create_pod("changing", site.signed, annotations=forged)
    assert site.unsigned not in pod["metadata"]["annotations"][ANNOTATION]
    assert "failed to verify image" in " ".join(site.set_image("changing", site.unsigned).split())
    site.kubectl("label", "pod", "changing", "team=blue")


def test_other_images_are_left_alone(site):
    asked = len(site.server.asked)
    pod = site.create_pod("elsewhere", "registry.example/app:v1")
    assert pod["spec"]["containers"][0]["image"] == "registry.example/app:v1"
    assert len(site.server.asked) == asked


def test_a_deployment_gets_digests_too(site):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": site.signed}]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }
    done = site.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(body))
    container = json.loads(done.stdout)["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"{site.signed}@{site.digest}"


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"attestors": [{"entries": [{}]}]}, "expected exactly one of"),
        ({"failureAction": "Audit"}, "mutateDigest"),
        ({"imageReferences": []}, "imageReferences are missing"),
    ],
)
def test_rules_that_could_not_verify_anything_are_refused(site, block, words):
    policy = site.policy(**block)
    policy["metadata"]["name"] = "useless"
    done = site.kubectl("create", "-f", "-", stdin=json.dumps(policy), check=False)
    assert done.returncode != 0
    assert words in done.stderr


def test_what_is_there_already_is_reported(site):
    site.installation.start_controller("reports-controller")

    def read_results():
        listed = json.loads(site.kubectl("get", "polr", "-n", "default", "-o", "json").stdout)
        return {
            result["result"]
            for report in listed["items"]
            if report["scope"]["name"] == "old"
            for result in report.get("results") or ()
            if result["policy"] == "signed"
        }

    until(lambda: "fail" in read_results(), "the unsigned image is reported")
