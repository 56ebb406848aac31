"""A scripted OpenAI-compatible server for tests: each request gets the next answer of a list, the last one for ever.
Not a model at all."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-a-secret-that-nobody-may-see"
Turn = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn = self.server.turns[min(len(self.server.bodies), len(self.server.turns) - 1)]
        self.server.bodies.append(body)
        self.server.headers.append({k.lower(): v for k, v in self.headers.items()})
        with suppress(ConnectionError):  # whoever asked has gone
            turn(self, body)

    def reply(self, status: int, value: Any, **headers: str) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Scripted(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, turns: tuple[Turn, ...]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.turns = turns
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@contextmanager
def scripted(*turns: Turn) -> Iterator[Scripted]:
    with Scripted(turns) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)


# --- what it may answer -------------------------------------------------------------------------------------------


def says(content: Any, usage: Any = None, end: str = "stop", **message: Any) -> Turn:
    """A completion with this content (a dict is written as JSON)."""
    text = json.dumps(content) if isinstance(content, dict) else content
    choice = {"index": 0, "finish_reason": end, "message": {"role": "assistant", "content": text, **message}}
    reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return raw(200, reply | {"usage": usage or {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}})


def raw(status: int, value: Any, **headers: str) -> Turn:
    return lambda handler, body: handler.reply(status, value, **headers)


def error(status: int, message: str, **headers: str) -> Turn:
    return raw(status, {"error": {"message": message, "type": "x", "code": None}}, **headers)


def slow(seconds: float) -> Turn:
    return lambda handler, body: time.sleep(seconds)


def drips(handler: Handler, body: dict[str, Any]) -> None:
    """A byte now and then, for ever: no time-out of a read ends this."""
    handler.send_response(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.02)


def endless(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" " * (1 << 20))


def echoes_the_key(handler: Handler, body: dict[str, Any]) -> None:
    """The error of a careless server."""
    error(401, f"no such key: {handler.headers['authorization']}")(handler, body)


def knows_no_schema(then: Turn) -> Turn:
    """An older server: it refuses response_format, and says so."""

    def turn(handler: Handler, body: dict[str, Any]) -> None:
        if "response_format" in body:
            error(400, "response_format of type json_schema is not supported")(handler, body)
        else:
            then(handler, body)

    return turn
