"""`create policy`: asks what to check, and writes a policy with resources and a test."""

from pathlib import Path

import click

from lictor.cli.flag_command import FlagCommand, WordText
from lictor.errors import UsageError
from lictor.offline.field_demands import find_kind, parse_demand
from lictor.offline.policy_drafts import DraftRule, PolicyDraft, draft_files

_EXAMPLES = """\
# Be asked for everything else
lictor create policy team-label

# Every Pod has a label
lictor create policy team-label --rule validate --kind Pod --check 'metadata.labels.team=?*'

# The same kind of check in CEL, which refuses what fails
lictor create policy few-replicas --rule cel --kind Deployment --check 'spec.replicas=<=3' --enforce

# A default for a field
lictor create policy pull-always --rule mutate --kind Pod --check spec.containers.imagePullPolicy=Always"""  # noqa: E501

_RULES = tuple(DraftRule)


@click.command(cls=FlagCommand, arity=(1, 1), examples=_EXAMPLES)
@click.option("--rule", type=WordText(_RULES), default="", help="validate, cel or mutate.")
@click.option("--kind", default="", help="The kind that the policy is about, such as Pod.")
@click.option("--check", default="", help="FIELD=VALUE; ?* is any text, <=3 at most three.")
@click.option("--message", default="", help="What people read whose resource fails.")
@click.option("--enforce", is_flag=True, help="Refuse what fails (only report it).")
@click.option("-o", "--output", default="", help="Folder for the files (the name of the policy).")
def policy(
    *, arguments: tuple[str, ...], rule: str, kind: str, check: str, **more: str | bool
) -> None:
    """Create a policy with the given NAME, resources that pass and fail, and a test.

    Whatever is not given is asked for.
    """
    [name] = arguments
    rule = rule or _ask("Kind of rule (validate, cel, mutate)", "validate")
    if rule not in _RULES:
        raise UsageError(f'there is no rule "{rule}" to create: use {", ".join(_RULES)}')
    resource = find_kind(kind or _ask("Kind of resource", "Pod"))
    demand = parse_demand(check or _ask("Check (FIELD=VALUE)", "metadata.labels.team=?*"), resource)
    draft = PolicyDraft(
        name, DraftRule(rule), resource, demand, str(more["message"]), bool(more["enforce"])
    )
    folder = Path(str(more["output"]) or name)
    _write(folder, draft_files(draft))
    click.echo(f"\nNext: lictor lint {folder} && lictor test {folder} --coverage")


def _ask(question: str, usual: str) -> str:
    try:
        return str(click.prompt(question, default=usual, err=True))
    except click.Abort as error:
        raise UsageError("nobody answers: give --rule, --kind and --check") from error


def _write(folder: Path, files: dict[str, str]) -> None:
    there = [str(folder / name) for name in files if (folder / name).exists()]
    if there:
        raise UsageError(f"{', '.join(there)}: there already; name another folder with --output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
            click.echo(f"wrote {folder / name}")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
