"""An echoing websocket server with permessage-deflate: the origin of the Autobahn cases and of websocket_calls.py.

Listens on a free port of loopback, prints it, and ends when its standard input does.
"""

import asyncio
import logging
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

LARGEST_MESSAGE = 32 * 1024 * 1024


async def echo(connection):
    try:
        async for message in connection:
            await connection.send(message)
    except ConnectionClosed:
        pass


async def main():
    async with serve(echo, "127.0.0.1", 0, max_size=LARGEST_MESSAGE, compression="deflate") as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# The cases break the protocol on purpose.
logging.disable()
asyncio.run(main())
