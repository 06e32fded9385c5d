"""How much is sent in a second."""

import asyncio

import pytest

from lictor.core.errors import UnreachableError
from lictor.kubernetes.client import Client, TokenBucket
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.resource import LEASE


@pytest.mark.parametrize(
    ("rate", "burst", "count", "least"), [(100.0, 5, 15, 0.1), (0.0, 1, 1000, 0.0)]
)
def test_so_many_in_a_second(rate: float, burst: int, count: int, least: float) -> None:
    async def run() -> float:
        bucket, loop = TokenBucket(rate, burst), asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(bucket.take() for _ in range(count)))
        return loop.time() - began

    assert least * 0.95 <= asyncio.run(run()) < least + 20


def test_a_client_waits_for_its_turn() -> None:
    async def run() -> float:
        client = Client(ClusterConfig(server="http://127.0.0.1:9"), rate=TokenBucket(20.0, 1))
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(4):
            with pytest.raises(UnreachableError):
                await client.request("GET", "/version")
        await client.close()
        return loop.time() - began

    assert asyncio.run(run()) >= 0.14


def test_leases_wait_for_nobody() -> None:
    """Else whoever gives us much to write makes leaders lose their place."""

    async def run() -> None:
        bucket = TokenBucket(0.001, 1)
        client = Client(ClusterConfig(server="http://127.0.0.1:9"), rate=bucket)
        await bucket.take()
        waiting = asyncio.create_task(client.request("GET", "/version"))
        async with asyncio.timeout(30):
            with pytest.raises(UnreachableError):
                await client.get(LEASE, "leader", "lictor")
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await client.close()

    asyncio.run(run())
