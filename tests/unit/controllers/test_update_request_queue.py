"""UpdateRequests are worked off: joined where equal, tried again, and taken away when done."""

import asyncio
import time

import pytest

from lictor.controllers.update_requests import UpdateRequestQueue, key_of
from lictor.core.errors import EvaluationError, NotYetError
from lictor.kubernetes.update_requests import (
    Update,
    UpdateTrigger,
    UpdateType,
    build_update_request,
    read_update_request,
)

PLACE = UpdateTrigger("v1", "Namespace", "", "team", "uid-1")


class Queue:
    """What lies in the cluster, as a cache has it."""

    namespace = "kyverno"

    def __init__(self, *updates):
        self.items = {}
        for update in updates:
            self.add(update)

    def add(self, update):
        number = len(self.items) + 1
        body = build_update_request(update, self.namespace)
        body["metadata"] |= {
            "name": f"ur-{number}",
            "uid": f"ur-uid-{number}",
            "resourceVersion": str(number),
            "creationTimestamp": "2099-01-01T00:00:00Z",
        }
        self.items[body["metadata"]["name"]] = body

    def list(self):
        return list(self.items.values())

    def __len__(self):
        return len(self.items)


class Client:
    def __init__(self, queue):
        self.queue = queue
        self.statuses = []

    async def delete(self, resource, name, namespace, *, preconditions):
        assert self.queue.items[name]["metadata"]["uid"] == preconditions["uid"]
        del self.queue.items[name]
        return True

    async def patch(self, resource, name, patch, *, namespace, subresource):
        self.statuses.append((name, patch["status"]["state"], patch["status"]["message"]))


def make(operation="", *, trigger=PLACE, rules=("rule",), kind=UpdateType.GENERATE, **admission):
    request = {"operation": operation, **admission} if operation else None
    return Update(kind, "policy", rules, trigger, admission=request)


def work_off(queue, handler, *, seconds=0.3, later=()):
    client = Client(queue)

    async def main():
        updates = UpdateRequestQueue(client, queue, {UpdateType.GENERATE: handler}, workers=4)
        working = asyncio.create_task(updates.run())
        end = time.monotonic() + seconds
        waiting = list(later)
        while time.monotonic() < end:
            await updates.reconcile()
            if waiting:
                queue.add(waiting.pop(0))
            await asyncio.sleep(0.02)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(main())
    return client


def test_equal_ones_are_one_piece_of_work():
    seen = []

    async def handle(update, *, is_late):
        seen.append(update.admission["uid"])

    queue = Queue(*(make("UPDATE", uid=str(number)) for number in range(5)))
    work_off(queue, handle)
    assert seen == ["4"]  # the last knows what the others know
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        pytest.param(make("CREATE"), make("CREATE"), True, id="same"),
        pytest.param(make("CREATE"), make("UPDATE"), False, id="operation"),
        pytest.param(make("UPDATE"), make("UPDATE", rules=("x",)), False, id="rules"),
        pytest.param(
            make("UPDATE"), make("UPDATE", trigger=UpdateTrigger("v1", "Namespace", "", "team", "uid-2")),
            False, id="another-of-that-name",
        ),
        pytest.param(make("DELETE"), make("DELETE"), False, id="each-deletion-counts"),
        pytest.param(
            make("CREATE", subResource="exec"), make("CREATE", subResource="exec"), False,
            id="each-exec-counts",
        ),
        pytest.param(make(), make(kind=UpdateType.MUTATE), False, id="kind-of-work"),
    ],
)  # fmt: skip
def test_what_is_equal(one, other, joined):
    queue = Queue(one, other)
    first, second = (key_of(read_update_request(body)) for body in queue.list())
    assert (first == second) is joined


def test_a_failure_is_shown_and_what_is_new_does_not_wait_for_it():
    seen = []

    async def handle(update, *, is_late):
        seen.append(update.admission["uid"])
        if update.admission["uid"] == "0":
            raise EvaluationError("no rights")

    queue = Queue(make("UPDATE", uid="0"))
    client = work_off(queue, handle, later=[make("UPDATE", uid="1")])
    assert client.statuses == [("ur-1", "Failed", "no rights")]
    assert seen == ["0", "1"]
    assert len(queue) == 0


def test_what_comes_too_early_waits_but_not_for_ever():
    seen = []

    async def handle(update, *, is_late):
        seen.append(is_late)
        if not is_late:
            raise NotYetError("not stored", patience=0.4)

    queue = Queue(make("CREATE"))
    client = work_off(queue, handle, seconds=1.2)
    assert seen[-1] is True
    assert set(seen[:-1]) == {False}
    assert client.statuses == []  # it is no failure
    assert len(queue) == 0


def test_a_mistake_of_ours_is_a_failure_too():
    async def handle(update, *, is_late):
        raise KeyError("oops")

    queue = Queue(make("CREATE"))
    client = work_off(queue, handle)
    assert client.statuses == [("ur-1", "Failed", "KeyError: 'oops'")]
