"""`fix policy`: bring policy files up to date."""

import click

from lictor.cli.fix.files import find_files, read_documents, write_documents
from lictor.cli.fix.repair_policy import is_policy, repair_policy
from lictor.cli.flag_command import FlagCommand
from lictor.errors import LictorError
from lictor.files import YAML_ENDINGS

_EXAMPLES = """\
# Show what is old in policy files
lictor fix policy .

# Bring them up to date
lictor fix policy . --save"""


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
@click.option("--save", is_flag=True, help="Write the files; comments in them are not kept.")
def policy(*, arguments: tuple[str, ...], save: bool) -> None:
    """Bring the policies in files or folders up to date."""
    for path in arguments:
        for file in find_files(path, lambda name: name.endswith(YAML_ENDINGS)):
            _fix_file(file, save=save)
    click.echo("Done.")


def _fix_file(path: str, *, save: bool) -> None:
    try:
        documents = read_documents(path)
    except LictorError as error:
        # A folder of policies may hold templates and the like: say so and go on.
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
