"""`--maxGlobalContextEntries`: entries beyond the limit wait for room."""

import asyncio

import pytest

from lictor.core.errors import LictorError
from lictor.kubernetes.cache import Change, ChangeType
from lictor.lookups.global_context import GlobalContext


def _read(context: GlobalContext, name: str) -> str:
    entry = context.find(name)
    assert entry is not None
    with pytest.raises(LictorError) as error:
        entry.read("", lambda _: None)
    return str(error.value)


async def _follow() -> None:
    context = GlobalContext(None, None, most=1)
    first, second = ({"metadata": {"name": name}, "spec": {}} for name in "ab")
    for document in (first, second):
        context._take(Change(ChangeType.ADDED, document))
    assert "neither resource nor apiCall" in _read(context, "a")
    assert "there are 1 entries already (--maxGlobalContextEntries)" in _read(context, "b")
    context._take(Change(ChangeType.DELETED, first))
    assert context.find("a") is None
    assert "neither resource nor apiCall" in _read(context, "b")
    await asyncio.gather(*context._tasks.values())


def test_entries_beyond_the_limit_wait_for_room() -> None:
    asyncio.run(_follow())
