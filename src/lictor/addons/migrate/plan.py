"""A report about an installation of Kyverno -> the steps to lictor and back, as commands."""

from collections.abc import Iterator
from shlex import join, quote

import msgspec

from lictor.addons.migrate.report import MigrationReport

_SAVED = "kyverno-before.json"


class PlanStep(msgspec.Struct, frozen=True):
    """One step; some have nothing to run."""

    what: str
    command: str = ""


def build_plan(report: MigrationReport, image: str) -> list[PlanStep]:
    """What to do, in this order."""
    # Users paste these into a shell; names of roles may contain anything.
    names = join(("--namespace", report.namespace, "--prefix", report.prefix))
    image = quote(image)
    return [*_list_preparations(report, names, image), *_list_changes(report, names, image)]


def _list_preparations(report: MigrationReport, names: str, image: str) -> Iterator[PlanStep]:
    if report.problems:
        yield PlanStep("Put right what stands under Policies; look at the files with lictor lint.")
    yield PlanStep(
        "Keep what is there now, for the way back.", f"lictor migrate {names} --save {_SAVED}"
    )
    for manager in report.managers:
        yield PlanStep(
            f"{manager} would bring Kyverno back with its next change: suspend it, or leave "
            "Kyverno out of what it looks after."
        )
    if not report.is_lictor:
        yield PlanStep(
            "Let lictor evaluate live requests beside Kyverno, without effect, and compare.",
            f"lictor migrate {names} --compare --in-cluster --image {image} | kubectl apply -f -",
        )


def _list_changes(report: MigrationReport, names: str, image: str) -> Iterator[PlanStep]:
    install = f"lictor install {names} --image {image}"
    yield PlanStep("See what would change.", f"{install} --diff")
    if any(each.problem for each in report.deployments):
        yield PlanStep(
            "Deployments cannot be replaced in place: install lictor beside Kyverno, under its own "
            "names, and then remove Kyverno's webhooks and Deployments. Both use the same kinds.",
            f"lictor install --image {image} --apply",
        )
    else:
        yield PlanStep(
            "Switch: Pods are replaced one after the other, and every request is answered.",
            f"{install} --apply",
        )
    yield PlanStep("See that every policy is ready.", f"lictor status {names}")
    if report.unused:
        yield PlanStep(
            "Delete what nothing uses any more, once you are sure to stay.",
            # `--` ends the options: a name may look like one.
            join(("kubectl", "delete", "-n", report.namespace, "--", *report.unused)),
        )
    yield PlanStep(
        "The way back, at any time: Kyverno's Deployments in place of lictor's, Pod by Pod.",
        f"lictor migrate {names} --restore {_SAVED}",
    )
