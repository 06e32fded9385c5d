"""`convert`: converts classic policies to CEL policies that decide alike."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lictor.addons.convert.conversion import ConversionTarget
from lictor.addons.convert.conversions import PolicyConverter, list_convertible, load_convertible
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.cli.inputs.input_files import load_resource_files

if TYPE_CHECKING:
    pass


_EXAMPLES = """\
# Print a classic policy as CEL policies
lictor convert policy.yaml

# Convert a folder, and compare both forms on resources of your own, too
lictor convert policies/ -r resources/ -o converted/

# Let the API server do the work
lictor convert policy.yaml --to ValidatingAdmissionPolicy"""


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
@click.option(
    "--to",
    "target",
    type=click.Choice([str(each) for each in ConversionTarget]),
    default=str(ConversionTarget.AUTO),
    help="Target kind; auto chooses by the rules of each policy.",
)
@slice_option("-r", "--resource", help="Resources to compare both forms on, and CRDs.")
@click.option("-o", "--output", default="", help="Folder to write to, a file for each policy.")
@click.option(
    "--format", "form", type=click.Choice(("yaml", "json")), default="yaml", help="yaml or json."
)
def convert(
    *, arguments: tuple[str, ...], target: str, resource: tuple[str, ...], output: str, form: str
) -> int:
    """Convert classic policies to CEL policies, if they have an equivalent.

    Prints or writes the new policies. Both forms are compared with requests generated from the
    policy and from the given resources; the result is printed to standard error.

    Exits with 0 if all policies were converted without a difference, with 1 if one was refused
    or gives other results, and with 2 on a usage error.
    """
    loaded = load_convertible(arguments)
    given = list(load_resource_files(resource))
    crds = [each.record for each in loaded.resources]
    converter = PolicyConverter(ConversionTarget(target), [*given, *crds], as_json=form == "json")
    is_good = True
    texts = []
    for policy in list_convertible(loaded):
        converted = converter.convert(policy)
        for line in converted.messages:
            click.echo(line, err=True)
        is_good = is_good and converted.agrees
        if converted.text and output:
            _write(Path(output), f"{policy.metadata.name}.{form}", converted.text)
        elif converted.text:
            texts.append(converted.text)
    if texts:
        click.echo(("" if form == "json" else "---\n").join(texts), nl=False)
    return 0 if is_good else 1


def _write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name.replace("/", "-")).write_text(text, encoding="utf-8")
