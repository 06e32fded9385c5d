"""`status`: the state of an installation, and a summary of its reports."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from lictor.cli.cluster_options import (
    count_noun,
    query_cluster,
    render_columns,
    render_record,
    with_cluster,
)
from lictor.cli.flag_command import FlagCommand
from lictor.kubernetes.names import Names

if TYPE_CHECKING:
    from lictor.controllers.installation_status import InstallationStatus, ReportState, ScanState

_EXAMPLES = """\
# How is it?
lictor status

# A drop-in installation, for a script
lictor status --namespace kyverno --prefix kyverno --format json

# Without reading all reports
lictor status --top 0"""


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@click.option(
    "--top",
    type=click.IntRange(0, 1000),
    default=5,
    show_default=True,
    help="How many of the worst namespaces and policies to show; 0 reads no reports.",
)
@with_cluster
def status(*, top: int, form: str, namespace: str, prefix: str, **cluster: str) -> int:
    """Show the state of an installation.

    Policies and whether they are ready, webhooks, leaders, queues, how far the scan is, and the
    namespaces and policies with the most failures.

    Exits with 0 if every policy is ready and the admission webhook is available, with 1 if not,
    and with 2 on a wrong call.
    """
    from lictor.controllers.installation_status import read_installation

    names = Names(prefix, namespace)
    found = query_cluster(**cluster, query=lambda client: read_installation(client, names, top=top))
    click.echo(render_record(found) if form == "json" else render_status(found), nl=False)
    return 0 if found.is_well else 1


def render_status(found: "InstallationStatus") -> str:
    """The status as text."""
    return "".join(f"{line}\n" for line in _render(found))


def _render(found: "InstallationStatus") -> Iterator[str]:
    ready = sum(policy.ready for policy in found.policies)
    yield f"Policies: {len(found.policies)}, {ready} ready"
    yield from _columns(
        (policy.kind, "/".join(filter(None, (policy.namespace, policy.name))), _shorten(policy.why))
        for policy in found.policies
        if not policy.ready
    )
    yield f"Webhook configurations: {len(found.webhooks) or 'none'}"
    yield from _columns(
        (each.kind, each.name, count_noun(each.webhooks, "webhook")) for each in found.webhooks
    )
    yield f"Last answer of a webhook: {found.heartbeat or 'not known'}"
    yield f"Leaders: {len(found.leaders) or 'none'}"
    yield from _columns(
        (each.controller, each.holder, f"{each.renewed_seconds_ago:.0f} s ago")
        for each in found.leaders
    )
    yield "Queues:"
    yield from _columns((_QUEUES.get(name, name), str(n)) for name, n in found.queues.items())
    yield f"Scanning replicas: {len(found.scans) or 'none'}"
    yield from _columns((each.member, *_describe_scan(each)) for each in found.scans)
    if found.reports is not None:
        yield from _render_reports(found.reports)


def _shorten(text: str) -> str:
    """JSON output has the whole text."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


_LONGEST = 200
_QUEUES = {
    "ephemeralReports": "results of admissions that wait for their report",
    "updateRequests": "update requests",
    "failedUpdateRequests": "of them failed",
}


def _describe_scan(scan: "ScanState") -> tuple[str, str, str]:
    if scan.running:
        reading = count_noun(scan.running, "kind")
        state = f"reading {reading}: {count_noun(scan.done, 'object')} done, {scan.waiting} waiting"
    else:
        state = f"done at {scan.finished_at}" if scan.finished_at else "not begun"
    return (
        state,
        count_noun(scan.kinds, "kind"),
        f"{scan.judged} evaluated, {scan.written} reports written",
    )


def _render_reports(reports: "ReportState") -> Iterator[str]:
    counts = ", ".join(f"{name} {count}" for name, count in reports.results.items())
    yield f"Reports: {reports.reports} ({counts})"
    for title, offenders in (
        ("Namespaces with the most failures:", reports.worst_namespaces),
        ("Policies with the most failures:", reports.worst_policies),
    ):
        if offenders:
            yield title
            yield from _columns((each.name, str(each.failures)) for each in offenders)


def _columns(rows: Iterator[tuple[str, ...]]) -> list[str]:
    listed = list(rows)
    return render_columns(listed) if listed else []
