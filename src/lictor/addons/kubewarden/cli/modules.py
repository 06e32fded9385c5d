"""What is known of modules (`annotate`, `inspect`), and of the commands themselves."""

from datetime import datetime
from pathlib import Path

import click

from lictor.addons.kubewarden.cli.module_metadata import TextSection
from lictor.addons.kubewarden.cli.options import WasmCommand, source_options, warn
from lictor.cli.terminal import show_plainly
from lictor.core.release import VERSION

_SHELLS = ("bash", "elvish", "fish", "powershell", "zsh")
_ANNOTATE_EXAMPLES = """\
# Make a policy of a module that a compiler wrote
lictor wasm annotate -m metadata.yml -u README.md -o annotated.wasm policy.wasm"""
_INSPECT_EXAMPLES = """\
# For people, and for programs
lictor wasm inspect policy.wasm
lictor wasm inspect -o yaml registry://ghcr.io/team/policies/labels:v1"""


@click.command(
    cls=WasmCommand,
    arity=(1, 1),
    required_flags=["metadata-path", "output-path"],
    examples=_ANNOTATE_EXAMPLES,
)
@click.option("-m", "--metadata-path", default="", help="File with the metadata.")
@click.option("-u", "--usage-path", default="", help="File with the usage of the policy.")
@click.option("-o", "--output-path", default="", help="File to write.")
def annotate(
    *, arguments: tuple[str, ...], metadata_path: str, usage_path: str, output_path: str
) -> None:
    """Write metadata into a WebAssembly module, and replace existing metadata."""
    from lictor.addons.kubewarden.cli.inspection import annotate_file

    warn(annotate_file(arguments[0], metadata_path, usage_path, output_path))


@click.command(cls=WasmCommand, arity=(1, 1), examples=_INSPECT_EXAMPLES)
@click.option(
    "-o", "--output", "form", type=click.Choice(("yaml",)), default=None, help="Print YAML."
)
@click.option("--show-signatures", is_flag=True, help="Also show who signed it.")
@source_options
def inspect(
    *,
    arguments: tuple[str, ...],
    form: str | None,
    show_signatures: bool,
    sources_path: str,
    docker_config_json_path: str,
) -> None:
    """Show the metadata of a policy: its rules, and what it reads.

    The policy is a file, an address, or the beginning of a SHA-256 of one that was pulled.
    """
    from lictor.addons.kubewarden.cli.chosen_modules import SourceFlags
    from lictor.addons.kubewarden.cli.inspection import describe_signatures, read_described
    from lictor.addons.kubewarden.cli.module_metadata import describe_metadata, metadata_to_json
    from lictor.core.report.manifest_text import render_manifest

    flags = SourceFlags(sources_path, docker_config_json_path)
    found = read_described(arguments[0], flags)
    if form == "yaml":
        click.echo(render_manifest(metadata_to_json(found.metadata)), nl=False)
    else:
        click.echo("\n\n".join(map(_render, describe_metadata(found.metadata))))
    if show_signatures:
        click.echo(f"\n{_render(describe_signatures(found.address, flags))}")


def _render(section: TextSection) -> str:
    lines = map(show_plainly, section.lines)
    return "\n".join((click.style(section.heading, bold=True), *lines))


@click.command(cls=WasmCommand)
def info() -> None:
    """Show versions, the builtins for policies in Rego, and the folders in use."""
    from lictor.addons.kubewarden.cli.inspection import describe_installation

    click.echo(f"lictor version: {VERSION}")
    click.echo("\n".join(describe_installation()))


@click.command(cls=WasmCommand, required_flags=["shell"])
@click.option("-s", "--shell", type=click.Choice(_SHELLS), default=None, help="Which shell.")
@click.pass_context
def completions(ctx: click.Context, *, shell: str) -> None:
    """Print the script that lets a shell complete all commands of lictor."""
    from lictor.cli.completion import render_script

    click.echo(render_script(ctx.find_root().command, shell), nl=False)


@click.command(cls=WasmCommand, required_flags=["output"])
@click.option("-o", "--output", default="", help="File to write.")
@click.pass_context
def docs(ctx: click.Context, *, output: str) -> None:
    """Write the reference of these commands as Markdown, on one page."""
    from lictor.cli.docs import PageOptions, list_pages

    group = ctx.parent
    if group is None:
        raise click.UsageError("docs is a command of lictor wasm", ctx)
    options = PageOptions(now=datetime.now().astimezone(), tag=False, links=True)
    pages = [text for _, text in list_pages(group, options)]
    Path(output).write_text("\n".join(pages), encoding="utf-8")
