"""`explain`: why did each rule of a policy match or not, pass or fail?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec
import orjson

from lictor.assembly import Told, compile_cleanups
from lictor.assembly import explain as explain_request
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.errors import LoadError, UsageError
from lictor.lang.watch import Heard, Recorder
from lictor.model.policy import Policy
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
    GivenExceptions,
    LoadedPolicies,
    load_exceptions,
    load_policy_files,
)
from lictor.offline.programs import describe_given
from lictor.offline.requests import GivenValues, RequestFactory
from lictor.offline.resources import load_resources
from lictor.offline.sources import read_file, read_policies
from lictor.raw import JsonObject
from lictor.report.explanation import (
    Explanation,
    explain_rule,
    explanation_to_json,
    render_explanation,
)
from lictor.report.resource_name import name_resource

if TYPE_CHECKING:
    from lictor.model.admission import AdmissionPolicy
    from lictor.model.cel_policy import CelPolicy, DeletingPolicy

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
    exceptions = policies.all_exceptions + load_exceptions(map(read_file, exception))
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
    exceptions: GivenExceptions
    requests: RequestFactory
    given: GivenObjects
    # Tell of this rule only.
    rule: str

    def explain(self, resource: JsonObject) -> Iterator[Explanation]:
        """The story of each policy about one resource."""
        request, name = self.requests.make_request(resource), name_resource(resource)
        for policy in self.policies.usable:
            told = self._listen(policy, request)
            rules = tuple(
                explain_rule(rule, told.heard, told.verdict.results)
                for rule in told.rules
                if self.rule in ("", rule.name)
            )
            yield Explanation(policy.metadata.name, name, rules)
        if len(self.policies.cel):
            yield from self._explain_cel(request, name)

    def _explain_cel(self, request: Request, name: str) -> Iterator[Explanation]:
        from lictor.report.cel_explanation import explain_cel

        cel = self.policies.cel
        for policy in (*cel.admission_policies, *cel.judging):
            told = self._listen(policy, request)
            rules = explain_cel(policy, cel.bindings, told.heard, told.verdict.results)
            yield Explanation(policy.metadata.name, name, rules)
        for deleting in cel.deleting:
            heard, results = self._listen_to_deletion(deleting, request)
            rules = explain_cel(deleting, (), heard, results)
            yield Explanation(deleting.metadata.name, name, rules)

    def _listen_to_deletion(
        self, policy: "DeletingPolicy", request: Request
    ) -> tuple[list[Heard], list[Result]]:
        recorder = Recorder()
        documents = describe_given(self.exceptions, self.given)
        documents["cel_policies"] = (policy,)
        lookups = OfflineLookups(self.requests.values, self.given)
        programs = compile_cleanups((), lookups=lookups, watch_rule=recorder.for_rule, **documents)
        return recorder.heard, [judge_deletion(program, request) for program in programs]

    def _listen(self, policy: "Policy | AdmissionPolicy | CelPolicy", request: Request) -> Told:
        documents = describe_given(self.exceptions, self.given)
        documents["bindings"] = self.policies.cel.bindings
        return explain_request(
            policy,
            request,
            exceptions=self.exceptions.classic,
            lookups=OfflineLookups(self.requests.values, self.given),
            adapt=self.requests.adapt,
            **documents,
        )
