"""Work that goes on for as long as a process does, also after a moment without memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

_AGAIN = 1.0


async def keep_running(run: Callable[[], Awaitable[None]], again: float = _AGAIN) -> None:
    """Run until it ends; begin anew where it ran out of memory.

    A rule on a thread that takes all the memory gets an error soon. Whoever asks for some in that
    moment must not end the process, and with it all requests that it has in hand.
    """
    while True:
        try:
            await run()
            return
        except* MemoryError:
            log.warning("out of memory", extra={"work": getattr(run, "__qualname__", "")})
        await asyncio.sleep(again)
