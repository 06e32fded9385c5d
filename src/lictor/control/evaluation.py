"""The one place where controllers ask the engine: in a thread, with fresh lookups and a limit."""

import asyncio
import time

from lictor.cluster.lookups import begin_request
from lictor.engine import Engine
from lictor.model.request import Request
from lictor.model.result import Verdict

# Nobody waits for an answer, but a policy that takes for ever may not hold up the others.
_SECONDS = 60.0


async def judge(engine: Engine, request: Request) -> Verdict:
    """What the policies say of a request."""
    return await asyncio.to_thread(judge_now, engine, request)


def judge_now(engine: Engine, request: Request) -> Verdict:
    """The same, in this thread: not the one of the event loop, as lookups wait for that."""
    deadline = time.monotonic() + _SECONDS
    begin_request(deadline)
    return engine.evaluate(request, deadline=deadline)
