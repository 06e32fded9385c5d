"""`explain`: why did each rule of a policy match or not, pass or fail?"""

from collections.abc import Iterator, Sequence

import click
import msgspec
import orjson

from lictor.assembly import compile_cleanups
from lictor.assembly import explain as explain_request
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.errors import LoadError, UsageError
from lictor.families.registry import Role, registry, resolve
from lictor.lang.watch import Heard, Recorder
from lictor.model.metadata import PolicyRecord
from lictor.model.request import Request
from lictor.model.result import Result
from lictor.offline.deletions import judge_deletion
from lictor.offline.inputs import (
    load_caller,
    load_context,
    load_values_file,
    read_resource_texts,
)
from lictor.offline.lookups import GivenObjects, OfflineLookups
from lictor.offline.policies import (
    LoadedPolicies,
    load_exceptions,
    load_policy_files,
)
from lictor.offline.programs import choose_options
from lictor.offline.requests import GivenValues, RequestFactory
from lictor.offline.resources import load_resources
from lictor.offline.sources import read_file, read_policies
from lictor.raw import JsonObject
from lictor.report.explanation import (
    Explanation,
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
@slice_option("--parameter-resource", help="Files with parameters of admission policies.")
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
    parameter_resource: tuple[str, ...],
    rule: str,
    form: str,
) -> int:
    """Show for each rule which clause matched or not, what conditions became, and where it failed.

    Exits with 0 whatever the verdict is, 1 where a file cannot be read, 2 on a wrong call.
    """
    if not resource:
        raise UsageError("give at least one resource with -r")
    values = load_values_file(values_file) if values_file else None
    requests = RequestFactory(
        GivenValues(values, settings), load_caller(userinfo) if userinfo else None
    )
    policies = _load(arguments)
    params = _load_params(parameter_resource)
    given = GivenObjects(params=params, objects=params or None, crds=policies.crds)
    given = load_context(context_file, given) if context_file else given
    exceptions = (*policies.exceptions, *load_exceptions(map(read_file, exception)))
    teller = _Teller(policies, exceptions, requests, given, rule)
    told = [each for r in _load_resources(resource) for each in teller.explain(r)]
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
    if not len(policies):
        raise LoadError("no policies were found")
    return policies


def _load_resources(paths: tuple[str, ...]) -> Iterator[JsonObject]:
    for text in read_resource_texts(paths):
        yield from load_resources(text.content, text.path)


def _load_params(paths: tuple[str, ...]) -> tuple[JsonObject, ...]:
    return tuple(_load_resources(paths))


class _Teller(msgspec.Struct, frozen=True):
    """Explains what policies say of resources."""

    policies: LoadedPolicies
    exceptions: tuple[PolicyRecord, ...]
    requests: RequestFactory
    given: GivenObjects
    # Tell of this rule only.
    rule: str

    def explain(self, resource: JsonObject) -> Iterator[Explanation]:
        """The story of each policy about one resource."""
        request, name = self.requests.make_request(resource), name_resource(resource)
        for policy in (*self.policies.about_resources, *self.policies.listed_deletions):
            kind = registry().of(policy)
            listen = self._listen if kind.role is Role.POLICY else self._listen_to_deletion
            heard, results = listen(policy, request)
            rules = resolve(kind.explain)(policy, self.policies.bindings, heard, results)
            if kind.has_named_rules and self.rule:
                rules = tuple(rule for rule in rules if rule.rule == self.rule)
            yield Explanation(policy.metadata.name, name, rules)

    def _listen_to_deletion(
        self, policy: PolicyRecord, request: Request
    ) -> tuple[Sequence[Heard], Sequence[Result]]:
        recorder = Recorder()
        options = choose_options(self.given, OfflineLookups(self.requests.values, self.given))
        options["watch_rule"] = recorder.for_rule
        programs = compile_cleanups((policy, *self.exceptions), **options)
        return recorder.heard, [judge_deletion(program, request) for program in programs]

    def _listen(
        self, policy: PolicyRecord, request: Request
    ) -> tuple[Sequence[Heard], Sequence[Result]]:
        options = choose_options(self.given, OfflineLookups(self.requests.values, self.given))
        told = explain_request(
            policy,
            request,
            companions=(*self.policies.bindings, *self.exceptions),
            adapt=self.requests.adapt,
            **options,
        )
        return told.heard, told.verdict.results
