"""What generated objects say of themselves, read and written."""

import pytest

from lictor.controllers.generate.labels import (
    KEEP_ON_POLICY_DELETE,
    RELEASE,
    GenerationUnit,
    goes_with_policy,
    mark_made,
    read_source,
    read_unit,
)
from lictor.core.model.result import SourceRef
from lictor.kubernetes.update_requests import UpdateTrigger

DEPLOYMENT = UpdateTrigger("apps/v1", "Deployment", "shop", "web", "uid-1")
NAMESPACE = UpdateTrigger("v1", "Namespace", "", "team-a", "uid-2")
SOURCE = SourceRef("v1", "Secret", "vault", "regcred", "uid-3")
LONG = "n" * 200


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        pytest.param(GenerationUnit("policy", "", "rule", NAMESPACE), None, id="data"),
        pytest.param(
            GenerationUnit("policy", "shop", "rule", DEPLOYMENT), SOURCE, id="copy-of-a-group"
        ),
        pytest.param(GenerationUnit("policy", "", "", DEPLOYMENT), None, id="cel"),
        pytest.param(
            GenerationUnit("policy", "", "", UpdateTrigger("v1", "Pod", "shop", LONG, "uid-4")),
            SourceRef("v1", "Secret", "vault", LONG, "uid-5"),
            id="names-longer-than-labels",
        ),
    ],
)
def test_what_is_written_is_read_again(unit, source):
    made = mark_made(
        {"metadata": {"name": "made", "namespace": "shop"}}, unit, source, goes_with_policy=True
    )
    assert read_unit(made) == unit
    assert read_source(made) == source
    assert goes_with_policy(made)
    labels = made["metadata"]["labels"]
    assert all(len(text) <= 63 for text in labels.values())
    assert labels["app.kubernetes.io/managed-by"] == "kyverno"


def test_what_belongs_to_a_source_stays_there():
    copied = {
        "metadata": {
            "name": "made",
            "labels": {"team": "a", "generate.kyverno.io/clone-source": ""},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"},
        }
    }
    unit = GenerationUnit("policy", "", "rule", NAMESPACE)
    made = mark_made(copied, unit, SOURCE, goes_with_policy=False)["metadata"]
    assert made["labels"]["team"] == "a"
    assert "generate.kyverno.io/clone-source" not in made["labels"]
    assert made["annotations"]["a"] == "b"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in made["annotations"]


def test_an_object_that_nobody_made():
    item = {"metadata": {"name": "x", "labels": {"app.kubernetes.io/managed-by": "Helm"}}}
    assert read_unit(item) is None
    assert read_source(item) is None
    assert not goes_with_policy(item)


def test_what_kyverno_made_is_known_by_the_uid_of_its_trigger():
    labels = {
        "generate.kyverno.io/policy-name": "p",
        "generate.kyverno.io/policy-namespace": "",
        "generate.kyverno.io/rule-name": "r",
        "generate.kyverno.io/trigger-version": "v1",
        "generate.kyverno.io/trigger-group": "",
        "generate.kyverno.io/trigger-kind": "Namespace",
        "generate.kyverno.io/trigger-namespace": "",
        "generate.kyverno.io/trigger-uid": "uid-2",
    }
    unit = read_unit({"metadata": {"name": "x", "labels": labels}})
    assert unit == GenerationUnit("p", "", "r", UpdateTrigger("v1", "Namespace", "", "", "uid-2"))


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), (0, "0"), (True, "true"), (None, ""), (1.5, "1.5")]
)
def test_labels_are_texts(value, text):
    body = {"metadata": {"name": "made", "labels": {"x": value}, "annotations": {"y": value}}}
    unit = GenerationUnit("policy", "", "rule", NAMESPACE)
    made = mark_made(body, unit, None, goes_with_policy=False)["metadata"]
    assert (made["labels"]["x"], made["annotations"]["y"]) == (text, text)


@pytest.mark.parametrize(
    ("notes", "owned", "goes"),
    [
        pytest.param(KEEP_ON_POLICY_DELETE, True, False, id="keep"),
        pytest.param(RELEASE, False, False, id="release"),
    ],
)
def test_what_becomes_of_it(notes, owned, goes):
    body = {"metadata": {"name": "made", "labels": {"theirs": "x"}}}
    unit = GenerationUnit("policy", "", "rule", NAMESPACE)
    made = mark_made(body, unit, SOURCE, goes_with_policy=True, aim="a")
    changed = notes.put_on(made)
    assert (read_unit(changed) is not None) is owned
    assert goes_with_policy(changed) is goes
    assert changed["metadata"]["labels"]["theirs"] == "x"
    assert notes.put_on(changed) == changed
