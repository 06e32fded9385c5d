import importlib
import json
import re
import subprocess
import sys

import pytest
import yaml

import lictor


def test_all_lists_exactly_what_is_public():
    assert sorted(lictor.__all__) == sorted(lictor._HOME_OF)
    assert lictor.__all__ == sorted(lictor.__all__)


def test_every_public_name_is_there():
    for name in lictor.__all__:
        home = importlib.import_module(lictor._HOME_OF[name])
        assert getattr(lictor, name) is getattr(home, name)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(lictor, "no_such_name")


def test_importing_costs_nothing_heavy():
    heavy = "click, msgspec, yaml, orjson, re2, jmespath, rich, cryptography"
    script = f"import sys, lictor; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "need-team"},
    "spec": {
        "rules": [
            {
                "name": "team",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {
                    "failureAction": "Enforce",
                    "message": "a team is needed",
                    "pattern": {"metadata": {"labels": {"team": "?*"}}},
                },
            }
        ]
    },
}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}}


@pytest.mark.parametrize(
    "document",
    [POLICY, json.dumps(POLICY), json.dumps(POLICY).encode(), yaml.safe_dump(POLICY)],
    ids=["dict", "json", "bytes", "yaml"],
)
def test_policies_from_dicts_and_text(document):
    engine = lictor.Engine(lictor.parse_policies(document))
    assert not engine.evaluate(POD).allowed
    assert engine.evaluate({**POD, "metadata": {"labels": {"team": "a"}}}).allowed


def test_several_documents_and_lists():
    other = {**POLICY, "metadata": {"name": "other"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [POLICY, other]}
    assert len(lictor.parse_policies(POLICY, yaml.safe_dump(other))) == 2
    assert len(lictor.parse_policies(listed)) == 2


def test_the_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", lictor.__version__)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lictor.Engine("policies/"), "load_policies"),
        (lambda: lictor.Engine(None), "load_policies"),
        (lambda: lictor.Engine([POLICY]), "programs, not dict"),
        (lambda: lictor.load_policies(POLICY), "takes paths, not dict; parse_policies"),
        (lambda: lictor.load_policies(None), "takes paths, not NoneType"),
        (lictor.load_policies, "there are no policies"),
        (lictor.parse_policies, "there are no policies"),
        (lambda: lictor.parse_policies(POD), "there are no policies"),
        (lambda: lictor.parse_policies(3), "text or a dict, not int"),
        (lambda: lictor.parse_policies({"kind": object()}), "document 1: is not JSON"),
        (lambda: lictor.parse_policies({**POLICY, "spec": 3}), "document 1:1:"),
        (lambda: lictor.Request.of(None), "a dict as JSON gives it, not NoneType"),
        (lambda: lictor.Request.of(POD, operation="PATCH"), "'PATCH' is no operation"),
        (lambda: lictor.Engine(()).evaluate("a Pod"), "not str"),
        (lambda: lictor.Engine(()).evaluate([POD]), "not list"),
        (lambda: lictor.Engine(()).evaluate({}), "needs `kind`"),
    ],
)
def test_wrong_calls_are_errors_of_ours(call, message):
    with pytest.raises(lictor.LictorError, match=re.escape(message)):
        call()
