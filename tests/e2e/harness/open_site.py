"""A backend on which each attack of `holders` can hold something: `python -m harness.open_site PORT...`.

It reads every body to its end before it answers, sends 10 MB at `/big`, and accepts any upgrade and then waits.
"""

import asyncio
import base64
import hashlib
import sys

BIG_BYTES = 10_000_000
_PIECE = bytes(64 * 1024)


async def _read_body(reader: asyncio.StreamReader, fields: dict[str, str]) -> None:
    if fields.get("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            await reader.readexactly(size + 2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return
    left = int(fields.get("content-length", "0"))
    while left:
        piece = await reader.read(min(left, 1 << 16))
        if not piece:
            raise ConnectionError
        left -= len(piece)


def _switch(key: str) -> str:
    """The response to a WebSocket handshake (RFC 6455, 4.2.2)."""
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    fields = f"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n"
    return f"HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            lines = [line.partition(":") for line in head[1:] if line]
            raw = {name.lower(): value.strip() for name, _, value in lines}
            fields = {name: value.lower() for name, value in raw.items()}
            path = head[0].split()[1]
            if "upgrade" in fields:
                writer.write(_switch(raw.get("sec-websocket-key", "")).encode())
                while await reader.read(1 << 16):
                    pass
                return
            await _read_body(reader, fields)
            size = BIG_BYTES if path == "/big" else 3
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode())
            if path != "/big":
                writer.write(b"ok\n")
                continue
            while size:
                await writer.drain()
                piece = _PIECE[:size]
                writer.write(piece)
                size -= len(piece)
    except (asyncio.IncompleteReadError, OSError, ValueError, IndexError):
        pass
    finally:
        writer.close()


async def main(ports: list[int]) -> None:
    servers = [await asyncio.start_server(_serve, "127.0.0.1", port, backlog=1024) for port in ports]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main([int(port) for port in sys.argv[1:]]))
