"""How everything here speaks to an engine: plain HTTP on loopback, no proxy, no certificates, no stale connection."""

from __future__ import annotations

import httpx

# vLLM's front end closes a connection that was idle for 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE), and httpx by itself uses
# one again until 5 s: a request sent in that moment dies with "Server disconnected without sending a response". Seen
# once in 250 sums, between two waves (vLLM 0.32.0, 2026-11-30); a good change was called inconclusive for it.
KEEPALIVE_S = 1.0


def http_client(base_url: str, timeout_s: float, connections: int | None = None) -> httpx.Client:
    """`connections`: the most at a time, None for as many as there are requests. No proxy that the environment names
    may stand between us and the engine (trust_env); certificates would cost 35 to 100 ms a client (verify)."""
    limits = _limits(connections)
    return httpx.Client(base_url=base_url, timeout=timeout_s, limits=limits, trust_env=False, verify=False)


def async_http_client(base_url: str, timeout: float | httpx.Timeout) -> httpx.AsyncClient:
    """The same for the load generator: as many connections as there are requests."""
    limits = _limits(None)
    return httpx.AsyncClient(base_url=base_url, timeout=timeout, limits=limits, trust_env=False, verify=False)


def _limits(connections: int | None) -> httpx.Limits:
    return httpx.Limits(
        max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=KEEPALIVE_S
    )
