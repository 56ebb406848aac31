"""A server that closes an idle connection at the very moment in which it is used again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from engine.client import KEEPALIVE_S, http_client

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
IDLE_S = KEEPALIVE_S + 0.2


@pytest.fixture
def server() -> Iterator[str]:
    """Answers each connection's requests until one comes after IDLE_S of silence: that one it reads and hangs up on."""

    def serve(connection: socket.socket) -> None:
        last = time.monotonic()
        with connection:
            while connection.recv(65536):
                if time.monotonic() - last > IDLE_S:
                    return
                connection.sendall(ANSWER)
                last = time.monotonic()

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_connection_that_was_idle_is_not_used_again(server: str) -> None:
    with http_client(server, 5.0) as ours:
        assert ours.get("/").text == "ok"
        time.sleep(IDLE_S + 0.1)
        assert ours.get("/").text == "ok"
    with httpx.Client(base_url=server, trust_env=False) as plain:  # what httpx does by itself
        assert plain.get("/").text == "ok"
        time.sleep(IDLE_S + 0.1)
        with pytest.raises(httpx.RemoteProtocolError, match="Server disconnected"):
            plain.get("/")
