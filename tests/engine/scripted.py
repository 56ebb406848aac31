"""A scripted completions server for tests: each request gets the next behaviour of a list. Not an engine at all."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# A behaviour is a list of steps: a number waits that many seconds, "+2" sends a chunk that brings 2 more tokens, "end"
# sends usage and [DONE], "cut" closes the connection, "done" sends [DONE] without usage, anything else is sent raw.
Behaviour = list[str | float]
FINE: Behaviour = [0.01, "+1", 0.01, "+1", 0.01, "+1", 0.01, "+1", "end"]


class Scripted:
    def __init__(self, script: list[Behaviour], otherwise: Behaviour) -> None:
        self.script, self.otherwise = iter(script), otherwise
        self.flying = self.peak = 0
        self.bodies: list[dict[str, object]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readline():
                length = 0
                while header := (await reader.readline()).strip():
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                body = json.loads(await reader.readexactly(length))
                self.bodies.append(body)
                self.flying += 1
                self.peak = max(self.peak, self.flying)
                try:
                    await self.answer(writer, body, next(self.script, self.otherwise))
                finally:
                    self.flying -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, writer: asyncio.StreamWriter, body: dict[str, object], steps: Behaviour) -> None:
        if steps and isinstance(steps[0], str) and steps[0].startswith("HTTP/"):
            writer.write(steps[0].encode())
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        made, ready = 0, bytearray()  # what lies between two waits goes out in one write, and so arrives in one read

        def send(data: bytes) -> None:
            ready.extend(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        async def flush() -> None:
            writer.write(bytes(ready))
            ready.clear()
            await writer.drain()

        for step in steps:
            counts = {"prompt_tokens": len(body["prompt"]), "completion_tokens": made}  # type: ignore[arg-type]
            if isinstance(step, float):
                await flush()
                await asyncio.sleep(step)
            elif step == "cut":
                await flush()
                writer.transport.abort()
                return
            elif step == "done":
                send(b"data: [DONE]\n\n")
            elif step == "end":
                send(f"data: {json.dumps({'choices': [], 'usage': counts})}\n\ndata: [DONE]\n\n".encode())
            elif step.startswith("+"):
                made += int(step)
                usage = counts | {"completion_tokens": made}
                send(f"data: {json.dumps({'choices': [{'text': 'x' * made}], 'usage': usage})}\n\n".encode())
            else:
                send(step.encode())
        ready.extend(b"0\r\n\r\n")
        await flush()


@contextmanager
def scripted(script: list[Behaviour] | None = None, otherwise: Behaviour = FINE) -> Iterator[Scripted]:
    """The server on a free loopback port, in a thread of its own."""
    server = Scripted(script or [], otherwise)
    loop = asyncio.new_event_loop()
    up = threading.Event()

    async def serve() -> None:
        listening = await asyncio.start_server(server.connection, "127.0.0.1", 0)
        server.port = listening.sockets[0].getsockname()[1]
        up.set()
        async with listening:
            await asyncio.Event().wait()

    def run() -> None:
        task = loop.create_task(serve())
        server.stop = lambda: loop.call_soon_threadsafe(task.cancel)  # type: ignore[attr-defined]
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        for left in asyncio.all_tasks(loop):
            left.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert up.wait(5)
    try:
        yield server
    finally:
        server.stop()  # type: ignore[attr-defined]
        thread.join(5)
