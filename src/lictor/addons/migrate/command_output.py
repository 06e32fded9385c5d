"""What `migrate` prints: the report, the plan, and how the answers of both compare."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lictor.cli.cluster_options import clean_line, count_noun, render_columns

if TYPE_CHECKING:
    from lictor.addons.migrate.plan import PlanStep
    from lictor.addons.migrate.report import KeptSetting, MigrationReport
    from lictor.addons.migrate.verdicts import Comparison, VerdictDifference

# Beyond this a setting is shown by its beginning.
_LONG = 60


def render_report(report: "MigrationReport", plan: "Iterable[PlanStep]") -> str:
    """The report and the plan as text; no character of the cluster's can steer a terminal."""
    return "".join(f"{clean_line(line)}\n" for line in _render(report, plan))


def _render(report: "MigrationReport", plan: "Iterable[PlanStep]") -> Iterator[str]:
    yield f"Kyverno in namespace {report.namespace}, under the names {report.prefix}-..."
    for each in report.deployments:
        yield f"  {each.name}: {count_noun(each.replicas, 'replica')} of {each.images}"
        yield from _mark(each.problem)
    yield f"Settings: {len(report.settings)}, all kept"
    yield from _render_settings(report.settings)
    yield from _render_flags(report)
    yield from _render_policies(report)
    yield from _render_rest(report)
    yield "Plan:"
    for number, step in enumerate(plan, 1):
        yield f"  {number}. {step.what}"
        if step.command:
            yield f"     {step.command}"


def _mark(problem: str) -> Iterator[str]:
    if problem:
        yield f"    ! {problem}"


def _render_settings(settings: "Iterable[KeptSetting]") -> Iterator[str]:
    for each in settings:
        value = " ".join(each.value.split())
        short = f"{value[:_LONG]}..." if len(value) > _LONG else value
        yield f"  {each.config_map}/{each.name}: {short}"
        yield from _mark(each.problem)


def _render_flags(report: "MigrationReport") -> Iterator[str]:
    yield f"Flags: {len(report.kept_flags)} kept, {len(report.dropped_flags)} not needed"
    rows = [(f"--{name}={value}", "kept") for name, value in report.kept_flags.items()]
    yield from render_columns(rows) if rows else ()
    dropped = [(f"--{flag.name}={flag.value}", flag.reason) for flag in report.dropped_flags]
    yield from render_columns(dropped) if dropped else ()


def _render_policies(report: "MigrationReport") -> Iterator[str]:
    total = sum(report.policies.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.policies.items()))
    yield f"Policies, exceptions and context: {total}" + (f" ({kinds})" if kinds else "")
    for each in report.problems:
        place = f"{each.place}: " if each.place else ""
        yield f"    ! {place}{each.kind} {each.name}: {each.message}"
    if report.warnings:
        yield f"  {count_noun(report.warnings, 'warning')}: see lictor lint"


def _render_rest(report: "MigrationReport") -> Iterator[str]:
    counts = ", ".join(f"{count} {kind}" for kind, count in report.reports.items())
    yield f"Reports: {counts or 'none'}; they stay, and are brought up to date"
    yield f"Webhook configurations: {report.webhooks}; they stay, and are kept by lictor"
    if report.missing_rights:
        yield "Rights that lictor's roles do not give (add them by label, see the documentation):"
        rows = [(e.role, e.resource, ",".join(e.verbs)) for e in report.missing_rights]
        yield from render_columns(rows)
    for name, versions in report.stale_kinds.items():
        yield f"Stored in {', '.join(versions)}, and stored anew by install: {name}"
    for manager in report.managers:
        yield f"Managed by {manager}"


def render_difference(found: "VerdictDifference") -> str:
    """A request that was not answered alike, and both answers."""
    place = "/".join(filter(None, (found.namespace, found.name)))
    lines = [
        f"{found.operation} {found.kind} {place} by {found.user} ({found.path})",
        f"  Kyverno: {found.kyverno}",
        f"  lictor:  {found.lictor}",
    ]
    return "".join(f"{clean_line(line)}\n" for line in lines)


def render_comparison(found: "Comparison") -> str:
    """How often both answered alike."""
    lines = [
        f"{count_noun(found.compared, 'request')} compared: "
        f"{found.same} answered alike, {found.different} not"
    ]
    if found.left_out:
        lines.append(f"{found.left_out} left out, as they came too fast")
    lines += [f"no answer {count} times from {who}" for who, count in found.unanswered.items()]
    if not found.compared:
        lines.append("nothing was compared: this is no evidence about lictor")
    return "".join(f"{line}\n" for line in lines)
