"""`convert`: converts classic policies to CEL policies that decide alike."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.convert.conversion import ConversionTarget
from lictor.errors import CompileError, LoadError
from lictor.families.registry import registry
from lictor.load.policies import Loaded, load_documents, refuse_errors
from lictor.model.policy import Policy
from lictor.offline.sources import read_policies
from lictor.raw import JsonObject

if TYPE_CHECKING:
    from lictor.convert.comparison import FormComparison

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
    help="What policies become; auto chooses by what they do.",
)
@slice_option("-r", "--resource", help="Resources that both forms shall judge, and CRDs.")
@click.option("-o", "--output", default="", help="Folder to write to, a file for each policy.")
@click.option(
    "--format", "form", type=click.Choice(("yaml", "json")), default="yaml", help="yaml or json."
)
def convert(
    *, arguments: tuple[str, ...], target: str, resource: tuple[str, ...], output: str, form: str
) -> int:
    """Turn classic policies into CEL policies, where they have an equivalent.

    The new policies are printed or written; what was found when both forms judged the same
    requests, made from the policy and from the resources given, goes to standard error.

    Exits with 0 where all policies were converted without a difference, with 1 where one was
    refused or judges differently, and with 2 on a wrong call.
    """
    loaded = _load(arguments)
    given = list(_load_resources(resource))
    crds = [each.record for each in loaded.resources]
    work = _Work(ConversionTarget(target), [*given, *crds], as_json=form == "json")
    is_good = True
    texts = []
    for policy in _list_convertible(loaded):
        text, agrees = work.convert(policy)
        is_good = is_good and agrees
        if text and output:
            _write(Path(output), f"{policy.metadata.name}.{form}", text)
        elif text:
            texts.append(text)
    if texts:
        click.echo(("" if form == "json" else "---\n").join(texts), nl=False)
    return 0 if is_good else 1


class _Work:
    """Converts policies one by one, and tells what came of it."""

    def __init__(
        self, target: ConversionTarget, resources: list[JsonObject], *, as_json: bool
    ) -> None:
        from lictor.convert.comparison import SampleLookups
        from lictor.lang.resource_names import builtin_names

        self._target = target
        self._resources = resources
        self._as_json = as_json
        self._names = builtin_names().with_crds(resources)
        self._groups = tuple(dict.fromkeys(_groups(resources)))
        self._world = SampleLookups(self._names, resources)

    def convert(self, policy: Policy) -> tuple[str, bool]:
        """The new policies as text, empty where there are none, and whether all is well."""
        from lictor.convert.comparison import render_comparison, render_documents, render_refusal
        from lictor.convert.conversion import convert_policy

        name = policy.metadata.name
        try:
            made = convert_policy(policy, self._target, self._names, self._groups)
        except CompileError as error:
            click.echo(render_refusal(name, str(error)), err=True)
            return "", False
        comparison = self._compare(policy, made.documents)
        for line in render_comparison(name, comparison, made.notes):
            click.echo(line, err=True)
        text = render_documents(made.documents, as_json=self._as_json)
        return text, not comparison.differences

    def _compare(self, policy: Policy, documents: tuple[JsonObject, ...]) -> "FormComparison":
        from lictor.assembly import compile_documents
        from lictor.convert.comparison import compare_forms, render_documents
        from lictor.convert.samples import make_requests
        from lictor.engine import Engine
        from lictor.model.request import Request

        text = render_documents(documents, as_json=False).encode()
        made = load_documents(text, f"{policy.metadata.name} (converted)")
        refuse_errors(made)
        new = compile_documents(made.records, lookups=self._world, resource_names=self._names)
        old = compile_documents([policy], lookups=self._world, resource_names=self._names)
        samples = make_requests(policy, self._names, self._groups)
        requests = [*(Request.of(each) for each in self._resources), *samples]
        return compare_forms(Engine(old).evaluate, Engine(new).evaluate, requests)


def _load(paths: tuple[str, ...]) -> Loaded:
    loaded = Loaded()
    for text in read_policies(paths):
        loaded += load_documents(text.content, text.path)
    refuse_errors(loaded)
    if not _list_convertible(loaded):
        raise LoadError("no classic policies were found")
    return loaded


def _load_resources(paths: tuple[str, ...]) -> Iterator[JsonObject]:
    from lictor.offline.inputs import read_resource_texts
    from lictor.offline.resources import load_resources

    for text in read_resource_texts(paths):
        yield from load_resources(text.content, text.path)


def _groups(resources: Iterable[JsonObject]) -> Iterator[str]:
    """The groups of given CRDs."""
    for each in resources:
        spec = each.get("spec")
        if each.get("kind") == "CustomResourceDefinition" and isinstance(spec, dict):
            yield str(spec.get("group", ""))


def _write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name.replace("/", "-")).write_text(text, encoding="utf-8")


def _list_convertible(loaded: Loaded) -> "list[Policy]":
    found = [each.record for each in loaded.policies if registry().of(each.record).convert]
    return cast("list[Policy]", found)
