"""Rules that work elsewhere say cheaply whether they are set off, without doing their work."""

import orjson
import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.evaluate.scope import build_scope
from lictor.core.load.policies import load_documents
from lictor.core.model.program import Case
from lictor.core.model.request import Operation, Request
from lictor.core.model.result import Status
from lictor.core.ports import NoLookups

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {}}}
MARKED = {**NAMESPACE, "metadata": {"name": "a", "labels": {"on": "yes"}}}


class Guarded(NoLookups):
    """A world that must not be asked."""

    def resource(self, *_):
        raise AssertionError("asked for a source")

    def resources(self, *_):
        raise AssertionError("asked for targets")


def classic(*, operations=(), **body):
    resources = {"kinds": ["Namespace"]}
    if operations:
        resources["operations"] = list(operations)
    key = "{{ request.object.metadata.labels.on || '' }}"
    rule = {
        "name": "rule",
        "match": {"any": [{"resources": resources}]},
        "preconditions": {"all": [{"key": key, "operator": "Equals", "value": "yes"}]},
        **body,
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "policy"},
        "spec": {"rules": [rule]},
    }


def cel(kind, **spec):
    constraints = {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["namespaces"],
            }
        ]
    }
    expression = "object.metadata.?labels.on.orValue('') == 'yes'"
    return {
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": kind,
        "metadata": {"name": "policy"},
        "spec": {
            "matchConstraints": constraints,
            "matchConditions": [{"name": "on", "expression": expression}],
            **spec,
        },
    }


CLONE = {
    "generate": {
        "apiVersion": "v1",
        "kind": "Secret",
        "name": "copy",
        "namespace": "{{request.object.metadata.name}}",
        "clone": {"namespace": "vault", "name": "source"},
    }
}
TARGETS = {
    "mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Secret"}],
        "patchStrategicMerge": {"metadata": {"labels": {"x": "y"}}},
    }
}
GENERATING = cel(
    "GeneratingPolicy",
    generate=[{"expression": "generator.Apply('a', [resource.Get('v1', 'secrets', 'v', 's')])"}],
)
MUTATING = cel(
    "MutatingPolicy",
    evaluation={"mutateExisting": {"enabled": True}},
    targetMatchConstraints={
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["secrets"],
            }
        ]
    },
    mutations=[
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": "Object{metadata: Object.metadata{}}"},
        }
    ],
)


def compile_one(document):
    loaded = load_documents(orjson.dumps(document), "test")
    (program,) = compile_documents(
        loaded.records,
        lookups=Guarded(),
    )
    return program


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(classic(**CLONE), id="clone"),
        pytest.param(classic(**TARGETS), id="targets"),
        pytest.param(GENERATING, id="generating-policy"),
        pytest.param(MUTATING, id="mutating-policy"),
    ],
)
def test_only_the_conditions_are_asked(document):
    (rule,) = compile_one(document).rules
    (passed,) = rule.applies(Case(Request.of(MARKED), build_scope))
    assert (passed.status, passed.generated, passed.target) == (Status.PASS, (), None)
    others = rule.applies(Case(Request.of(NAMESPACE), build_scope))
    assert all(result.status is Status.SKIP for result in others)


def test_a_rule_that_works_here_needs_no_such_question():
    patch = {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"x": "y"}}}}}
    (rule,) = compile_one(classic(**patch)).rules
    assert rule.applies is None


@pytest.mark.parametrize(
    ("operations", "is_set_off"),
    [
        pytest.param((), False, id="unsaid"),
        pytest.param(("CREATE",), False, id="create"),
        pytest.param(("DELETE",), True, id="delete"),
    ],
)
def test_a_deletion_generates_only_where_the_rule_names_it(operations, is_set_off):
    program = compile_one(classic(operations=operations, **CLONE))
    kind = Request.of(MARKED).kind
    assert (program.rules[0].select(kind, "", Operation.DELETE) is not None) is is_set_off


def test_without_data_an_object_is_made_all_the_same():
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "made", "namespace": "a"}
    verdict = Engine([compile_one(classic(generate=body))]).evaluate(MARKED)
    ((made,),) = (result.generated for result in verdict.results)
    assert (made["kind"], made["metadata"]["name"]) == ("ServiceAccount", "made")
