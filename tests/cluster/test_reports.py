"""Reports on a real cluster: they follow policies, objects, admissions, outages and deaths."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from control_plane.install import Installation, Replica, install_lictor
from control_plane.local import LocalCluster
from control_plane.manifests import apply_objects

COMPONENT = "reports-controller"
REPORTS = "/apis/wgpolicyk8s.io/v1alpha2/policyreports"
POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "limits"},
    "spec": {
        "rules": [
            {
                "name": "memory",
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "validate": {"message": "no colour", "pattern": {"data": {"colour": "?*"}}},
            }
        ]
    },
}


class Scene:
    """A control plane with lictor's reports controllers beside it."""

    def __init__(self, plane: LocalCluster, installation: Installation) -> None:
        self.plane = plane
        self.installation = installation

    def start(self, *flags: str) -> Replica:
        return self.installation.start_controller(COMPONENT, *flags)

    def fill(self, namespace: str, count: int) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        maps = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"map-{number}", "namespace": namespace},
                "data": {"colour": "red"} if number % 2 else {"shape": "round"},
            }
            for number in range(count)
        ]
        apply_objects(self.plane, [space, *maps])

    def reports(self, namespace: str) -> list[dict[str, Any]]:
        path = REPORTS.replace("policyreports", f"namespaces/{namespace}/policyreports")
        with self.plane.connect() as client:
            answer = client.get(path)
        # A kind that was defined a moment ago may not be served yet.
        items = answer.json().get("items") or []
        return [each for each in items if each["scope"]["name"].startswith("map-")]

    def notes(self) -> list[dict[str, Any]]:
        """What the replicas say of their scans."""
        words = ("get", "lease", "-n", "lictor", "-l", "lictor.io/member-of", "-o", "json")
        leases = json.loads(self.plane.kubectl(*words).stdout)["items"]
        notes = [(each["metadata"].get("annotations") or {}) for each in leases]
        return [json.loads(note["lictor.io/scan"]) for note in notes if "lictor.io/scan" in note]


@pytest.fixture
def scene(own_cluster: LocalCluster) -> Iterator[Scene]:
    installation = install_lictor(own_cluster, replicas=0)
    apply_objects(own_cluster, [POLICY])
    yield Scene(own_cluster, installation)
    installation.stop()


def wait(test: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.3)


def sum_up(reports: list[dict[str, Any]]) -> tuple[int, int]:
    return (
        sum(report["summary"]["pass"] for report in reports),
        sum(report["summary"]["fail"] for report in reports),
    )


def test_reports_follow_objects_and_policies(scene: Scene) -> None:
    scene.fill("shop", 10)
    scene.start()
    wait(lambda: sum_up(scene.reports("shop")) == (5, 5))
    report = scene.reports("shop")[0]
    assert report["metadata"]["name"] == report["scope"]["uid"]
    assert report["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "kyverno"}
    # Replicas share this work, so nobody leads it.
    leases = scene.plane.kubectl("get", "lease", "-n", "lictor", "-o", "name").stdout
    assert f"/lictor-{COMPONENT}\n" not in leases
    # An object changes.
    patch = json.dumps({"data": {"colour": "blue"}})
    scene.plane.kubectl("patch", "cm", "map-0", "-n", "shop", "--type=merge", "-p", patch)
    wait(lambda: sum_up(scene.reports("shop")) == (6, 4))
    # One goes, and its report with it, where there is a garbage collector.
    scene.plane.kubectl("delete", "cm", "map-1", "-n", "shop")
    if scene.plane.collects_garbage:
        wait(lambda: len(scene.reports("shop")) == 9)
    # The policy goes.
    scene.plane.kubectl("delete", "cpol", "limits")
    wait(lambda: not scene.reports("shop"))


def test_a_replica_that_is_killed_in_the_middle_loses_and_doubles_nothing(scene: Scene) -> None:
    scene.fill("shop", 400)
    first, second = scene.start(), scene.start()
    wait(lambda: len(scene.reports("shop")) > 20, 90)
    first.process.kill()
    wait(lambda: len(scene.reports("shop")) == 400, 120)
    assert second.process.is_running()
    assert sum_up(scene.reports("shop")) == (200, 200)
    scopes = [report["scope"]["name"] for report in scene.reports("shop")]
    assert len(set(scopes)) == 400


def test_an_api_server_that_is_away_is_waited_for(scene: Scene) -> None:
    scene.fill("shop", 40)
    replica = scene.start()
    wait(lambda: len(scene.reports("shop")) == 40)
    scene.plane.restart_api_server(away=30, kill=True)
    assert replica.process.is_running()
    scene.fill("bank", 10)
    wait(lambda: sum_up(scene.reports("bank")) == (5, 5), 120)
    assert sum_up(scene.reports("shop")) == (20, 20)


def test_status_and_preview_tell_of_the_cluster(scene: Scene) -> None:

    scene.fill("shop", 10)
    scene.start()
    wait(lambda: sum_up(scene.reports("shop")) == (5, 5))
    # The scanner tells of its progress each time it renews its Lease.
    wait(lambda: "kinds" in run(scene, "status", "--format", "json")["scans"][0])
    found = run(scene, "status", "--format", "json")
    assert found["reports"]["worstPolicies"][0]["name"] == "limits"
    assert found["scans"][0]["kinds"] == 1
    seen = run(scene, "preview", "limits", "--format", "json")
    assert seen["refused"] >= 5
    assert {each["policy"] for each in seen["refusals"]} == {"limits"}
    assert {each["kind"] for each in seen["refusals"]} == {"ConfigMap"}
    # A pattern judges nothing that goes away; a rule that denies without naming operations does.
    assert seen["undeletable"] == 0
    stuck = scene.plane.folder / "stuck.yaml"
    stuck.write_text(STUCK)
    seen = run(scene, "preview", str(stuck), "--format", "json")
    assert seen["undeletable"] >= 10
    assert {each["rule"] for each in seen["deletions"]} == {"has-data"}


# On a deletion, `request.object` is what goes away.
STUCK = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: stuck}
spec:
  rules:
  - name: has-data
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    validate:
      deny:
        conditions:
          any: [{key: "{{ request.object.data.team || '' }}", operator: Equals, value: ""}]
"""


def run(scene: Scene, *words: str) -> dict[str, Any]:
    process = scene.plane.start_lictor(*words, f"--kubeconfig={scene.plane.kubeconfig}")
    process.popen.wait(60)
    text = process.log.read_text()
    return json.loads(text[text.index("{") :])
