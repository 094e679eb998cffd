"""kmock's emulator of a Kubernetes API server, in a process of its own: `python -m harness.kmock_server PORT`.

Its plugin for pytest needs pytest-asyncio, so pytest.ini leaves the plugin out.
"""

import asyncio
import sys

import kmock


async def serve(port: int) -> None:
    handler = kmock.KubernetesEmulator()
    async with handler, kmock.Server(handler, port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
