"""Alerts fire when they should, and not when all is well: tested by Prometheus' own promtool."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from lictor.core.families.registry import registry
from lictor.install.monitoring import build_rule_groups, render_dashboard_file
from lictor.kubernetes.metrics import METRICS

ROOT = Path(__file__).parents[3]
PROMTOOL = shutil.which("promtool")
RUNBOOKS = (ROOT / "docs" / "operate" / "runbooks.md").read_text(encoding="utf-8")
NAMES = [rule["alert"] for group in build_rule_groups() for rule in group["rules"]]
SELECTOR = 'namespace="lictor"'


class Case(msgspec.Struct, frozen=True):
    """Series of an hour or more, one sample a minute, of a bad time and of a good one."""

    bad: dict[str, str]
    good: dict[str, str]
    # Of the alert, beside its own.
    labels: dict[str, str] = {}
    at: str = "60m"


def review(seconds):
    """A request a minute, each of which takes so long."""
    name = "kyverno_admission_review_duration_seconds_bucket"
    ends = ("0.5", "1", "2.5", "5", "10", "+Inf")
    return {f'{name}{{le="{end}"}}': "0+60x90" if float(end) >= seconds else "0x90" for end in ends}


def requests(allowed, refused):
    name = "kyverno_admission_requests_total"
    return {
        f'{name}{{request_allowed="true"}}': f"0+{allowed}x90",
        f'{name}{{request_allowed="false"}}': f"0+{refused}x90",
    }


def once(series):
    """A counter that stands at zero, and grows once just before it is looked at."""
    return {series: "0x58 1x40"}


def never(series):
    return {series: "0x99"}


HEARTBEAT = 'kyverno_controller_reconcile_total{controller_name="heartbeat-controller"}'
EXPIRY = 'lictor_certificate_expiry_timestamp_seconds{secret="pair"}'
RULE_INFO = 'kyverno_policy_rule_info_total{policy_name="p",rule_name="r",status_ready='
CEL_ERRORS = (
    'kyverno_validating_policy_execution_duration_seconds_count{policy_name="p",result="error"}'
)
FINISHED = 'lictor_scan_finished_timestamp_seconds{instance="a"}'
KINDS = 'lictor_scan_kinds{instance="a"}'
CLEANUP = 'kyverno_cleanup_controller_errors_total{policy_name="p"}'
HANDSHAKE = 'lictor_connections_dropped_total{reason="handshake"}'
NOT_EVALUATED = 'lictor_admission_not_evaluated_total{reason="slow"}'
RESTARTS = 'lictor_worker_restarts_total{process="worker-0"}'
RECYCLED = 'lictor_worker_recycled_total{process="worker-0"}'
DROPPED = 'lictor_audit_dropped_total{reason="full"}'
REQUEUE = 'kyverno_controller_requeue_total{controller_name="ttl"}'
FAILED = 'lictor_notifications_failed_total{target="chat"}'
CASES = {
    "LictorAbsent": Case({}, {"kyverno_info": "1x90"}),
    "LictorWebhooksDoNotAnswer": Case(
        {"lictor_webhook_healthy": "1x30 0x60"}, {"lictor_webhook_healthy": "1x90"}
    ),
    "LictorRequestsNotEvaluated": Case(
        once(NOT_EVALUATED), never(NOT_EVALUATED), {"reason": "slow"}
    ),
    "LictorAdmissionSlow": Case(review(2), review(0.1)),
    "LictorAdmissionNearTimeout": Case(review(8), review(2)),
    "LictorManyRequestsRefused": Case(requests(10, 30), requests(100, 3)),
    "LictorHandshakesFail": Case({HANDSHAKE: "0+3x90"}, {HANDSHAKE: "0+1x90"}),
    "LictorCertificateEnds": Case(
        {EXPIRY: "300000x150"}, {EXPIRY: "9000000x150"}, {"secret": "pair"}, "120m"
    ),
    "LictorProcessesRestart": Case(
        {RESTARTS: "0x48 0+1x40"}, once(RESTARTS), {"process": "worker-0"}
    ),
    "LictorProcessesOutgrowMemory": Case(
        {RECYCLED: "0x30 0+1x40"}, once(RECYCLED), {"process": "worker-0"}
    ),
    "LictorAuditDropped": Case(once(DROPPED), never(DROPPED), {"reason": "full"}),
    "LictorEventsDropped": Case(
        once("kyverno_events_dropped_total"), never("kyverno_events_dropped_total")
    ),
    "LictorReportsWait": Case({"lictor_reports_waiting": "4000x90"}, {"lictor_reports_waiting": "9x90"}),
    "LictorUpdateRequestsWait": Case(
        {"lictor_update_requests_waiting": "900x90"}, {"lictor_update_requests_waiting": "9x90"}
    ),
    "LictorNoLeader": Case({HEARTBEAT: "70x90"}, {HEARTBEAT: "0+6x90"}),
    "LictorControllerFails": Case(
        {REQUEUE: "0+2x90"}, {REQUEUE: "0x55 0+1x40"}, {"controller_name": "ttl"}
    ),
    "LictorScanStale": Case(
        {FINISHED: "60x300", KINDS: "5x300"},
        {FINISHED: "0+60x300", KINDS: "5x300"},
        {"instance": "a"},
        "270m",
    ),
    "LictorReportsRefused": Case(
        once("lictor_scan_reports_refused_total"), never("lictor_scan_reports_refused_total")
    ),
    "LictorPolicyNotReady": Case(
        {f'{RULE_INFO}"false"}}': "1x90"}, {f'{RULE_INFO}"true"}}': "1x90"}, {"policy_name": "p"}
    ),
    "LictorPolicyErrors": Case(once(CEL_ERRORS), never(CEL_ERRORS), {"policy_name": "p"}),
    # The first failure makes the series.
    "LictorDeletionsFail": Case({CLEANUP: "_x55 1x40"}, {CLEANUP: "1x200"}, {"policy_name": "p"}, "90m"),
    "LictorNotificationsFail": Case({FAILED: "0+1x90"}, once(FAILED), {"target": "chat"}),
}  # fmt: skip


def select(series):
    name, _, labels = series.partition("{")
    inside = labels.rstrip("}")
    return f"{name}{{{SELECTOR}{',' if inside else ''}{inside}}}"


def build_tests(case, name, severity):
    labels = {"alertname": name, "alertstate": "firing", "severity": severity, **case.labels}
    if name == "LictorAbsent":
        labels["namespace"] = "lictor"
    text = ",".join(f'{key}="{value}"' for key, value in labels.items())
    for series, samples in (
        (case.bad, [{"labels": f"ALERTS{{{text}}}", "value": 1}]),
        (case.good, []),
    ):
        # Other installations are others' affair: their series change nothing.
        foreign = {each.replace("{", '{namespace="other",', 1): "0+99x300" for each in case.bad}
        yield {
            "interval": "1m",
            "input_series": [
                *({"series": select(each), "values": values} for each, values in series.items()),
                *({"series": each, "values": values} for each, values in foreign.items() if "{" in each),
            ],
            "promql_expr_test": [
                {
                    "expr": f'ALERTS{{alertname="{name}",alertstate="firing"}}',
                    "eval_time": case.at,
                    "exp_samples": samples,
                }
            ],
        }  # fmt: skip


def write_test(folder, rule):
    """A rule and its test, alone: with all rules beside it, evaluating would take a minute."""
    name = rule["alert"]
    groups = {"groups": [{"name": "one", "rules": [rule]}]}
    (folder / f"{name}.rules.yaml").write_text(yaml.safe_dump(groups))
    test = {
        "rule_files": [f"{name}.rules.yaml"],
        "evaluation_interval": "1m",
        "tests": list(build_tests(CASES[name], name, rule["labels"]["severity"])),
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(test))


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_each_alert_fires_when_it_should_and_else_not(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    assert list(CASES) == NAMES
    for group in build_rule_groups(SELECTOR):
        for rule in group["rules"]:
            write_test(tmp_path, rule)
    done = subprocess.run(
        [PROMTOOL, "test", "rules", *(f"{name}.yaml" for name in NAMES)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_has_a_runbook(name: str) -> None:
    assert f"\n## {name}\n" in RUNBOOKS
    section = RUNBOOKS.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    # What it means, what to look at, what to do.
    assert len(section.split()) > 25


def test_runbooks_are_of_alerts_that_there_are() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == NAMES


def test_alerts_ask_for_metrics_that_there_are() -> None:
    text = yaml.safe_dump(build_rule_groups(), width=10_000)
    found = set(re.findall(r"\b(?:kyverno|lictor)_[a-z_]+(?=\{)", text))
    ends = ("", "_bucket", "_count")
    known = {f"{metric.shown_name}{end}" for metric in METRICS.values() for end in ends}
    assert len(found) > 15
    assert found - known == set()


def test_every_kind_of_policy_with_a_metric_has_alerts_and_panels() -> None:
    """The files name these metrics one by one."""
    alerts = yaml.safe_dump(build_rule_groups(), width=10_000)
    kinds = [kind for kind in registry().kinds if kind.duration_metric and not kind.namespaced]
    assert kinds
    for kind in kinds:
        assert f"{kind.duration_metric}_count" in alerts
        assert kind.duration_metric in render_dashboard_file()


def test_the_files_in_the_repository_are_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_dashboard.py"))["render_files"]()
    assert {file: file.read_text() for file in made} == made, "run scripts/make_dashboard.py"
