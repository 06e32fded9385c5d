"""`create test`: a test file to start from."""

import click

from lictor.cli.create.output import render_items, write_text
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.report.yaml_text import render_scalar

_EXAMPLES = (
    "lictor create test -p policy.yaml -r resource.yaml -f values.yaml "
    "--pass policy-name,rule-name,resource-name,resource-namespace,resource-kind"
)


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("-n", "--name", default="test-name", help="Name of the test.", show_default=True)
@slice_option("-p", "--policy", "policies", help="Policy files.")
@slice_option("-r", "--resource", "resources", help="Resource files.")
@click.option("-f", "--values", default="", help="Values file.")
@click.option("--pass", "passing", multiple=True, help="policy,rule,name,namespace,kind that pass.")
@click.option("--fail", "failing", multiple=True, help="policy,rule,name,namespace,kind that fail.")
@click.option("--skip", "skipped", multiple=True, help="policy,rule,name,namespace,kind skipped.")
def test(**options: str | tuple[str, ...]) -> None:
    """Create a test file."""
    results = [
        _render_result(given, result)
        for result, flag in (("pass", "passing"), ("fail", "failing"), ("skip", "skipped"))
        for given in options[flag]
    ]
    values = str(options["values"])
    text = (
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\n"
        f"metadata:\n  name: {render_scalar(str(options['name']))}\n\n"
        f"# list of policy files\npolicies:\n{render_items(options['policies'], '  ')}\n"
        f"# list of resource files\nresources:\n{render_items(options['resources'], '  ')}\n"
        f"# variables file (optional)\nvariables: {render_scalar(values) if values else ''}\n\n"
        f"# list of expected results\nresults:\n{''.join(results)}"
    )
    write_text(text, str(options["output"]))


def _render_result(given: str, result: str) -> str:
    parts = given.split(",")
    if len(parts) not in (5, 6):
        raise click.UsageError(
            f'"{given}" is no expected result: write policy,rule,name,namespace,kind'
        )
    policy, rule, name, namespace, kind = parts[:5]
    resource = f"{namespace}/{name}" if namespace else name
    patched = f"    patchedResources: {render_scalar(parts[5])}\n" if len(parts) == 6 else ""
    return (
        f"  - policy: {render_scalar(policy)}\n    rule: {render_scalar(rule)}\n"
        f"    resources:\n      - {render_scalar(resource)}\n"
        f"    kind: {render_scalar(kind)}\n{patched}    result: {result}\n"
    )
