"""Labels say for whom an object was made, and everybody can write labels on what is theirs."""

import copy

import pytest
from generation_site import CLONE, DATA, Site, make_policy, run, until

from lictor.controllers.generate.labels import GenerationUnit, belongs_to, mark_made, read_unit
from lictor.core.errors import EvaluationError
from lictor.core.model.request import Request
from lictor.core.raw import JsonObject
from lictor.kubernetes.resource import CONFIG_MAP, SECRET
from lictor.kubernetes.update_requests import UpdateTrigger

PREFIX = "generate.kyverno.io"
PLACES = ["red", "blue"]


def forge(item, namespace, name, labels, notes):
    """Someone copies an object of the policy's to where he may write, and tells other stories."""
    forged = copy.deepcopy(item)
    metadata = forged["metadata"]
    forged["metadata"] = {
        "name": name,
        "namespace": namespace,
        "labels": {**metadata["labels"], **labels},
        "annotations": {**metadata["annotations"], **notes},
    }
    return forged


def spread():
    """A ClusterPolicy that makes the same in two namespaces for one trigger."""
    policy = make_policy(**DATA)
    generate = policy["spec"]["rules"][0]["generate"]
    body = {
        name: generate.pop(name) for name in ("apiVersion", "kind", "name", "namespace", "data")
    }
    loop = {"list": "['red', 'blue']", **body, "namespace": "{{ element }}"}
    generate["foreach"] = [loop]
    return policy


@pytest.mark.parametrize(
    ("labels", "notes"),
    [
        pytest.param({}, {"lictor.io/trigger-name": "nobody"}, id="name"),
        pytest.param({f"{PREFIX}/trigger-namespace": "x"}, {}, id="namespace"),
        pytest.param({f"{PREFIX}/trigger-kind": "ConfigMap"}, {}, id="kind"),
    ],
)
def test_a_trigger_that_is_not_there_takes_nothing_of_others_along(labels, notes):
    site = Site(spread())
    uid = site.add_namespace("start")

    async def work(site):
        await site.generation.reconcile(site.unit("start"))
        await until(lambda: site.downstream.units_of(uid))
        site.api.seed(CONFIG_MAP, forge(site.made("red"), "red", "forged", labels, notes))
        await until(lambda: len(site.downstream.units_of(uid)) == 2)
        for unit in site.downstream.units_of(uid):
            await site.generation.reconcile(unit)
        assert all(site.made(place) for place in PLACES)
        assert not site.made("red", "forged")

    run(site, work)


def test_a_source_that_is_not_there_takes_no_other_copies_along():
    site = Site(make_policy(**CLONE))
    for place in PLACES:
        site.add_namespace(place)
    site.api.seed(SECRET, {"metadata": {"name": "source", "namespace": "vault"}, "data": {}})
    source = site.api.read(SECRET, "source", "vault")["metadata"]["uid"]

    async def work(site):
        for place in PLACES:
            await site.ask(place)
        await until(lambda: len(site.downstream.copies_of(source)) == 2)
        mine = site.made("red", kind="secrets")
        await site.downstream.stop()
        # The first that is read after a restart.
        notes = {"lictor.io/source-name": "nothing"}
        site.api.seed(SECRET, forge(mine, "red", "aaa", {}, notes))
        await site.downstream.follow(SECRET)
        assert len(site.downstream.copies_of(source)) == 3
        await site.watch.sweep()
        assert all(site.made(place, kind="secrets") for place in PLACES)
        assert not site.made("red", "aaa", "secrets")

    run(site, work)


UNIT = GenerationUnit(
    "policy", "red", "rule", UpdateTrigger("v1", "ConfigMap", "red", "go", "uid-1")
)


@pytest.mark.parametrize(
    ("namespace", "is_ours"), [("red", True), ("blue", False), ("", False), (None, False)]
)
def test_a_policy_of_a_namespace_made_nothing_elsewhere(namespace, is_ours):
    metadata = {"name": "a", "namespace": namespace}
    made = mark_made({"metadata": metadata}, UNIT, None, goes_with_policy=True)
    assert (read_unit(made) == UNIT) is is_ours
    assert belongs_to(made, UNIT) is is_ours


def namespaced(**generate):
    """A Policy in red that a ConfigMap there sets off."""
    policy = make_policy(**generate)
    policy["kind"] = "Policy"
    policy["metadata"]["namespace"] = "red"
    policy["spec"]["rules"][0]["match"] = {
        "any": [{"resources": {"kinds": ["ConfigMap"], "names": ["go"]}}]
    }
    return policy


@pytest.mark.parametrize(
    "generate",
    [
        pytest.param({**DATA, "namespace": "{{ 'blue' }}"}, id="target"),
        pytest.param({**DATA, "namespace": "{{ 'lictor' }}", "name": "lictor"}, id="settings"),
        pytest.param({**DATA, "namespace": "{{ request.object.data.x || '' }}"}, id="empty"),
        pytest.param({**DATA, "kind": "Namespace", "namespace": "red"}, id="cluster-wide"),
        pytest.param(
            {**CLONE, "namespace": "red", "clone": {"namespace": "{{ 'blue' }}", "name": "s"}},
            id="clone",
        ),
        pytest.param(
            {
                "namespace": "red",
                "cloneList": {"namespace": "{{ 'blue' }}", "kinds": ["v1/Secret"]},
            },
            id="clone-list",
        ),
        pytest.param(
            {"foreach": [{**DATA, "list": "['blue']", "namespace": "{{ element }}", "name": "m",
                          "apiVersion": "v1", "kind": "ConfigMap"}]},
            id="foreach",
        ),
    ],
)  # fmt: skip
def test_a_policy_of_a_namespace_writes_nothing_elsewhere(generate):
    site = Site(namespaced(**generate))
    start: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap"}
    start["metadata"] = {"name": "go", "namespace": "red", "uid": "uid-1"}
    site.api.seed(CONFIG_MAP, start)
    site.api.seed(SECRET, {"metadata": {"name": "s", "namespace": "blue"}, "data": {"x": "1"}})
    unit = GenerationUnit(
        "policy", "red", "make", UpdateTrigger("v1", "ConfigMap", "red", "go", "uid-1")
    )

    async def work(site):
        with pytest.raises(EvaluationError, match=r"cannot reach|whole cluster"):
            await site.generation.reconcile(unit, Request.of(start))

    run(site, work)
    assert site.api.writes == []
    assert "cannot reach" in site.done[0].failure
