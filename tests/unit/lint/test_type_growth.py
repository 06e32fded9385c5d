"""Variables that double with each step cost lint no more than others."""

import resource
import time

import orjson
import pytest

from lictor.lint.run import lint_texts

_STEPS = {
    "the same thing": "[{0},{0},{0},{0},{0},{0},{0},{0},{0}][]",
    "new things": "[{0}, [{0}], {0}[], {0} || `1`, {0}[0] || `2`]",
    "alternatives": "{0} || `[1]` || [{0}, {0}[]]",
}


@pytest.mark.parametrize("step", _STEPS.values(), ids=_STEPS)
def test_types_do_not_double(step: str) -> None:
    context = [{"name": "v0", "variable": {"value": ["a", {"b": [1]}]}}]
    context += [
        {"name": f"v{number}", "variable": {"jmesPath": step.format(f"v{number - 1}")}}
        for number in range(1, 40)
    ]
    conditions = {"any": [{"key": "{{ length(v39) }}", "operator": "Equals", "value": 1}]}
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "context": context,
        "validate": {"message": "m", "deny": {"conditions": conditions}},
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "greedy"},
        "spec": {"rules": [rule]},
    }
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    lint_texts([("p.json", orjson.dumps(policy))], {})
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
