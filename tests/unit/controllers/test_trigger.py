"""The request that an update stands for comes from what is stored, not from what was said."""

import asyncio

import pytest

from lictor.controllers.update_requests import TriggerReader
from lictor.core.errors import NotFoundError, NotYetError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.model.request import Operation
from lictor.kubernetes.update_requests import Update, UpdateTrigger, UpdateType

PLACE = UpdateTrigger("v1", "ConfigMap", "shop", "trigger", "uid-1")


def stored(text="stored", version="2", uid="uid-1"):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "trigger", "namespace": "shop", "uid": uid, "resourceVersion": version,
        },
        "data": {"text": text},
    }  # fmt: skip


class Client:
    def __init__(self, *objects):
        self.objects = {item["metadata"]["name"]: item for item in objects}

    async def get(self, resource, name, namespace):
        assert resource.plural == "configmaps"
        if name not in self.objects:
            raise NotFoundError(name, status=404)
        return self.objects[name]

    async def list_pages(self, resource, namespace):
        yield {"items": list(self.objects.values())}


class Namespaces:
    async def ensure(self, name):
        return {"metadata": {"name": name}}

    def labels(self, name):
        return {"team": name}


def build(client, update, *, is_late=False):
    triggers = TriggerReader(client, builtin_names, Namespaces())
    return asyncio.run(triggers.build_request(update, is_late=is_late))


def ask(operation, *, old=None, new=None, subresource="", trigger=PLACE):
    admission = {
        "uid": "r",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "operation": operation,
        "object": new,
        "oldObject": old,
        "subResource": subresource,
        "userInfo": {"username": "jo"},
    }
    caller = {"roles": ["shop:edit"], "clusterRoles": ["view"]}
    return Update(
        UpdateType.GENERATE, "policy", ("rule",), trigger, admission=admission, caller=caller
    )


def test_what_is_stored_counts_and_who_asked_is_known():
    request = build(Client(stored()), ask("CREATE", new=stored("forged")))
    assert request.object["data"] == {"text": "stored"}
    assert request.caller.username == "jo"
    assert request.caller.roles == ("shop:edit",)
    assert request.namespace_labels == {"team": "shop"}


def test_without_a_request_it_is_as_if_it_came_now():
    update = Update(UpdateType.GENERATE, "policy", ("rule",), PLACE)
    request = build(Client(stored()), update)
    assert (request.operation, request.caller) == (Operation.CREATE, None)


@pytest.mark.parametrize(
    ("update", "objects"),
    [
        pytest.param(ask("CREATE"), (), id="not-created-yet"),
        pytest.param(ask("UPDATE", old=stored(version="2")), (stored(),), id="not-updated-yet"),
    ],
)
def test_too_early(update, objects):
    with pytest.raises(NotYetError):
        build(Client(*objects), update)
    late = build(Client(*objects), update, is_late=True)
    assert (late is not None) is bool(objects)


@pytest.mark.parametrize(
    ("update", "objects"),
    [
        pytest.param(ask("UPDATE"), (), id="gone"),
        pytest.param(ask("CREATE"), (stored(uid="uid-9"),), id="another-of-that-name-create"),
        pytest.param(ask("UPDATE"), (stored(uid="uid-9"),), id="another-of-that-name"),
    ],
)
def test_gone(update, objects):
    assert build(Client(*objects), update, is_late=True) is None


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(ask("DELETE", old=stored("last")), id="deleted"),
        pytest.param(ask("CREATE", new=stored("last"), subresource="exec"), id="never-stored"),
    ],
)
def test_what_is_stored_nowhere_is_told_by_the_request(update):
    assert build(Client(), update).resource["data"] == {"text": "last"}


def test_a_trigger_without_a_name_is_found_by_its_uid():
    update = Update(
        UpdateType.GENERATE,
        "policy",
        ("rule",),
        UpdateTrigger("v1", "ConfigMap", "shop", "", "uid-1"),
    )
    assert build(Client(stored()), update).object["data"] == {"text": "stored"}
