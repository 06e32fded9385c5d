"""`explain`: why did each rule of a policy match or not, pass or fail?"""

from collections.abc import Iterator

import click
import orjson

from lictor.assembly import explain as explain_request
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.cli.offline.inputs import (
    load_caller,
    load_context,
    load_values_file,
    read_resource_texts,
)
from lictor.cli.offline.lookups import GivenObjects, OfflineLookups
from lictor.cli.offline.policies import LoadedPolicies, load_exceptions, load_policy_files
from lictor.cli.offline.requests import World
from lictor.cli.offline.resources import load_resources
from lictor.cli.offline.values import GivenValues
from lictor.cli.sources import read_file, read_policies
from lictor.errors import LoadError, UsageError
from lictor.model.exception import PolicyException
from lictor.raw import JsonObject
from lictor.report.explanation import (
    Explanation,
    explain_rule,
    explanation_to_json,
    render_explanation,
)
from lictor.report.resource_name import name_resource

_EXAMPLES = """\
# Why is this Pod refused?
lictor explain policy.yaml -r pod.yaml

# For programs
lictor explain policy.yaml -r pod.yaml --format json"""


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
@slice_option("-r", "--resource", help="Path to resource files.")
@slice_option("-e", "--exception", help="Policy exceptions to consider.")
@slice_option("-s", "--set", "settings", help="Values of variables: NAME=VALUE.")
@click.option("-f", "--values-file", default="", help="File with values of variables.")
@click.option("-u", "--userinfo", default="", help="File that says who asks, with roles.")
@click.option("--context-file", default="", help="File with objects and images policies may read.")
@click.option("--rule", default="", help="Tell of this rule only.")
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
    rule: str,
    form: str,
) -> int:
    """Show for each rule which clause matched or not, what conditions became, and where it failed.

    Exits with 0 whatever the verdict is, 1 where a file cannot be read, 2 on a wrong call.
    """
    if not resource:
        raise UsageError("give at least one resource with -r")
    values = load_values_file(values_file) if values_file else None
    world = World(GivenValues(values, settings), load_caller(userinfo) if userinfo else None)
    given = load_context(context_file, GivenObjects()) if context_file else GivenObjects()
    policies = _load(arguments)
    exceptions = (*policies.exceptions, *load_exceptions(map(read_file, exception)))
    lookups = OfflineLookups(world.values, given)
    told = list(_explain_all(policies, resource, (world, lookups, exceptions), rule))
    if form == "json":
        made = [explanation_to_json(each) for each in told]
        click.echo(orjson.dumps(made, option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n\n".join("\n".join(render_explanation(each)) for each in told))
    return 0


def _load(paths: tuple[str, ...]) -> LoadedPolicies:
    policies = load_policy_files(read_policies(paths))
    for unusable in policies.unusable:
        raise LoadError(f"{unusable.name}: {unusable.reason}")
    if not policies.usable:
        raise LoadError("no policies were found")
    return policies


def _explain_all(
    policies: LoadedPolicies,
    resources: tuple[str, ...],
    around: tuple[World, OfflineLookups, tuple[PolicyException, ...]],
    rule: str,
) -> Iterator[Explanation]:
    for text in read_resource_texts(resources):
        for resource in load_resources(text.content, text.path):
            yield from _explain_one(policies, resource, around, rule)


def _explain_one(
    policies: LoadedPolicies,
    resource: JsonObject,
    around: tuple[World, OfflineLookups, tuple[PolicyException, ...]],
    only: str,
) -> Iterator[Explanation]:
    world, lookups, exceptions = around
    request = world.make_request(resource)
    for policy in policies.usable:
        told = explain_request(
            policy, request, exceptions=exceptions, lookups=lookups, adapt=world.adapt
        )
        rules = tuple(
            explain_rule(rule, told.heard, told.verdict.results)
            for rule in told.rules
            if only in ("", rule.name)
        )
        yield Explanation(policy.metadata.name, name_resource(resource), rules)
