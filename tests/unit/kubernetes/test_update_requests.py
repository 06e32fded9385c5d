"""Updates on their way to the cluster: never more than it takes, none lost, equal ones joined."""

import asyncio

import pytest

from lictor.core.errors import ApiError, NotFoundError, UnreachableError
from lictor.kubernetes.names import Names
from lictor.kubernetes.update_requests import (
    Update,
    UpdateRequests,
    UpdateTrigger,
    UpdateType,
    build_update_request,
    read_update_request,
)

NAMES = Names("lictor", "lictor")


def make(number=0, kind=UpdateType.GENERATE, **more):
    trigger = UpdateTrigger("apps/v1", "Deployment", "shop", f"web-{number}", f"uid-{number}")
    return Update(kind, "shop/policy", ("a", "b"), trigger, **more)


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(make(), id="plain"),
        pytest.param(make(kind=UpdateType.CEL_MUTATE), id="mutate"),
        pytest.param(make(delete_downstream=True), id="delete"),
        pytest.param(
            make(
                admission={"operation": "CREATE", "userInfo": {"username": "jo"}},
                caller={"roles": ["shop:edit"], "clusterRoles": []},
            ),
            id="with-a-request",
        ),
    ],
)
def test_written_and_read_again(update):
    body = build_update_request(update, "lictor")
    body["metadata"] |= {"name": "ur-1", "uid": "u", "resourceVersion": "5"}
    stored = read_update_request(body)
    assert stored.update == update
    assert (stored.name, stored.uid, stored.version) == ("ur-1", "u", 5)


@pytest.mark.parametrize("spec", [{}, {"requestType": "dance"}, {"requestType": None}])
def test_what_makes_no_sense(spec):
    assert read_update_request({"metadata": {"name": "x"}, "spec": spec}) is None


class Server:
    """A queue that someone else works off, or nobody."""

    def __init__(self, *, faults=(), drained=0):
        self.stored = []
        self.highest = 0
        self.faults = list(faults)
        self._drained = drained

    async def request(self, method, path, *, params):
        count = len(self.stored)
        del self.stored[: self._drained]
        metadata = {"remainingItemCount": count - 1} if count > 1 else {}
        return {"metadata": metadata, "items": [{}] if count else []}

    async def create(self, resource, body):
        await asyncio.sleep(0)
        if self.faults:
            raise self.faults.pop(0)
        self.stored.append(body["spec"]["resource"]["name"])
        self.highest = max(self.highest, len(self.stored))


def send(server, updates, *, limit=1000, seconds=5.0):
    async def main():
        requests = UpdateRequests(server, NAMES, limit=lambda: limit)
        await requests.submit(updates)
        running = asyncio.create_task(requests.run())
        await requests.drain(seconds)
        running.cancel()
        return len(requests)

    return asyncio.run(main())


def test_all_are_sent_and_equal_ones_once():
    server = Server()
    assert send(server, [make(1), make(2), make(1)]) == 0
    assert sorted(server.stored) == ["web-1", "web-2"]


def test_no_more_than_the_limit():
    server = Server(drained=5)
    assert send(server, [make(number) for number in range(30)], limit=10, seconds=20) == 0
    assert server.highest <= 10


def test_a_full_queue_makes_them_wait():
    server = Server()
    assert send(server, [make(number) for number in range(9)], limit=4, seconds=1) > 0
    assert len(server.stored) == 4


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(UnreachableError("away"), id="away"),
        pytest.param(ApiError("busy", status=503), id="busy"),
        pytest.param(NotFoundError("just begun", status=404), id="kind-not-served-yet"),
    ],
)
def test_tried_again(fault):
    server = Server(faults=[fault])
    assert send(server, [make()]) == 0
    assert server.stored == ["web-0"]


def test_what_the_server_never_takes_is_given_up(caplog):
    server = Server(faults=[ApiError("too large", status=413)])
    assert send(server, [make(1), make(2)]) == 0
    assert len(server.stored) == 1
    assert "update request refused" in caplog.text
