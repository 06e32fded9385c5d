"""`fix`: brings old policy and test files up to date."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from lictor.cli.flag_command import FlagCommand
from lictor.cli.inputs.sources import SourceText, read_policies, resolve_path
from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.cli.repairs import (
    find_files,
    is_policy,
    read_bodies,
    repair_kind,
    repair_policy,
    repair_test,
    write_documents,
)
from lictor.core.errors import LictorError, LoadError, UsageError
from lictor.core.files import YAML_ENDINGS
from lictor.core.load.policies import load_documents
from lictor.core.raw import Json, JsonObject

_TEST_EXAMPLES = """\
# Show what is old in test files
lictor fix test .

# Bring them up to date
lictor fix test . --save

# Test files with a name of your own
lictor fix test . --file-name test.yaml --save"""


class FixOptions(msgspec.Struct, frozen=True):
    """What is to be done with a file."""

    save: bool
    force: bool
    compress: bool


@click.command(cls=FlagCommand, arity=(1, None), examples=_TEST_EXAMPLES)
@click.option("-f", "--file-name", default="kyverno-test.yaml", show_default=True, help="Name.")
@click.option("--save", is_flag=True, help="Write the files; comments in them are not kept.")
@click.option("--force", is_flag=True, help="Write files that were right already, too.")
@click.option("--compress", is_flag=True, help="Merge results that differ in resources only.")
def test(
    *, arguments: tuple[str, ...], file_name: str, save: bool, force: bool, compress: bool
) -> None:
    """Bring the test files below folders up to date."""
    if not file_name:
        raise UsageError("file-name must not be set to an empty string")
    options = FixOptions(save, force, compress)
    for folder in arguments:
        if not os.path.isdir(folder):
            os.stat(folder)
            raise UsageError(f"{folder}: not a directory")
        for path in find_files(folder, lambda name: name == file_name):
            _fix_test_file(path, options)
    click.echo("Done.")


def _fix_test_file(path: str, options: FixOptions) -> None:
    click.echo(f"Processing test file ({path})...")
    try:
        documents = read_bodies(path)
        repairs = [
            repair_test(
                document,
                os.path.basename(path),
                compress=options.compress,
                namespaced=_find_namespaced(document, path),
            )
            for document in documents
        ]
    except (LictorError, OSError) as error:
        # Never written back: what could not be read would be lost.
        click.echo(f"  ERROR: loading test file ({path}): {error}")
        return
    for document, repair in zip(documents, repairs, strict=True):
        _print_messages(repair.messages)
        _fix_named(document, path, options)
        click.echo()
    _save(path, documents, [repair.document for repair in repairs], ("test file", options))


def _find_namespaced(document: Json, path: str) -> frozenset[str]:
    """The names of the policies with a namespace, among those that a test names."""
    named = document.get("policies") if isinstance(document, dict) else None
    paths = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
    try:
        folder = Path(path).parent
        texts = list(read_policies([resolve_path(each, folder) for each in paths]))
    except LictorError:
        # A policy that cannot be read is reported by `test`.
        return frozenset()
    loaded = [policy for text in texts for policy in _list_policies(text)]
    return frozenset(name for name, is_namespaced in loaded if is_namespaced)


def _list_policies(text: SourceText) -> Iterator[tuple[str, bool]]:
    found = load_documents(text.content, text.path)
    heads = [each.record.metadata for each in found.listed]
    yield from ((head.name, bool(head.namespace)) for head in heads)


def _fix_named(document: JsonObject, path: str, options: FixOptions) -> None:
    for field, kind, label in (
        ("userinfo", "UserInfo", "user info file"),
        ("variables", "Values", "values file"),
    ):
        name = document.get(field)
        if isinstance(name, str) and name:
            click.echo(f"  Processing {label} ({name})...")
            _fix_named_file(os.path.join(os.path.dirname(path), name), kind, label, options)


def _fix_named_file(path: str, kind: str, label: str, options: FixOptions) -> None:
    try:
        documents = read_bodies(path)
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise LoadError("expected one mapping", where=path)
    except (LictorError, OSError) as error:
        click.echo(f"    ERROR: failed to load {label.removesuffix(' file')}: {error}")
        return
    repair = repair_kind(documents[0], kind)
    _print_messages(repair.messages)
    _save(path, documents, [repair.document], (label, options))


def _print_messages(messages: tuple[str, ...]) -> None:
    for message in messages:
        click.echo(f"  WARNING: {message}")


def _save(path: str, old: list[Json], new: list[Json], how: tuple[str, FixOptions]) -> None:
    label, options = how
    if options.save and (options.force or old != new):
        click.echo(f"  Saving {label} ({path})...")
        write_documents(path, new)
        click.echo("    OK")


_POLICY_EXAMPLES = """\
# Show what is old in policy files
lictor fix policy .

# Bring them up to date
lictor fix policy . --save"""


@click.command(cls=FlagCommand, arity=(1, None), examples=_POLICY_EXAMPLES)
@click.option("--save", is_flag=True, help="Write the files; comments in them are not kept.")
def policy(*, arguments: tuple[str, ...], save: bool) -> None:
    """Bring the policies in files or folders up to date."""
    for path in arguments:
        for file in find_files(path, lambda name: name.endswith(YAML_ENDINGS)):
            _fix_policy_file(file, save=save)
    click.echo("Done.")


def _fix_policy_file(path: str, *, save: bool) -> None:
    try:
        documents = read_bodies(path)
    except LictorError as error:
        # A folder of policies may contain templates: warn and continue.
        click.echo(f"Skipping file ({path}): {error}")
        return
    fixed = []
    for document in documents:
        if not is_policy(document):
            fixed.append(document)
            continue
        click.echo(f"Processing file ({path})...")
        repair = repair_policy(document)
        for message in repair.messages:
            click.echo(f"  WARNING: {message}")
        fixed.append(repair.document)
    if save and fixed != documents:
        click.echo(f"  Saving file ({path})...")
        write_documents(path, fixed)
        click.echo("    OK")


fix = LazyGroup(
    name="fix",
    help="Bring old files up to date: deprecated fields are moved to where they belong today.",
    lazy={
        "policy": LazyCommand("lictor.cli.fix", "policy", "Bring policy files up to date."),
        "test": LazyCommand("lictor.cli.fix", "test", "Bring test files up to date."),
    },
    examples="lictor fix test . --save\nlictor fix policy . --save",
)
