"""Converts classic policies, and compares both forms: `convert` without the printing."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from lictor.addons.convert.conversion import ConversionTarget
from lictor.cli.inputs.sources import read_policies
from lictor.cli.inputs.time_limit import limit_cpu_time
from lictor.core.errors import CompileError, LoadError, TooSlowError
from lictor.core.load.policies import Loaded, load_documents, refuse_errors
from lictor.core.model.policy import Policy
from lictor.core.raw import JsonObject

if TYPE_CHECKING:
    from lictor.addons.convert.comparison import FormComparison
    from lictor.addons.convert.conversion import Conversion

# For one policy.
_MOST_SECONDS = 20


class ConvertedPolicy(msgspec.Struct, frozen=True):
    """The new policies as text, empty where there are none, and messages for the user."""

    text: str
    messages: tuple[str, ...]
    # Whether both forms decide alike.
    agrees: bool


class PolicyConverter:
    """Converts policies one by one."""

    def __init__(
        self, target: ConversionTarget, resources: list[JsonObject], *, as_json: bool
    ) -> None:
        from lictor.addons.convert.comparison import SampleLookups
        from lictor.core.facts.resource_names import builtin_names

        self._target = target
        self._resources = resources
        self._as_json = as_json
        self._names = builtin_names().with_crds(resources)
        self._groups = tuple(dict.fromkeys(_groups(resources)))
        self._lookups = SampleLookups(self._names, resources)

    def convert(self, policy: Policy) -> ConvertedPolicy:
        """The new policies, and how they compare with the old one."""
        from lictor.addons.convert.comparison import render_comparison, render_documents
        from lictor.addons.convert.conversion import list_conversions

        name = policy.metadata.name
        try:
            with limit_cpu_time(_MOST_SECONDS, _describe_limit(policy)):
                forms = list_conversions(policy, self._target, self._names, self._groups)
                made, comparison = self._choose(policy, forms)
        except (CompileError, TooSlowError) as error:
            return ConvertedPolicy("", (f"{name}: refused; {error}",), agrees=False)
        messages = tuple(render_comparison(name, comparison, made.notes))
        text = render_documents(made.documents, as_json=self._as_json)
        return ConvertedPolicy(text, messages, agrees=not comparison.differences)

    def _choose(
        self, policy: Policy, forms: "list[Conversion]"
    ) -> "tuple[Conversion, FormComparison]":
        """The first form that decides as the policy does; else the one that differs least."""
        compared = []
        for form in forms:
            comparison = self._compare(policy, form.documents)
            if not comparison.differences:
                return form, comparison
            compared.append((form, comparison))
        return min(compared, key=lambda each: len(each[1].differences))

    def _compare(self, policy: Policy, documents: tuple[JsonObject, ...]) -> "FormComparison":
        from lictor.addons.convert.comparison import compare_forms, render_documents
        from lictor.addons.convert.samples import make_requests
        from lictor.core.assembly import compile_documents
        from lictor.core.engine import Engine
        from lictor.core.model.request import Request

        text = render_documents(documents, as_json=False).encode()
        made = load_documents(text, f"{policy.metadata.name} (converted)")
        refuse_errors(made)
        new = compile_documents(made.records, lookups=self._lookups, resource_names=self._names)
        old = compile_documents([policy], lookups=self._lookups, resource_names=self._names)
        samples = make_requests(policy, self._names, self._groups)
        requests = [*(Request.of(each) for each in self._resources), *samples]
        return compare_forms(Engine(old).evaluate, Engine(new).evaluate, requests)


def _describe_limit(policy: Policy) -> str:
    sizes = {len(msgspec.json.encode(rule)): rule.name for rule in policy.spec.rules}
    largest = f": the largest is rule {sizes[max(sizes)]}" if sizes else ""
    return f"its rules take more than {_MOST_SECONDS} s to convert{largest}"


def load_convertible(paths: tuple[str, ...]) -> Loaded:
    """The documents of files, among which must be policies that can be converted."""
    loaded = Loaded()
    for text in read_policies(paths):
        loaded += load_documents(text.content, text.path)
    refuse_errors(loaded)
    if not list_convertible(loaded):
        raise LoadError("no classic policies were found")
    return loaded


def _groups(resources: Iterable[JsonObject]) -> Iterator[str]:
    """The groups of given CRDs."""
    for each in resources:
        spec = each.get("spec")
        if each.get("kind") == "CustomResourceDefinition" and isinstance(spec, dict):
            yield str(spec.get("group", ""))


def list_convertible(loaded: Loaded) -> "list[Policy]":
    """The policies of kinds that can be converted."""
    from lictor.core.model.policy import Policy

    return [each.record for each in loaded.policies if isinstance(each.record, Policy)]
