"""`create exception`: a policy exception to start from."""

import click

from lictor.cli.create.output import render_items, write_text
from lictor.cli.flag_command import FlagCommand
from lictor.report.yaml_text import render_scalar

_FIELDS = {"kind": "kinds", "name": "names", "namespace": "namespaces", "operation": "operations"}
_EXAMPLES = (
    'lictor create exception my-exception --namespace my-ns --policy-rules "policy,rule-1,rule-2" '
    '--any "kind=Pod,kind=Deployment,name=test-*"'
)


@click.command(cls=FlagCommand, arity=(1, 1), required_flags=["policy-rules"], examples=_EXAMPLES)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("--namespace", default="", help="Namespace of the exception.")
@click.option(
    "-b", "--background/--no-background", default=True, help="Also spare it in background scans."
)
@click.option("--policy-rules", multiple=True, help="policy,rule-1,rule-2,...")
@click.option("--any", "any_of", multiple=True, help="A filter: kind=Pod,name=test-*,...")
@click.option("--all", "all_of", multiple=True, help="A filter: kind=Pod,name=test-*,...")
def exception(
    *,
    arguments: tuple[str, ...],
    background: bool,
    any_of: tuple[str, ...],
    all_of: tuple[str, ...],
    **more: str | tuple[str, ...],
) -> None:
    """Create a policy exception with the given NAME."""
    text = (
        "apiVersion: kyverno.io/v2\nkind: PolicyException\n"
        f"metadata:\n  name: {render_scalar(arguments[0])}\n"
        f"  namespace: {render_scalar(str(more['namespace']) or 'default')}\n"
        f"spec:\n  background: {'true' if background else 'false'}\n  match:\n"
        f"{_render_filters('any', any_of)}{_render_filters('all', all_of)}"
        f"  exceptions:\n{''.join(_render_rules(given) for given in more['policy_rules'])}"
    )
    write_text(text, str(more["output"]))


def _render_rules(given: str) -> str:
    policy, *rules = given.split(",")
    if not policy or not all(rules) or not rules:
        raise click.UsageError(f'"{given}" names no rules: write policy,rule-1,rule-2')
    return (
        f"    - policyName: {render_scalar(policy)}\n      ruleNames:\n"
        f"{render_items(rules, '        ')}"
    )


def _render_filters(word: str, given: tuple[str, ...]) -> str:
    if not given:
        return ""
    return f"    {word}:\n" + "".join(_render_filter(filter_) for filter_ in given)


def _render_filter(given: str) -> str:
    fields: dict[str, list[str]] = {}
    for part in given.split(","):
        key, equals, value = part.partition("=")
        if key not in _FIELDS or not equals:
            known = ", ".join(f"{name}=" for name in _FIELDS)
            raise click.UsageError(f'"{part}" in "{given}" is no filter: use {known}')
        fields.setdefault(_FIELDS[key], []).append(value)
    lines = "".join(
        f"        {field}:\n{render_items(fields[field], '          ')}"
        for field in _FIELDS.values()
        if field in fields
    )
    return f"    - resources:\n{lines}"
