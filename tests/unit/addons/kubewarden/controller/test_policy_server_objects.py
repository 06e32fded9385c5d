"""What Kubernetes is told to run for a PolicyServer, and when its Pods count as ready."""

import asyncio
from base64 import b64decode
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from small_api import SmallApi

from lictor.addons.kubewarden.controller.certificates import ServerCertificates
from lictor.addons.kubewarden.controller.objects import (
    build_budget,
    build_config_map,
    build_deployment,
    build_service,
    can_be_written,
    find_version,
)
from lictor.addons.kubewarden.controller.rollout import Workloads
from lictor.addons.kubewarden.family.policy_server import AUTHORITY_SECRET, read_server
from lictor.addons.kubewarden.server.policies_file import load_policies_file
from lictor.http import keys
from lictor.kubernetes.resource import SECRET

START = datetime(2030, 1, 1, tzinfo=UTC)
APP = "kubewarden-policy-server-green"


def make_server(**spec):
    body = {"image": "ghcr.io/kubewarden/policy-server:v1.36.0", "replicas": 2, **spec}
    return read_server({"metadata": {"name": "green", "uid": "u1"}, "spec": body})


def test_objects_have_kubewardens_names_and_labels():
    server = make_server(labels={"team": "a"}, annotations={"note": "b"})
    config = build_config_map(server, "lictor", {"clusterwide-a": {"module": "registry://x"}})
    deployment = build_deployment(server, "lictor", "v1")
    service = build_service(server, "lictor")
    for made in (config, deployment, service):
        metadata = made["metadata"]
        assert metadata["name"] == "policy-server-green"
        assert metadata["namespace"] == "lictor"
        assert metadata["labels"]["kubewarden/policy-server"] == "green"
        assert metadata["labels"]["app.kubernetes.io/part-of"] == "kubewarden"
        assert metadata["ownerReferences"][0]["uid"] == "u1"
    assert orjson.loads(config["data"]["policies.yml"]) == {
        "clusterwide-a": {"module": "registry://x"}
    }
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["labels"]["kubewarden/config-version"] == "v1"
    assert deployment["metadata"]["annotations"] == {"note": "b", "kubewarden/config-version": "v1"}
    assert deployment["spec"]["selector"] == {"matchLabels": {"app": APP}}
    assert service["spec"]["selector"] == {"app": APP}
    assert [port["port"] for port in service["spec"]["ports"]] == [443, 8443]


def test_the_container_is_told_where_everything_is():
    server = make_server(
        verificationConfig="rules",
        sigstoreTrustConfig="trust",
        imagePullSecret="pull",
        insecureSources=["localhost:5000"],
        sourceAuthorities={"reg.example": ["PEM"]},
        webhookPort=9443,
        env=[{"name": "KUBEWARDEN_LOG_LEVEL", "value": "debug"}],
    )
    [container] = build_deployment(server, "lictor", "v1")["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["KUBEWARDEN_PORT"] == "9443"
    assert variables["KUBEWARDEN_POLICIES"] == "/config/policies.yml"
    assert variables["KUBEWARDEN_SOURCES_PATH"] == "/sources/sources.yml"
    assert variables["KUBEWARDEN_CONTINUE_ON_ERRORS"] == "true"
    assert variables["KUBEWARDEN_LOG_LEVEL"] == "debug"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {each["name"] for each in container["volumeMounts"]}
    pod = build_deployment(server, "lictor", "v1")["spec"]["template"]["spec"]
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    sources = orjson.loads(build_config_map(server, "lictor", {})["data"]["sources.yml"])
    assert sources["source_authorities"] == {"reg.example": [{"type": "Data", "data": "PEM"}]}


@pytest.mark.parametrize(
    ("image", "args"),
    [
        ("ghcr.io/kubewarden/policy-server:v1.36.0", None),
        ("ghcr.io/acme/lictor:1.2", ["policy-server"]),
        ("localhost:5000/lictor@sha256:00", ["policy-server"]),
        ("ghcr.io/acme/lictor-other:1", None),
    ],
)
def test_only_lictors_own_image_is_told_what_to_be(image, args):
    pod = build_deployment(make_server(image=image), "lictor", "v1")["spec"]["template"]["spec"]
    assert pod["containers"][0].get("args") == args


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({}, None),
        ({"minAvailable": 1}, {"minAvailable": 1}),
        ({"maxUnavailable": "25%"}, {"maxUnavailable": "25%"}),
        ({"minAvailable": 1, "maxUnavailable": 1}, {"minAvailable": 1}),
    ],
)
def test_a_budget_only_where_it_is_asked_for(spec, limit):
    budget = build_budget(make_server(**spec), "lictor")
    if limit is None:
        assert budget is None
    else:
        chosen = {name: value for name, value in budget["spec"].items() if name != "selector"}
        assert chosen == limit


KUBEWARDENS = "ghcr.io/kubewarden/policy-server:v1.36.0"
LICTORS = "ghcr.io/acme/lictor:1"


@pytest.mark.parametrize(
    ("image", "change", "rolls_out"),
    [
        (KUBEWARDENS, "policies", True),
        (LICTORS, "policies", False),
        (KUBEWARDENS, "sources", True),
        (LICTORS, "sources", True),
        (LICTORS, "env", True),
        (LICTORS, "verification", True),
        (LICTORS, "nothing", False),
    ],
)
def test_what_starts_pods_anew(image, change, rolls_out):
    specs = {
        "sources": {"insecureSources": ["localhost:5000"]},
        "env": {"env": [{"name": "A", "value": "b"}]},
        "verification": {"verificationConfig": "rules"},
    }
    before, after = make_server(image=image), make_server(image=image, **specs.get(change, {}))
    module = "y" if change == "policies" else "x"
    templates = []
    for server, entry in ((before, {"module": "x"}), (after, {"module": module})):
        version = find_version(server, build_config_map(server, "lictor", {"a": entry}))
        templates.append(build_deployment(server, "lictor", version)["spec"]["template"])
    assert (templates[0] != templates[1]) is rolls_out


@pytest.mark.parametrize(
    "text", ["\x7f", "\x85", "\x9f", "\u2028", "\ufffe", "\uffff", "\x01", "\U0001f600"]
)
def test_no_text_makes_the_file_unreadable(text):
    """Whoever writes a policy in one namespace would keep all others from being loaded."""
    entries = {"a": {"module": "x", "settings": {"k": f"<{text}>"}}}
    written = build_config_map(make_server(), "lictor", entries)["data"]["policies.yml"]
    assert load_policies_file(written, "f")["a"].settings == {"k": f"<{text}>"}
    assert orjson.loads(written) == entries


@pytest.mark.parametrize(("depth", "fits"), [(1, True), (140, True), (160, False), (500, False)])
def test_what_no_server_could_read_is_not_written(depth, fits):
    settings = {}
    for _ in range(depth):
        settings = {"a": settings}
    assert can_be_written({"module": "x", "settings": settings}) is fits


# --- Pods


def labelled(name, **metadata):
    labels = {"kubewarden/policy-server": "green", **metadata.pop("labels", {})}
    return {"metadata": {"name": name, "labels": labels, **metadata}}


def deployment(version="v1", revision="3"):
    notes = {"kubewarden/config-version": version, "deployment.kubernetes.io/revision": revision}
    return labelled("policy-server-green", annotations=notes)


def replica_set(template, version="v1", revision="3"):
    notes = {"deployment.kubernetes.io/revision": revision}
    made = labelled(f"rs-{template}", labels={"pod-template-hash": template}, annotations=notes)
    inside = {"metadata": {"labels": {"kubewarden/config-version": version}}}
    return {**made, "spec": {"template": inside}}


def pod(template, ready="True", phase="Running"):
    conditions = [{"type": "Ready", "status": ready}]
    made = labelled(f"pod-{template}", labels={"pod-template-hash": template})
    return {**made, "status": {"phase": phase, "conditions": conditions}}


@pytest.mark.parametrize(
    ("deployments", "sets", "pods", "why"),
    [
        ([], [], [], "is not there yet"),
        ([deployment("v0")], [], [], "does not have the policy yet"),
        ([deployment()], [replica_set("a", version="v0")], [pod("a")], "is being rolled out"),
        ([deployment()], [replica_set("a", revision="2")], [pod("a")], "is being rolled out"),
        ([deployment()], [replica_set("a")], [], "has no Pods"),
        ([deployment()], [replica_set("a")], [pod("a"), pod("b")], "Pods of before"),
        ([deployment()], [replica_set("a")], [pod("a", ready="False")], "pod-a is not ready"),
        ([deployment()], [replica_set("a")], [pod("a", phase="Failed")], "has no Pods"),
        ([deployment()], [replica_set("a")], [pod("a"), pod("b", phase="Failed")], ""),
        ([deployment()], [replica_set("a")], [pod("a")], ""),
    ],
)
def test_ready_when_every_pod_has_the_version(deployments, sets, pods, why):
    told = Workloads(tuple(deployments), tuple(sets), tuple(pods)).explain_wait(make_server(), "v1")
    assert why in told if why else told == ""


# --- certificates


class Scene:
    """The Secrets of one server, and a clock."""

    def __init__(self):
        self.api = SmallApi()
        self.now = START
        self.keeper = ServerCertificates(self.api, "lictor", clock=lambda: self.now)

    def run(self, **later):
        self.now += timedelta(**later)

        async def main():
            authority = await self.keeper.keep_authority()
            await self.keeper.keep_serving(make_server(), authority)
            return authority

        return asyncio.run(main())

    def leaf(self):
        entry = self.api.read(SECRET, "policy-server-green", "lictor")["data"]["tls.crt"]
        return keys.read_certificates(b64decode(entry).decode())[0]


def test_certificates_stay_as_long_as_they_are_good():
    scene = Scene()
    first = scene.run()
    assert keys.list_hosts(scene.leaf()) == {"policy-server-green.lictor.svc"}
    assert keys.is_issued_by(scene.leaf(), first.signer.certificate)
    scene.run(days=300)
    assert len(scene.api.writes) == 2
    scene.run(days=10)
    assert len(scene.api.writes) == 3


def test_a_new_authority_is_shown_before_it_is_used():
    scene = Scene()
    scene.run()
    scene.run(days=3650 - 365)
    old = scene.leaf()
    second = scene.run(days=310)
    bundle = keys.read_certificates(b64decode(second.bundle).decode())
    assert len(bundle) == 2
    assert any(keys.is_issued_by(scene.leaf(), each) for each in bundle)
    scene.run(seconds=30)
    assert keys.is_issued_by(scene.leaf(), second.signer.certificate)
    assert scene.leaf() != old
    assert "old-ca.crt" in scene.api.read(SECRET, AUTHORITY_SECRET, "lictor")["data"]
