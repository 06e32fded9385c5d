"""`explain`: why did each rule of a policy match or not, pass or fail?"""

import sys

import click
import orjson
from msgspec.structs import replace

from lictor.cli.explanations import Explainer, ExplanationChoice, load_explained_policies
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.cli.inputs.input_files import (
    load_caller,
    load_context,
    load_resource_files,
    load_values_file,
    read_namespace_labels,
    read_resource_texts,
)
from lictor.cli.inputs.lookups import GivenObjects, choose_registries
from lictor.cli.inputs.policies import load_exceptions
from lictor.cli.inputs.requests import GivenValues, RequestFactory
from lictor.cli.inputs.resources import LazyResources, find_in_texts
from lictor.cli.inputs.sources import read_file
from lictor.core.errors import UsageError
from lictor.core.report.explanation import (
    MAX_SHOWN,
    Explanation,
    explanation_to_json,
    render_explanation,
)

_EXAMPLES = """\
# Why is this Pod refused?
lictor explain policy.yaml -r pod.yaml

# Of many resources, only what failed
lictor explain policies/ -r resources/ --failed

# For programs
lictor explain policy.yaml -r pod.yaml --format json"""


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
@slice_option("-r", "--resource", help="Path to resource files.")
@slice_option("-e", "--exception", help="Policy exceptions to consider.")
@slice_option("-s", "--set", "settings", help="Values of variables: NAME=VALUE.")
@click.option("-f", "--values-file", default="", help="File with values of variables.")
@click.option("-u", "--userinfo", default="", help="File with the user of the requests.")
@click.option("--context-file", default="", help="File with objects and images policies may read.")
@slice_option("--parameter-resource", help="Files with parameters of admission policies.")
@slice_option("--policy", help="Explain these policies only, by name.")
@click.option("--rule", default="", help="Explain this rule only.")
@click.option("--failed", is_flag=True, help="Explain only what failed.")
@click.option("--registry", is_flag=True, help="Query image registries.")
@click.option("--image-layout", default="", help="OCI layout folder to use instead of registries.")
@click.option(
    "--format", "form", type=click.Choice(("text", "json")), default="text", help="text or json."
)
def explain(  # noqa: PLR0913  (one parameter per flag)
    *,
    arguments: tuple[str, ...],
    resource: tuple[str, ...],
    exception: tuple[str, ...],
    settings: tuple[str, ...],
    values_file: str,
    userinfo: str,
    context_file: str,
    parameter_resource: tuple[str, ...],
    policy: tuple[str, ...],
    rule: str,
    failed: bool,
    registry: bool,
    image_layout: str,
    form: str,
) -> int:
    """Show for each rule which clause matched or not, what conditions became, and where it failed.

    Exits with 0 for any verdict, 1 if a file cannot be read, 2 for a usage error.
    """
    if not resource:
        raise UsageError("give at least one resource with -r")
    texts = tuple(read_resource_texts(resource))
    caller = load_caller(userinfo) if userinfo else None
    find = find_in_texts(texts)
    values = GivenValues(load_values_file(values_file) if values_file else None, settings)
    requests = RequestFactory(values, caller, read_namespace_labels(find))
    policies = load_explained_policies(arguments)
    given = GivenObjects(
        crds=policies.crds,
        registries=choose_registries(network=registry, layout=image_layout),
        evaluated=LazyResources(find),
    )
    given = _add_files(given, parameter_resource, context_file)
    exceptions = (*policies.exceptions, *load_exceptions(map(read_file, exception)))
    explainer = Explainer(policies, exceptions, requests, given, names=policy)
    explanations = explainer.explain_all(texts, ExplanationChoice(_warn, rule, failed))
    click.echo(_render_json(explanations) if form == "json" else _render_text(explanations))
    return 0


def _add_files(given: GivenObjects, parameters: tuple[str, ...], context: str) -> GivenObjects:
    params = tuple(load_resource_files(parameters))
    given = replace(given, params=params, objects=params or None)
    return load_context(context, given) if context else given


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


def _render_json(explanations: list[Explanation]) -> bytes:
    documents = [explanation_to_json(each) for each in explanations]
    return orjson.dumps(documents, option=orjson.OPT_INDENT_2)


def _render_text(explanations: list[Explanation]) -> str:
    if not explanations:
        return "nothing failed"
    # Lines are cut for people on a terminal; what reads a pipe can cut them itself.
    width = MAX_SHOWN if sys.stdout.isatty() else 0
    return "\n\n".join("\n".join(render_explanation(each, width=width)) for each in explanations)
