"""`fix test`: bring test files, and the values and user infos they name, up to date."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from lictor.cli.fix.files import find_files, read_documents, write_documents
from lictor.cli.fix.repair_test import repair_kind, repair_test
from lictor.cli.flag_command import FlagCommand
from lictor.errors import LictorError, LoadError, UsageError
from lictor.load.policies import load_documents
from lictor.offline.sources import SourceText, read_policies, resolve_path
from lictor.raw import Json, JsonObject

_EXAMPLES = """\
# Show what is old in test files
lictor fix test .

# Bring them up to date
lictor fix test . --save

# Test files with a name of your own
lictor fix test . --file-name test.yaml --save"""


class Wishes(msgspec.Struct, frozen=True):
    """What is to be done with a file."""

    save: bool
    force: bool
    compress: bool


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
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
    wishes = Wishes(save, force, compress)
    for folder in arguments:
        if not os.path.isdir(folder):
            os.stat(folder)
            raise UsageError(f"{folder}: not a directory")
        for path in find_files(folder, lambda name: name == file_name):
            _fix_file(path, wishes)
    click.echo("Done.")


def _fix_file(path: str, wishes: Wishes) -> None:
    click.echo(f"Processing test file ({path})...")
    try:
        documents = read_documents(path)
        repairs = [
            repair_test(
                document,
                os.path.basename(path),
                compress=wishes.compress,
                namespaced=_find_namespaced(document, path),
            )
            for document in documents
        ]
    except (LictorError, OSError) as error:
        # Never written back: what could not be read would be lost.
        click.echo(f"  ERROR: loading test file ({path}): {error}")
        return
    for document, repair in zip(documents, repairs, strict=True):
        _tell(repair.messages)
        _fix_named(document, path, wishes)
        click.echo()
    _save(path, documents, [repair.document for repair in repairs], ("test file", wishes))


def _find_namespaced(document: Json, path: str) -> frozenset[str]:
    """The names of the policies with a namespace, among those that a test names."""
    named = document.get("policies") if isinstance(document, dict) else None
    paths = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
    try:
        folder = Path(path).parent
        texts = list(read_policies([resolve_path(each, folder) for each in paths]))
    except LictorError:
        # A policy that cannot be read is not this command's business; `test` will tell.
        return frozenset()
    loaded = [policy for text in texts for policy in _list_policies(text)]
    return frozenset(name for name, is_namespaced in loaded if is_namespaced)


def _list_policies(text: SourceText) -> Iterator[tuple[str, bool]]:
    found = load_documents(text.content, text.path)
    heads = [each.record.metadata for each in found.policies]
    heads += [each.record.metadata for each in found.cel_policies]
    yield from ((head.name, bool(head.namespace)) for head in heads)


def _fix_named(document: JsonObject, path: str, wishes: Wishes) -> None:
    for field, kind, label in (
        ("userinfo", "UserInfo", "user info file"),
        ("variables", "Values", "values file"),
    ):
        name = document.get(field)
        if isinstance(name, str) and name:
            click.echo(f"  Processing {label} ({name})...")
            _fix_companion(os.path.join(os.path.dirname(path), name), kind, label, wishes)


def _fix_companion(path: str, kind: str, label: str, wishes: Wishes) -> None:
    try:
        documents = read_documents(path)
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise LoadError("expected one mapping", where=path)
    except (LictorError, OSError) as error:
        click.echo(f"    ERROR: failed to load {label.removesuffix(' file')}: {error}")
        return
    repair = repair_kind(documents[0], kind)
    _tell(repair.messages)
    _save(path, documents, [repair.document], (label, wishes))


def _tell(messages: tuple[str, ...]) -> None:
    for message in messages:
        click.echo(f"  WARNING: {message}")


def _save(path: str, old: list[Json], new: list[Json], how: tuple[str, Wishes]) -> None:
    label, wishes = how
    if wishes.save and (wishes.force or old != new):
        click.echo(f"  Saving {label} ({path})...")
        write_documents(path, new)
        click.echo("    OK")
