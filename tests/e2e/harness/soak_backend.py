"""A backend of the soak, as a process: every answer can be checked by whoever asked.

`GET /bytes/SEED/SIZE` gives bytes that follow from seed and size, with a length or in chunks; `POST /sum` gives the SHA-256 of
what was sent; `/ready` is 200 until SIGTERM, and 503 from then on. A second later the process ends.
"""

import asyncio
import hashlib
import os
import signal
import sys

LAME_DUCK_SECONDS = 1.2


def made(seed: int, size: int) -> bytes:
    """The bytes that follow from a seed."""
    block = hashlib.sha256(str(seed).encode()).digest()
    return (block * (size // len(block) + 1))[:size]


class Server:
    def __init__(self) -> None:
        self.leaving = False

    async def body(self, reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
        if fields.get("transfer-encoding") == "chunked":
            body = b""
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return body
        return await reader.readexactly(int(fields.get("content-length", "0")))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not (self.leaving and reader.at_eof()):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                target = head[0].split()[1]
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
                body = await self.body(reader, fields)
                status, answer, chunked = 200, b"", False
                parts = target.strip("/").split("/")
                if parts[0] == "bytes":
                    answer = made(int(parts[1]), int(parts[2]))
                    chunked = int(parts[1]) % 2 == 0
                elif parts[0] == "sum":
                    answer = hashlib.sha256(body).hexdigest().encode()
                elif parts[0] == "ready":
                    status = 503 if self.leaving else 200
                close = b"connection: close\r\n" if self.leaving else b""
                writer.write(b"HTTP/1.1 %d x\r\n%s" % (status, close))
                if chunked:
                    writer.write(b"transfer-encoding: chunked\r\n\r\n")
                    for at in range(0, len(answer), 10_000):
                        piece = answer[at : at + 10_000]
                        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                        await writer.drain()
                    writer.write(b"0\r\n\r\n")
                else:
                    writer.write(b"content-length: %d\r\n\r\n%s" % (len(answer), answer))
                await writer.drain()
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def run(self, port: int) -> None:
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        server = await asyncio.start_server(self.serve, "127.0.0.1", port, backlog=512, limit=1 << 20)
        await told.wait()
        self.leaving = True
        await asyncio.sleep(LAME_DUCK_SECONDS)
        server.close()
        await asyncio.sleep(0.3)
        # What is still open goes with the process. To have each task end by itself can take long on a busy machine.
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(Server().run(int(sys.argv[1])))
