"""`rule`: explains a rule of `lint`, from the same text as its page in docs/rules."""

import tomllib
from importlib import resources
from typing import TYPE_CHECKING

import click

from lictor.cli.flag_command import FlagCommand
from lictor.core.errors import UsageError

if TYPE_CHECKING:
    from lictor.lint.catalog import LintCheck

_EXAMPLES = """\
# What does the code of a finding mean?
lictor rule LIC304

# The same by name
lictor rule wildcard-kind"""


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
def rule(*, arguments: tuple[str, ...]) -> int:
    """Explain rules of lint: what they find and why, a bad and a good example.

    Exits with 0, or with 2 if there is no such rule.
    """
    click.echo("\n".join(explain_rule(name) for name in arguments), nl=False)
    return 0


def explain_rule(name: str) -> str:
    """The text about a rule, by its code or name."""
    from lictor.cli.lazy_group import suggest
    from lictor.lint.catalog import CHECKS

    by_code = {check.code: check for check in CHECKS.values()}
    found = CHECKS.get(name.lower()) or by_code.get(name.upper())
    if found is None:
        hint = suggest(name, [*CHECKS, *by_code])
        raise UsageError(f"no rule of lint has the code or name {name!r}{hint}")
    return render_rule(found, read_rule_examples().get(found.code, {}))


def read_rule_examples() -> dict[str, dict[str, str]]:
    """By code: why, wrong, right."""
    file = resources.files("lictor.lint").joinpath("rule_examples.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def render_rule(check: "LintCheck", example: dict[str, str]) -> str:
    """The text about one rule, as Markdown."""
    lines = [f"# {check.code}: {check.name}", "", f"{check.summary} ({check.severity})", ""]
    if check.opt_in:
        lines += [f"Runs only if you select it: `--select ALL,{check.code}`.", ""]
    if "why" in example:
        lines += [example["why"], ""]
    for field, title in (("wrong", "Mistake"), ("right", "Correction")):
        if field in example:
            text = example[field].strip("\n").replace("validate: null\n", "")
            lines += [f"## {title}", "", "```yaml", text, "```", ""]
    return "\n".join([*lines, f"To ignore it on a line: `# lictor: ignore[{check.code}]`.", ""])
