"""A server in a process of its own, so that one that hangs can be told from one that is slow.

Prints its port; errors go to stderr; ends when stdin does.
"""

import asyncio
import logging
import sys

from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.server import Server, ServerSettings


async def serve(token: str) -> None:
    """Until nobody listens any more."""
    settings = ServerSettings(tokens={token: ApiUser("admin", ("system:masters",))})
    server = Server(settings)
    await server.start()
    sys.stdout.write(server.url.rpartition(":")[2] + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(serve(sys.argv[1]))
