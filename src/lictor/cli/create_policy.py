"""`create policy`: asks what to check, and writes a policy with resources and a test."""

from pathlib import Path

import click

from lictor.cli.field_demands import find_kind, parse_demand
from lictor.cli.flag_command import FlagCommand, WordText
from lictor.cli.generate_drafts import GenerateDraft, draft_generate_files, has_usual_fields
from lictor.cli.policy_drafts import DraftRule, PolicyDraft, draft_files
from lictor.core.errors import UsageError

_EXAMPLES = """\
# Be asked for everything else
lictor create policy team-label

# Every Pod has a label
lictor create policy team-label --rule validate --kind Pod --check 'metadata.labels.team=?*'

# The same kind of check in CEL, which refuses what fails
lictor create policy few-replicas --rule cel --kind Deployment --check 'spec.replicas=<=3' --enforce

# A default for a field
lictor create policy pull-always --rule mutate --kind Pod --check spec.containers.imagePullPolicy=Always

# A NetworkPolicy for every new namespace
lictor create policy closed --rule generate --kind Namespace --makes NetworkPolicy"""  # noqa: E501

_GENERATE = "generate"
_RULES = (*DraftRule, _GENERATE)


@click.command(cls=FlagCommand, arity=(1, 1), examples=_EXAMPLES)
@click.option(
    "--rule", type=WordText(_RULES), default="", help="validate, cel, mutate or generate."
)
@click.option("--kind", default="", help="The kind that the policy is about, such as Pod.")
@click.option("--makes", default="", help="The kind that a generate rule makes.")
@click.option("--check", default="", help="FIELD=VALUE; ?* is any text, <=3 at most three.")
@click.option("--message", default="", help="What people read whose resource fails.")
@click.option("--enforce", is_flag=True, help="Refuse what fails (only report it).")
@click.option("-o", "--output", default="", help="Folder for the files (the name of the policy).")
def policy(
    *, arguments: tuple[str, ...], rule: str, kind: str, check: str, **more: str | bool
) -> None:
    """Create a policy with the given NAME, resources that pass and fail, and a test.

    A generate rule comes with a trigger, what it makes of it, and the ClusterRole that it needs;
    --check is then a field of what is made. Whatever is not given is asked for.
    """
    [name] = arguments
    rule = rule or _ask("Kind of rule (validate, cel, mutate, generate)", "validate")
    if rule not in _RULES:
        raise UsageError(f'there is no rule "{rule}" to create: use {", ".join(_RULES)}')
    if rule == _GENERATE:
        files = draft_generate_files(_ask_generate(name, kind, str(more["makes"]), check))
    else:
        resource = find_kind(kind or _ask("Kind of resource", "Pod"))
        check = check or _ask("Check (FIELD=VALUE)", "metadata.labels.team=?*")
        demand = parse_demand(check, resource)
        message, is_enforced = str(more["message"]), bool(more["enforce"])
        files = draft_files(
            PolicyDraft(name, DraftRule(rule), resource, demand, message, is_enforced)
        )
    folder = Path(str(more["output"]) or name)
    _write(folder, files)
    click.echo(f"\nNext: lictor lint {folder} && lictor test {folder} --coverage")


def _ask_generate(name: str, kind: str, makes: str, check: str) -> GenerateDraft:
    trigger = find_kind(kind or _ask("Kind of the trigger", "Namespace"))
    made = find_kind(makes or _ask("Kind that is made", "NetworkPolicy"))
    if not check and not has_usual_fields(made):
        check = _ask(f"Field of the {made.kind} (FIELD=VALUE)", "metadata.labels.team=nobody")
    return GenerateDraft(name, trigger, made, parse_demand(check, made) if check else None)


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
