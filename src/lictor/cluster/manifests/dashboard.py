"""What does an operator want to see of admission, policies and controllers? The dashboard."""

from typing import Final

from lictor.cluster.manifests.grafana import Panel, PanelQuery, PanelRow, render_dashboard
from lictor.families.registry import registry
from lictor.model.program import Phase
from lictor.raw import JsonObject

# Series of the chosen installation; of all, also those without a namespace.
_CHOSEN: Final = 'namespace=~"$namespace"'
_SELECTOR: Final = "SELECTOR"
_RATE: Final = "[$__rate_interval]"


def _ask(expression: str, legend: str = "") -> PanelQuery:
    return PanelQuery(expression.replace(_SELECTOR, _CHOSEN), legend)


def _show_number(
    title: str, expression: str, unit: str = "short", alarm_from: float | None = None
) -> Panel:
    return Panel(title, (_ask(expression),), unit, "stat", 3, alarm_from=alarm_from)


def _rate(metric: str, by: str, matchers: str = "") -> str:
    where = f"{matchers},{_SELECTOR}" if matchers else _SELECTOR
    total = f"sum by ({by})" if by else "sum"
    return f"{total} (rate({metric}{{{where}}}{_RATE}))"


def _quantile(share: float, metric: str, by: str = "le") -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', by)})"


_REVIEW: Final = "kyverno_admission_review_duration_seconds"
_RULES: Final = "kyverno_policy_execution_duration_seconds"
# Kinds of policies that have a histogram of their own, and those of them that can say no.
_OWN_KINDS: Final = tuple(
    kind for kind in registry().kinds if kind.duration_metric and not kind.namespaced
)
_OWN: Final = tuple((kind.duration_metric, kind.kind) for kind in _OWN_KINDS)
_REFUSING: Final = tuple(
    (kind.duration_metric, kind.kind)
    for kind in _OWN_KINDS
    if {Phase.VALIDATE, Phase.VERIFY_IMAGES} & {*kind.phases}
)
_NOW: Final = PanelRow(
    "Now",
    4,
    (
        _show_number("Replicas", "count(kyverno_info{SELECTOR})"),
        Panel(
            "Webhooks answer",
            (_ask("min(lictor_webhook_healthy{SELECTOR})"),),
            "bool_yes_no",
            "stat",
            3,
        ),
        _show_number(
            "Policies",
            "count(count by (policy_name, policy_namespace)"
            " (kyverno_policy_rule_info_total{SELECTOR}))",
        ),
        _show_number(
            "Policies not ready",
            "count(count by (policy_name, policy_namespace)"
            ' (kyverno_policy_rule_info_total{status_ready="false",SELECTOR})) or vector(0)',
            alarm_from=1,
        ),
        _show_number("Requests", _rate("kyverno_admission_requests_total", ""), "reqps"),
        _show_number("99 of 100 answered in", _quantile(0.99, _REVIEW), "s", alarm_from=1),
        _show_number(
            "Not evaluated, last hour",
            "sum(increase(lictor_admission_not_evaluated_total{SELECTOR}[1h]))",
            alarm_from=1,
        ),
        _show_number(
            "Certificate ends in",
            "min(lictor_certificate_expiry_timestamp_seconds{SELECTOR}) - time()",
            "s",
        ),
    ),
)
_ADMISSION: Final = PanelRow(
    "Admission",
    8,
    (
        Panel(
            "Requests by operation",
            (
                _ask(
                    _rate("kyverno_admission_requests_total", "resource_request_operation"),
                    "{{resource_request_operation}}",
                ),
            ),
            "reqps",
        ),
        Panel(
            "Refused requests by kind",
            (
                _ask(
                    _rate(
                        "kyverno_admission_requests_total",
                        "resource_kind",
                        'request_allowed="false"',
                    ),
                    "{{resource_kind}}",
                ),
            ),
            "reqps",
        ),
        Panel(
            "Time to answer",
            (
                _ask(_quantile(0.5, _REVIEW), "half"),
                _ask(_quantile(0.95, _REVIEW), "95 of 100"),
                _ask(_quantile(0.99, _REVIEW), "99 of 100"),
            ),
            "s",
        ),
        Panel(
            "Time to answer, by webhook",
            (_ask(_quantile(0.99, _REVIEW, "le, request_webhook"), "{{request_webhook}}"),),
            "s",
        ),
        Panel(
            "Requests without a verdict, by reason",
            (_ask(_rate("lictor_admission_not_evaluated_total", "reason"), "{{reason}}"),),
            "reqps",
            help="Answered by failure policy, or refused, as policies could not be evaluated.",
        ),
        Panel(
            "Work after the answer",
            (
                _ask("sum(lictor_audit_queue_length{SELECTOR})", "wait for audit rules"),
                _ask("sum(lictor_reports_waiting{SELECTOR})", "results wait for reports"),
                _ask("sum(lictor_update_requests_waiting{SELECTOR})", "update requests wait"),
                _ask("sum(increase(lictor_audit_dropped_total{SELECTOR}[5m]))", "not audited"),
            ),
        ),
    ),
)
_POLICIES: Final = PanelRow(
    "Policies",
    9,
    (
        Panel(
            "Answers of rules",
            (
                _ask(_rate("kyverno_policy_results_total", "rule_result"), "{{rule_result}}"),
                *(
                    _ask(_rate(f"{metric}_count", "result"), f"{{{{result}}}} ({kind})")
                    for metric, kind in _OWN
                ),
            ),
            "ops",
        ),
        Panel(
            "Policies that fail most, last hour",
            (
                _ask(
                    "topk(10, sum by (policy_name) (increase(kyverno_policy_results_total"
                    '{rule_result="fail",SELECTOR}[1h])))',
                    "{{policy_name}}",
                ),
                *(
                    _ask(
                        "topk(10, sum by (policy_name) (increase("
                        f'{metric}_count{{result="fail",SELECTOR}}[1h])))',
                        f"{{{{policy_name}}}} ({kind})",
                    )
                    for metric, kind in _REFUSING
                ),
            ),
            type="bargauge",
        ),
        Panel(
            "Slowest rules: mean time",
            (
                _ask(
                    f"topk(10, {_rate(f'{_RULES}_sum', 'policy_name, rule_name')}"
                    f" / {_rate(f'{_RULES}_count', 'policy_name, rule_name')})",
                    "{{policy_name}}/{{rule_name}}",
                ),
                *(
                    _ask(
                        f"topk(10, {_rate(f'{metric}_sum', 'policy_name')}"
                        f" / {_rate(f'{metric}_count', 'policy_name')})",
                        f"{{{{policy_name}}}} ({kind})",
                    )
                    for metric, kind in _OWN
                ),
            ),
            "s",
        ),
        Panel(
            "Rules by type",
            (
                _ask(
                    "count by (rule_type) (max by (policy_name, policy_namespace, rule_name,"
                    " rule_type) (kyverno_policy_rule_info_total{SELECTOR}))",
                    "{{rule_type}}",
                ),
            ),
        ),
        Panel(
            "Changes of policies",
            (
                _ask(
                    "sum by (policy_change_type) (increase(kyverno_policy_changes_total{SELECTOR}"
                    "[$__rate_interval]))",
                    "{{policy_change_type}}",
                ),
            ),
        ),
        Panel(
            "Rules without an answer (error)",
            (
                _ask(
                    _rate("kyverno_policy_results_total", "policy_name", 'rule_result="error"'),
                    "{{policy_name}}",
                ),
            ),
            "ops",
        ),
    ),
)
_PROCESSES: Final = PanelRow(
    "Processes",
    8,
    (
        Panel(
            "Memory of webhook processes",
            (_ask("sum by (instance) (lictor_worker_memory_bytes{SELECTOR})", "{{instance}}"),),
            "bytes",
        ),
        Panel(
            "Connections",
            (
                _ask("sum(lictor_connections{SELECTOR})", "open"),
                _ask(
                    "sum by (reason) (increase(lictor_connections_dropped_total{SELECTOR}[5m]))",
                    "closed: {{reason}}",
                ),
            ),
        ),
        Panel(
            "Processes replaced",
            (
                _ask(
                    "sum by (process) (increase(lictor_worker_restarts_total{SELECTOR}[5m]))",
                    "{{process}} ended",
                ),
                _ask(
                    "sum by (process) (increase(lictor_worker_recycled_total{SELECTOR}[5m]))",
                    "{{process}} had grown",
                ),
            ),
        ),
    ),
)
_CONTROLLERS: Final = PanelRow(
    "Controllers",
    8,
    (
        Panel(
            "Runs of controllers",
            (
                _ask(
                    _rate("kyverno_controller_reconcile_total", "controller_name"),
                    "{{controller_name}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Runs that failed",
            (
                _ask(
                    _rate("kyverno_controller_requeue_total", "controller_name"),
                    "{{controller_name}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Events not sent",
            (_ask(_rate("kyverno_events_dropped_total", ""), "events"),),
            "ops",
        ),
        Panel(
            "Background scan",
            (
                _ask(_rate("lictor_scan_objects_read_total", ""), "objects read"),
                _ask(_rate("lictor_scan_objects_evaluated_total", ""), "objects evaluated"),
                _ask(_rate("lictor_scan_reports_written_total", ""), "reports written"),
                _ask(_rate("lictor_scan_reports_refused_total", ""), "reports refused"),
            ),
            "ops",
        ),
        Panel(
            "Since the last finished scan of a kind",
            (
                _ask(
                    "time() - max by (instance) (lictor_scan_finished_timestamp_seconds{SELECTOR})",
                    "{{instance}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Objects deleted since the start",
            (
                *(
                    _ask(
                        f"sum by ({by}) (kyverno_{controller}_controller_deletedobjects_total"
                        "{SELECTOR})",
                        f"{words}: {{{{{by}}}}}",
                    )
                    for controller, by, words in (
                        ("cleanup", "policy_name", "cleanup policy"),
                        ("deleting", "policy_name", "deleting policy"),
                        ("ttl", "resource_resource", "time to live"),
                    )
                ),
            ),
        ),
    ),
)
ROWS: Final = (_NOW, _ADMISSION, _POLICIES, _PROCESSES, _CONTROLLERS)


def build_dashboard() -> JsonObject:
    """The dashboard, as Grafana imports it."""
    return render_dashboard("lictor-overview", "Lictor", ROWS)
