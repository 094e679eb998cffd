"""A relay of TCP in a process of its own: paused, it is a network that drops packets between two processes."""

import asyncio
import pathlib
import sys

if __package__:
    from .process import Process, free_port
else:
    Process = object


class Relay(Process):
    """Passes connections to its own port on to another one of this machine. SIGSTOP cuts them, without a reset."""

    def __init__(self, name: str, to: str, directory: pathlib.Path):
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        super().__init__(name, [sys.executable, str(pathlib.Path(__file__)), str(port), to], directory)
        self.wait_for_port(port)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def _relay(port: int, to: str) -> None:
    host, of = to.rsplit(":", 1)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, int(of))
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_relay(int(sys.argv[1]), sys.argv[2]))
