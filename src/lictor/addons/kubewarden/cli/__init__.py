"""`wasm`: Kubewarden's policies on a laptop, with the flags and exit codes of kwctl."""

import os

import click

from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.core.release import VERSION

_EXAMPLES = """\
# Evaluate a request with a policy.
lictor wasm run policy.wasm -r request.json --settings-json '{"denied": ["latest"]}'

# What is it, and what does it want to read of the cluster?
lictor wasm inspect registry://ghcr.io/team/policies/labels:v1

# Put it into a cluster
lictor wasm scaffold manifest -t AdmissionPolicy policy.wasm"""


def _command(module: str, name: str, summary: str) -> LazyCommand:
    return LazyCommand(f"lictor.addons.kubewarden.cli.{module}", name, summary)


COMMANDS = {
    "annotate": _command("modules", "annotate", "Write metadata into a module."),
    "bench": _command("run", "bench", "Measure how long a policy takes."),
    "completions": _command("modules", "completions", "Print the completion script for a shell."),
    "digest": _command("store", "digest", "Print the digest of a policy in a registry."),
    "docs": _command("modules", "docs", "Write the reference of these commands."),
    "info": _command("modules", "info", "Show versions, builtins and folders."),
    "inspect": _command("modules", "inspect", "Show the metadata of a policy."),
    "load": _command("store", "load", "Take policies from an archive."),
    "policies": _command("store", "policies", "List the policies that were pulled."),
    "pull": _command("store", "pull", "Fetch a policy."),
    "push": _command("store", "push", "Put a policy into a registry."),
    "rm": _command("store", "remove", "Remove a policy that was pulled."),
    "run": _command("run", "run", "Evaluate a request with a policy."),
    "save": _command("store", "save", "Write policies into an archive."),
    "scaffold": _command("scaffold", "scaffold", "Print files to start from."),
    "verify": _command("store", "verify", "Check who signed a policy."),
}


def _set_verbosity(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        ctx.find_root().obj = 1


def _set_color(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value or os.environ.get("NO_COLOR"):
        ctx.color = False


wasm = LazyGroup(
    name="wasm",
    lazy=COMMANDS,
    examples=_EXAMPLES,
    bare_code=2,
    help=(
        "Run, inspect, verify, fetch and share Kubewarden's policies in WebAssembly.\n\n"
        "Flags and exit codes are kwctl's: a policy that rejects is an answer, and ends with 0."
    ),
    params=[
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_set_verbosity,
            help="Print more on standard error.",
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            expose_value=False,
            callback=_set_color,
            help="Print without colours; so does NO_COLOR.",
        ),
    ],
)
click.version_option(VERSION, "-V", "--version", prog_name="lictor wasm")(wasm)
