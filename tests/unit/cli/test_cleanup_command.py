"""`cleanup --dry-run` on the command line; what it says of a real cluster is in tests/cluster."""

import json

import pytest

from lictor.cli.cleanup import cleanup, render_text
from lictor.cli.cluster_options import render_record
from lictor.controllers.cleanup.preview import CleanupPreview
from lictor.core.errors import LictorError

POLICY = """
apiVersion: kyverno.io/v2
kind: ClusterCleanupPolicy
metadata: {name: sweep}
spec:
  schedule: "* * * * *"
  match: {any: [{resources: {kinds: [Pod]}}]}
"""
OTHER = """
apiVersion: v1
kind: ConfigMap
metadata: {name: no-policy}
"""


def call(*words):
    return cleanup.main([*map(str, words)], standalone_mode=False)


WRONG = [
    ([], "give --dry-run"),
    (["sweep"], "give --dry-run"),
    (["--dry-run", "sweep", "--file", "POLICY"], "not both"),
    (["--dry-run", "--file", "OTHER"], "no cleanup or deleting policy"),
    (["--dry-run", "--file", "BROKEN"], "required field \"schedule\" is missing"),
    (["--dry-run", "--file", "POLICY", "--kubeconfig", "/nonexistent/config"], "/nonexistent/config"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_call(tmp_path, words, said):
    texts = {"POLICY": POLICY, "OTHER": OTHER, "BROKEN": POLICY.replace("schedule:", "plan:")}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    given = [tmp_path / f"{word}.yaml" if word in texts else word for word in words]
    with pytest.raises(LictorError, match=said):
        call(*given)


PREVIEWS = [
    CleanupPreview(
        "CleanupPolicy",
        "sweep",
        "home",
        "2026-03-01T12:01:00Z",
        resources=(
            {"apiVersion": "v1", "kind": "Pod", "namespace": "home", "name": "a", "uid": "1"},
        ),
        undecided=({"what": "Pod/home/b", "why": "no such field"},),
    ),
    CleanupPreview("DeletingPolicy", "idle", next_execution="2026-03-02T00:00:00Z"),
    CleanupPreview("DeletingPolicy", "broken", problems=("conditions: does not parse",)),
]
TEXT = """\
CleanupPolicy home/sweep would delete at 2026-03-01T12:01:00Z:
  home/Pod/a
  not Pod/home/b: no such field
DeletingPolicy idle would delete at 2026-03-02T00:00:00Z:
  nothing of what is there now
DeletingPolicy broken: conditions: does not parse
"""


def test_text():
    assert render_text(PREVIEWS) == TEXT
    assert render_text([]) == "no policy that deletes\n"


def test_json():
    written = json.loads(render_record(PREVIEWS))
    assert written[0]["resources"][0]["name"] == "a"
    assert written[0]["nextExecution"] == "2026-03-01T12:01:00Z"
    assert written[2] == {
        "kind": "DeletingPolicy",
        "name": "broken",
        "problems": ["conditions: does not parse"],
    }
