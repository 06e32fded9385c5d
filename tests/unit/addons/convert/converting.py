"""Small classic policies, converted, and asked about the same requests as their new forms."""

import yaml

from lictor.addons.convert.comparison import SampleLookups, compare_forms
from lictor.addons.convert.conversion import ConversionTarget, list_conversions
from lictor.addons.convert.samples import make_requests
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.facts.resource_names import builtin_names
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request


def build_policy(*rules, kinds=("Pod",), annotations=None, **spec):
    """A policy with rules of which only what matters is written down."""
    written = []
    for number, rule in enumerate(rules):
        match = {"any": [{"resources": {"kinds": list(kinds)}}]}
        written.append({"name": f"rule-{number}", "match": match, **rule})
    body = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "sample", "annotations": annotations or {}},
        "spec": {"rules": written, **spec},
    }
    return load(body).policies[0].record


def load(*documents):
    loaded = load_documents(yaml.safe_dump_all(documents).encode(), "test.yaml")
    assert not loaded.problems
    return loaded


def convert(policy, target=ConversionTarget.AUTO):
    return list_conversions(policy, target, builtin_names())[0]


def convert_alike(policy, target=ConversionTarget.AUTO, resources=()):
    """The shortest form that decides alike, as `lictor convert` chooses it, or the longest."""
    for form in list_conversions(policy, target, builtin_names()):
        comparison = compare(policy, form.documents, resources)
        if not comparison.differences:
            break
    return form, comparison


def compare(policy, documents, resources=()):
    made = load(*documents)
    world = SampleLookups(builtin_names())
    old = Engine(compile_documents([policy], lookups=world))
    new = Engine(compile_documents(made.records, lookups=world))
    requests = [*map(Request.of, resources), *make_requests(policy, builtin_names(), ())]
    return compare_forms(old.evaluate, new.evaluate, requests)


def translate(validate, kinds=("Service",), **rule):
    """The one expression of a policy about Services, which have no twins."""
    made = convert(build_policy({"validate": validate, **rule}, kinds=kinds))
    (document,) = made.documents
    (validation,) = document["spec"]["validations"]
    return " ".join(validation["expression"].split())
