"""What the rest of the house may ask of an engine that is up. engine/server.py provides the real one."""

from __future__ import annotations

from typing import Protocol

from contracts import Failure, LaunchRecord


class EngineFailure(Exception):
    """The engine is not serving, or is not ours. `failure` says which and why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.reason}")
        self.failure = failure


class RunningEngine(Protocol):
    """A ready engine, ours as of the last check()."""

    @property
    def record(self) -> LaunchRecord: ...

    @property
    def base_url(self) -> str:
        """For example http://127.0.0.1:18000, without /v1."""
        ...

    @property
    def served_name(self) -> str:
        """The model name with the nonce in it; requests must use it, so that no other server can answer them."""
        ...

    def check(self) -> None:
        """Alive, same start time, owns the listening socket, serves our nonce. Raises EngineFailure."""
        ...

    def log_offset(self) -> int:
        """The log's length in bytes now."""
        ...

    def log_since(self, offset: int) -> str:
        """The log's text from that offset on."""
        ...
