"""Values that hold each other twice: small in memory, without end when written. Rules answer error.

Without measuring, each of these rules takes all memory or never comes to an end.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.core.model.result import Status

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x", "namespace": "red"},
    "spec": {"containers": [{"name": "a", "image": "x"}]},
}
LEVELS = 40


def _query(name: str, number: int) -> dict[str, Any]:
    below = f"{name}{number - 1}"
    return {"name": f"{name}{number}", "variable": {"jmesPath": f"{{a: {below}, b: {below}}}"}}


def _document(name: str, number: int) -> dict[str, Any]:
    below = f"{{{{ {name}{number - 1} }}}}"
    return {"name": f"{name}{number}", "variable": {"value": {"a": below, "b": below}}}


def _list(name: str, number: int) -> dict[str, Any]:
    below = f"{name}{number - 1}"
    return {"name": f"{name}{number}", "variable": {"jmesPath": f"[{below}, {below}]"}}


def _double(name: str, make: Any) -> Iterator[dict[str, Any]]:
    yield {"name": f"{name}0", "variable": {"value": {"a": 1}}}
    for number in range(1, LEVELS + 1):
        yield make(name, number)


def _deny(key: str, value: str, operator: str = "Equals") -> dict[str, Any]:
    condition = {"key": key, "operator": operator, "value": value}
    return {"validate": {"message": "m", "deny": {"conditions": {"any": [condition]}}}}


V, W = f"v{LEVELS}", f"w{LEVELS}"
USES: Mapping[str, dict[str, Any]] = {
    "compared by a condition": _deny(f"{{{{ {V} }}}}", f"{{{{ {W} }}}}"),
    "looked for by a condition": _deny(f"{{{{ {V} }}}}", f"{{{{ {W} }}}}", "AnyIn"),
    "compared by a query": _deny(f"{{{{ {V} == {W} }}}}", "true"),
    "looked for by a query": _deny(f"{{{{ contains([{V}], {W}) }}}}", "true"),
    "written": _deny(f"{{{{ to_string({V}) }}}}", "x"),
    "inside a text": _deny(f"it is {{{{ {V} }}}}", "x"),
    "a pattern": {"validate": {"message": "m", "pattern": {"spec": f"{{{{ {V} }}}}"}}},
    "one of several patterns": {
        "validate": {"message": "m", "anyPattern": [{"spec": f"{{{{ {V} }}}}"}]}
    },
    "merged": {"mutate": {"patchStrategicMerge": {"metadata": {"annotations": f"{{{{ {V} }}}}"}}}},
    "a JSON patch": {
        "mutate": {
            "patchesJson6902": f"- {{op: add, path: /metadata/annotations, value: {{{{ {V} }}}}}}"
        }
    },
    "generated": {
        "generate": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "made",
            "namespace": "red",
            "data": {"data": f"{{{{ {V} }}}}"},
        }
    },
    "each element": {
        "validate": {
            "message": "m",
            "foreach": [{"list": f"[{V}, {V}]", "pattern": {"a": f"{{{{ {W} }}}}"}}],
        }
    },
}


def _judge(body: Mapping[str, Any], make: Any) -> dict[str, tuple[Status, str]]:
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    context = [*_double("v", make), *_double("w", make)]
    fine = {"name": "fine", "match": match, "validate": {"pattern": {"kind": "Pod"}}}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "doubled", "match": match, "context": context, **body}, fine]},
    }
    loaded = load_documents(orjson.dumps(policy), "p")
    engine = Engine(compile_documents([each.record for each in loaded.policies]))
    results = engine.evaluate(POD).results
    return {result.rule: (result.status, result.message) for result in results}


@pytest.mark.parametrize("make", [_query, _document, _list])
@pytest.mark.parametrize("use", USES)
def test_a_doubled_value_is_an_error_of_its_rule(use: str, make: Any) -> None:
    said = _judge(USES[use], make)
    status, message = said["doubled"]
    assert status is Status.ERROR
    assert "larger than 8 MiB when serialized" in message
    assert said["fine"][0] is Status.PASS


def test_a_small_patch_for_each_element_is_no_value_that_grows() -> None:
    body = {
        "mutate": {
            "foreach": [
                {
                    "list": "request.object.spec.containers",
                    "patchesJson6902": "- {op: add, path: /metadata/labels, value: {a: b}}",
                }
            ]
        }
    }
    assert _judge(body, _query)["doubled"][0] is Status.PASS


def test_a_large_patch_for_each_element_has_an_end() -> None:
    text = "x" * 300_000
    patch = f"- {{op: add, path: '/metadata/{{{{ elementIndex }}}}', value: {text}}}"
    body = {"mutate": {"foreach": [{"list": "items(`[0]`, 'a', 'b')", "patchesJson6902": patch}]}}
    assert _judge(body, _query)["doubled"][0] is Status.PASS
    many = f"`{orjson.dumps(list(range(40))).decode()}`"
    body["mutate"]["foreach"][0]["list"] = many
    assert _judge(body, _query)["doubled"][0] is Status.ERROR


def test_one_large_part_for_every_element_of_a_list_has_an_end() -> None:
    overlay = {"(name)": "*", "env": [{"name": "E", "value": "x" * 300_000}]}
    body = {"mutate": {"patchStrategicMerge": {"spec": {"containers": [overlay]}}}}
    assert _judge(body, _query)["doubled"][0] is Status.PASS
    many = {**POD, "spec": {"containers": [{"name": f"c{n}"} for n in range(40)]}}
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "large", "match": match, **body}]},
    }
    loaded = load_documents(orjson.dumps(policy), "p")
    engine = Engine(compile_documents([each.record for each in loaded.policies]))
    assert [r.status for r in engine.evaluate(many).results] == [Status.ERROR]


def test_mutations_in_cel_that_put_the_object_into_itself_have_an_end() -> None:
    twice = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: dyn({'a': A, 'b': A})}]"
    seen = "object.metadata.?annotations.orValue({'text': object.spec.text})"
    expression = twice.replace("A", seen)
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    policy = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "MutatingPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "mutations": [mutation for _ in range(LEVELS)],
        },
    }
    loaded = load_documents(orjson.dumps(policy), "p")
    programs = compile_documents(loaded.records)
    pod = {**POD, "spec": {"text": "x" * 300_000}}
    (result,) = Engine(programs).evaluate(pod).results
    assert result.status is Status.ERROR
    # The engine is asked nothing that it could not be stopped in; else the result is measured.
    assert any(w in result.message for w in ("larger than 8 MiB", "too many copies"))
