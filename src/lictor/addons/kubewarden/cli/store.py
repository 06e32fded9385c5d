"""Policies in registries and in the local store: fetch, share, list, verify, remove, archive."""

import click
import orjson

from lictor.addons.kubewarden.cli.options import (
    WasmCommand,
    source_options,
    verification_options,
    warn,
)
from lictor.cli.flag_command import read_bool
from lictor.core.raw import Json

_PULL_EXAMPLES = """\
# Into the store, if it was signed with this key
lictor wasm pull -k cosign.pub registry://ghcr.io/team/policies/labels:v1

# Into a file
lictor wasm pull -o labels.wasm https://example.com/labels.wasm"""
_FORCE = ("-f", "--force")


@click.command(cls=WasmCommand, arity=(1, 1), examples=_PULL_EXAMPLES)
@click.option("-o", "--output-path", default="", help="File to write, instead of the store.")
@source_options
@verification_options
def pull(*, arguments: tuple[str, ...], output_path: str, **flags: Json) -> None:
    """Fetch a policy; where its tag has moved since the last time, fetch it anew."""
    from lictor.addons.kubewarden.cli.chosen_modules import pull_module, split_flags

    sources, wanted = split_flags(flags)
    pull_module(arguments[0], sources, wanted, output_path)


class PushCommand(WasmCommand):
    """`push`, which takes `-f` alone and, as kwctl wants it, with a word behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        made: list[str] = []
        words = list(args)
        while words:
            word = words.pop(0)
            if word in _FORCE and words and read_bool(words[0]) is not None:
                word = f"{word}={words.pop(0)}"
            made.append(word)
        return super().parse_args(ctx, made)


@click.command(cls=PushCommand, arity=(2, 2))
@click.option("-f", "--force", is_flag=True, help="Push a module without metadata too.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    help="How the digest is printed.",
)
@source_options
def push(
    *,
    arguments: tuple[str, ...],
    force: bool,
    form: str,
    sources_path: str,
    docker_config_json_path: str,
) -> None:
    """Put a policy (a file, or one that was pulled) into a registry."""
    from lictor.addons.kubewarden.cli.chosen_modules import SourceFlags, push_module

    flags = SourceFlags(sources_path, docker_config_json_path)
    pushed = push_module(arguments[0], arguments[1], flags, force=force)
    warn(pushed.warnings)
    if form == "json":
        click.echo(orjson.dumps({"immutable_ref": pushed.reference}))
    else:
        click.echo(f"Policy successfully pushed: {pushed.reference}")


@click.command(cls=WasmCommand, arity=(1, 1))
@source_options
def digest(*, arguments: tuple[str, ...], sources_path: str, docker_config_json_path: str) -> None:
    """Print the address of a policy with the digest that a registry has for it now."""
    from lictor.addons.kubewarden.cli.chosen_modules import SourceFlags, find_digest

    flags = SourceFlags(sources_path, docker_config_json_path)
    click.echo(f"{arguments[0]}@{find_digest(arguments[0], flags)}")


@click.command(cls=WasmCommand, arity=(1, 1))
@source_options
@verification_options
def verify(*, arguments: tuple[str, ...], **flags: Json) -> None:
    """Check that a policy in a registry has the required signatures."""
    from lictor.addons.kubewarden.cli.chosen_modules import split_flags, verify_module_at

    sources, wanted = split_flags(flags)
    verify_module_at(arguments[0], sources, wanted)
    click.echo("Policy successfully verified", err=True)


@click.command(cls=WasmCommand)
def policies() -> None:
    """List the policies that were pulled."""
    from lictor.addons.kubewarden.cli.chosen_modules import list_stored
    from lictor.addons.kubewarden.cli.module_metadata import render_stored

    click.echo("".join(f"{line}\n" for line in render_stored(list_stored())), nl=False)


@click.command(cls=WasmCommand, arity=(1, 1))
def remove(*, arguments: tuple[str, ...]) -> None:
    """Remove a policy from the store: by its address, or by the beginning of its SHA-256."""
    from lictor.addons.kubewarden.cli.chosen_modules import remove_stored

    remove_stored(arguments[0])


@click.command(cls=WasmCommand, arity=(1, None), required_flags=["output"])
@click.option("-o", "--output", default="", help="The archive (tar.gz) to write.")
def save(*, arguments: tuple[str, ...], output: str) -> None:
    """Write policies of the store into an archive."""
    from lictor.addons.kubewarden.cli.chosen_modules import save_stored

    save_stored(arguments, output)


@click.command(cls=WasmCommand, required_flags=["input"])
@click.option("--input", default="", help="The archive to read.")
def load(*, input: str) -> None:
    """Take the policies of an archive into the store."""
    from lictor.addons.kubewarden.cli.chosen_modules import load_archive

    load_archive(input)
