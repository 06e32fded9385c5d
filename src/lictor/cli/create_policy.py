"""`create policy`: writes a policy with resources and a test."""

from pathlib import Path

import click

from lictor.cli.field_demands import find_kind, parse_demand
from lictor.cli.flag_command import FlagCommand, WordText
from lictor.cli.policy_drafts import DraftRule, PolicyDraft, draft_files, has_usual_fields
from lictor.core.errors import UsageError

_EXAMPLES = """\
# Prompt for everything else
lictor create policy team-label

# Every Pod has a label
lictor create policy team-label --rule validate --kind Pod --check 'metadata.labels.team=?*'

# The same kind of check in CEL, which denies failures
lictor create policy few-replicas --rule cel --kind Deployment --check 'spec.replicas=<=3' --enforce

# A default for a field
lictor create policy pull-always --rule mutate --kind Pod --check spec.containers.imagePullPolicy=Always

# A NetworkPolicy for every new namespace
lictor create policy closed --rule generate --kind Namespace --makes NetworkPolicy"""  # noqa: E501

_RULES = tuple(DraftRule)


@click.command(cls=FlagCommand, arity=(1, 1), examples=_EXAMPLES)
@click.option(
    "--rule", type=WordText(_RULES), default="", help="validate, cel, mutate or generate."
)
@click.option("--kind", default="", help="The kind that the policy is about, such as Pod.")
@click.option("--makes", default="", help="The kind that a generate rule makes.")
@click.option("--check", default="", help="FIELD=VALUE; ?* is any text, <=3 at most three.")
@click.option("--message", default="", help="The message of a failure.")
@click.option("--enforce", is_flag=True, help="Deny failures (default: only report them).")
@click.option("-o", "--output", default="", help="Folder for the files (the name of the policy).")
def policy(*, arguments: tuple[str, ...], output: str, **flags: str) -> None:
    """Create a policy with the given NAME, resources that pass and fail, and a test.

    A generate rule comes with a trigger, the generated object, and the required ClusterRole;
    --check is then a field of the generated object. Missing values are prompted for.
    """
    [name] = arguments
    files = draft_files(_read_draft(name, **flags))
    folder = Path(output or name)
    _write(folder, files)
    click.echo(f"\nNext: lictor lint {folder} && lictor test {folder} --coverage")


def _read_draft(
    name: str, *, rule: str, kind: str, check: str, makes: str, **more: str
) -> PolicyDraft:
    rule = rule or _prompt("Kind of rule (validate, cel, mutate, generate)", "validate")
    if rule not in _RULES:
        raise UsageError(f'there is no rule "{rule}" to create: use {", ".join(_RULES)}')
    if rule != DraftRule.GENERATE:
        resource = find_kind(kind or _prompt("Kind of resource", "Pod"))
        check = check or _prompt("Check (FIELD=VALUE)", "metadata.labels.team=?*")
        message, is_enforced = more["message"], bool(more["enforce"])
        demand = parse_demand(check, resource)
        return PolicyDraft(name, DraftRule(rule), resource, demand, message, is_enforced)
    trigger = find_kind(kind or _prompt("Kind of the trigger", "Namespace"))
    made = find_kind(makes or _prompt("Kind that is made", "NetworkPolicy"))
    if not check and not has_usual_fields(made):
        check = _prompt(f"Field of the {made.kind} (FIELD=VALUE)", "metadata.labels.team=example")
    wanted = parse_demand(check, made) if check else None
    return PolicyDraft(name, DraftRule.GENERATE, trigger, wanted, made=made)


def _prompt(question: str, default: str) -> str:
    try:
        return str(click.prompt(question, default=default, err=True))
    except click.Abort as error:
        raise UsageError("no answer to the prompt: give --rule, --kind and --check") from error


def _write(folder: Path, files: dict[str, str]) -> None:
    existing = [str(folder / name) for name in files if (folder / name).exists()]
    if existing:
        raise UsageError(f"{', '.join(existing)}: exists already; give another folder by --output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
            click.echo(f"wrote {folder / name}")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
