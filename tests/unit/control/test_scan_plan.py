"""Plans of the background: made anew for what changed, and only for that."""

from pathlib import Path

from lictor.cluster.resource import Resource
from lictor.control.scan_plan import ScanPlanner
from lictor.serve.file_policies import FilePolicies

PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: {name}
  uid: {name}
spec:
  rules:
  - name: rule
    match:
      any:
      - resources:
          kinds: [{kind}]
    validate:
      message: "a label is missing"
      pattern:
        metadata:
          labels:
            team: "?*"
"""


class Store:
    """Policies from files, each with a mark that a test can change."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        for number, kind in enumerate(kinds):
            (folder / f"{number}.yaml").write_text(POLICY.format(name=f"p{number}", kind=kind))
        self._files = FilePolicies(folder)
        self.policies = self._files.policies
        self.marks: dict[str, str] = {}

    def programs(self, policy):
        return self._files.programs(policy)

    def mark(self, policy):
        return self.marks.get(policy.name, "1")


def test_what_concerns_a_kind(tmp_path):
    plan = ScanPlanner(Store(tmp_path, "Pod", "Service", "Pod")).build()
    pods, services = plan.for_kind(PODS), plan.for_kind(SERVICES)
    assert sorted(pods.marks) == ["p0", "p2"]
    assert sorted(services.marks) == ["p1"]
    assert plan.for_kind(Resource("", "v1", "secrets", "Secret")) is None
    assert len(plan.alive) >= 3


def test_only_what_changed_is_made_anew(tmp_path):
    store = Store(tmp_path, "Pod", "Pod", "Pod")
    planner = ScanPlanner(store)
    before = planner.build()
    store.marks["p1"] = "2"
    after = planner.build()
    kept = [old is new for old, new in zip(before.judging, after.judging, strict=True)]
    assert kept == [True, False, True]
    assert before.for_kind(PODS).key != after.for_kind(PODS).key
    store.policies = store.policies[:2]
    assert len(planner.build().judging) == 2
