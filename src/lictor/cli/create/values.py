"""`create values`: a values file to start from."""

import click

from lictor.cli.create.output import parse_pairs, render_labels, render_values, write_text
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.report.yaml_text import render_scalar

_EXAMPLES = (
    "lictor create values -g request.mode=dev -n prod,env=prod "
    "--rule policy,rule,env=demo --resource policy,resource,env=demo"
)


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@slice_option("-g", "--global", "global_values", help="A value for all policies: key=value.")
@click.option("-n", "--ns-selector", "namespaces", multiple=True, help="namespace,label=value,...")
@click.option("--resource", "resources", multiple=True, help="policy,resource,key=value,...")
@click.option("--rule", "rules", multiple=True, help="policy,rule,key=value,...")
def values(
    *,
    output: str,
    global_values: tuple[str, ...],
    namespaces: tuple[str, ...],
    resources: tuple[str, ...],
    rules: tuple[str, ...],
) -> None:
    """Create a values file."""
    policies = [_render_policy(given, "rules") for given in rules]
    policies += [_render_policy(given, "resources") for given in resources]
    text = (
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\n\n"
        f"# list of policy values\npolicies:\n{''.join(policies)}\n"
        f"# list of global values\nglobalValues:\n{_render_pairs(global_values)}\n"
        "# list of namespace selectors\nnamespaceSelector:\n"
        f"{''.join(_render_namespace(given) for given in namespaces)}"
    )
    write_text(text, output)


def _render_pairs(pairs: tuple[str, ...]) -> str:
    return render_values(parse_pairs(pairs), "  ")


def _render_policy(given: str, kind: str) -> str:
    policy, name, pairs = _split(given, 2)
    return (
        f"  - name: {render_scalar(policy)}\n    {kind}:\n      - name: {render_scalar(name)}\n"
        f"        values:\n{render_values(parse_pairs(pairs), '          ')}"
    )


def _render_namespace(given: str) -> str:
    name, _, pairs = _split(given, 1)
    labels = render_labels(parse_pairs(pairs), "      ")
    return f"  - name: {render_scalar(name)}\n    labels:\n{labels}"


def _split(given: str, names: int) -> tuple[str, str, list[str]]:
    parts = [part for part in given.split(",") if part]
    if len(parts) <= names:
        raise click.UsageError(f'"{given}" says too little: see --help for the parts it needs')
    return parts[0], parts[1] if names == 2 else "", parts[names:]
