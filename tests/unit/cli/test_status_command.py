"""`lictor status` and `lictor preview`: what people see, and wrong calls."""

import pytest
from click.testing import CliRunner

from lictor.cli.main import cli
from lictor.cli.preview import render_preview
from lictor.cli.status import render_status
from lictor.controllers.existing_objects import PolicyPreview, PreviewFinding
from lictor.controllers.installation_status import (
    FailureCount,
    InstallationStatus,
    LeaderState,
    PolicyState,
    ReportState,
    ScanState,
    WebhookState,
)

FULL = InstallationStatus(
    policies=(
        PolicyState("ClusterPolicy", "good", ready=True),
        PolicyState("Policy", "bad", "shop", why="no such kind"),
    ),
    webhooks=(WebhookState("ValidatingWebhookConfiguration", "w", 1),),
    leaders=(LeaderState("admission", "pod-a", 1.2),),
    heartbeat="2026-01-01T00:00:01Z",
    queues={"ephemeralReports": 3, "updateRequests": 1, "failedUpdateRequests": 0},
    scans=(ScanState("pod-b", running=2, done=10, waiting=90, kinds=5),),
    reports=ReportState(
        2, {"pass": 1, "fail": 4}, (FailureCount("shop", 4),), (FailureCount("good", 4),)
    ),
)
EMPTY = InstallationStatus((), (), (), "", {}, ())


def test_status_for_people():
    text = render_status(FULL)
    for part in (
        "Policies: 2, 1 ready\n  Policy  shop/bad  no such kind\n",
        "  ValidatingWebhookConfiguration  w  1 webhook\n",
        "  admission  pod-a  1 s ago\n",
        "  results of admissions that wait for their report  3\n",
        "reading 2 kinds: 10 objects done, 90 waiting",
        "Reports: 2 (pass 1, fail 4)\nNamespaces with the most failures:\n  shop  4\n",
    ):
        assert part in text


def test_long_reasons_are_cut_off():
    policy = PolicyState("ClusterPolicy", "p", why="x" * 3000)
    text = render_status(InstallationStatus((policy,), (), (), "", {}, ()))
    assert max(map(len, text.splitlines())) < 250
    assert "x ..." in text


def test_status_of_nothing():
    text = render_status(EMPTY)
    assert "Policies: 0, 0 ready" in text
    assert "Leaders: none" in text
    assert "Reports" not in text


def test_names_cannot_steer_the_terminal():
    wild = PolicyState("ClusterPolicy", "x\x1b[2J", why="a\nb")
    text = render_status(InstallationStatus((wild,), (), (), "", {}, ()))
    assert "\x1b" not in text
    assert "a b" in text


def test_preview_for_people():
    finding = PreviewFinding("p", "r", "v1", "Pod", "web", "shop", "no\n  team")
    found = PolicyPreview(["p"], kinds=1, judged=9, refused=1, refusals=[finding])
    assert render_preview(found) == (
        "p: 9 objects of 1 kind evaluated\n1 would be refused:\n  Pod  shop/web  p/r  no team\n"
    )
    stuck = PolicyPreview(["p"], kinds=1, judged=9, undeletable=1, deletions=[finding])
    assert "1 could not be deleted (rules that name no operations" in render_preview(stuck)
    calm = render_preview(PolicyPreview(["p"], problems=["pods: forbidden"]))
    assert "nothing would be refused or changed\nnot read: pods: forbidden\n" in calm


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["status", "extra"], 2, "unknown"),
        (["status", "--top", "-1"], 2, "--top"),
        (["status", "--format", "xml"], 2, "xml"),
        (["preview"], 2, ""),
        (["preview", "a", "b"], 2, ""),
    ],
)
def test_wrong_calls(words, code, said):
    done = CliRunner().invoke(cli, words)
    assert done.exit_code != 0
    assert code  # the exit code itself is given by exit_codes
    assert said in done.output or said in str(done.exception)


def test_a_file_without_policies_is_an_error(tmp_path):
    path = tmp_path / "none.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    done = CliRunner().invoke(cli, ["preview", str(path)])
    assert done.exit_code != 0
    assert "there is no policy in it" in f"{done.output}{done.exception}"
