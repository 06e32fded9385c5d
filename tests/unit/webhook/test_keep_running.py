"""A moment without memory does not end what goes on for as long as the process."""

import asyncio

import pytest

from lictor.webhook.capacity import keep_running


class Work:
    """Fails in the given ways, one after the other; then it is done."""

    def __init__(self, *faults: BaseException) -> None:
        self.faults = list(faults)
        self.begun = 0

    async def run(self) -> None:
        self.begun += 1
        if self.faults:
            raise self.faults.pop(0)


def test_it_is_begun_anew() -> None:
    work = Work(MemoryError(), ExceptionGroup("tasks", [MemoryError(), MemoryError()]))
    asyncio.run(keep_running(work.run, again=0))
    assert work.begun == 3


@pytest.mark.parametrize("fault", [ValueError(), ExceptionGroup("tasks", [ValueError()])])
def test_other_faults_are_not_hidden(fault: Exception) -> None:
    with pytest.raises((ValueError, ExceptionGroup)):
        asyncio.run(keep_running(Work(fault).run, again=0))


def test_it_can_be_cancelled() -> None:
    async def run() -> None:
        task = asyncio.create_task(keep_running(lambda: asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
