"""Talks to tests/gate/websocket_echo.py at the URL given, and prints as JSON what came back."""

import asyncio
import json
import sys

from websockets.asyncio.client import connect

LARGE = 4 * 1024 * 1024


async def talk(url, compression):
    async with connect(url, compression=compression, max_size=2 * LARGE, proxy=None) as socket:
        told = []
        for message in ("text ä", b"\x00\xff", "", "x" * LARGE, bytes(LARGE)):
            await socket.send(message)
            told.append(await socket.recv() == message)
        await socket.send(iter(["in ", "three ", "pieces"]))
        told.append(await socket.recv())
        await (await socket.ping(b"there?"))
        for number in range(200):
            await socket.send(str(number))
        told.append([await socket.recv() for _ in range(200)] == [str(number) for number in range(200)])
        await socket.close(4001, "enough")
        return [told, socket.protocol.close_rcvd.code, socket.protocol.close_rcvd.reason]


async def main():
    print(json.dumps([await talk(sys.argv[1], compression) for compression in (None, "deflate")]))


asyncio.run(main())
