"""One vLLM server under test: started, proven ours, read back, stopped. The one way to run an engine.

engine = Engine.start(spec, "L003", night_dir, limits)   # returns at once; two may be started side by side
record = engine.wait_ready()                             # raises EngineFailure, and has then stopped it
engine.check()                                           # before and after every measurement
report = engine.stop()
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from contracts import Card, EngineSpec, Failure, FailureKind, LaunchRecord, Limits
from engine import command, container_runtime, interpreter, keeper, ports
from engine.aiter_modules import copy_prebuilt
from engine.asked import mismatches
from engine.caches import build_folder
from engine.client import http_client
from engine.container_launch import in_container
from engine.failure import classify
from engine.link import KeeperLink, KeeperLost, NotStarted
from engine.orphans import end_orphans
from engine.placement import NOTHING, Placement
from engine.realised import read_endpoints, realise
from engine.running import EngineFailure

POLL_S = 0.1
ANSWER_S = 10.0  # for /health and /v1/models on a loaded machine; they take milliseconds on an idle one
TAIL_BYTES = 512 * 1024  # of the log, for finding the reason of a failure

_promised: set[int] = set()  # ports given to engines that may not listen yet
_promising = threading.Lock()


@dataclass(frozen=True)
class StopReport:
    seconds: float  # until every process and its memory were gone
    forced: bool  # it did not stop when asked


def oom_kills() -> int | None:
    """How many processes the kernel's out-of-memory killer has ended since boot, or None where that is not shown."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("oom_kill ")))
    return None


def _share_model_facts(shared: Path, own: Path) -> None:
    """What vLLM found out about a model class (takes embeddings, is pooling, ...), keyed by the hash of its source, is
    the one cache that a night's engines share: it holds no code, and finding it out costs a process of its own at each
    first start (7 s of 30 on 2 cores, vLLM 0.32.0, 2026-11-29)."""
    shared.mkdir(parents=True, exist_ok=True)
    own.parent.mkdir(parents=True, exist_ok=True)
    if not own.exists():
        with contextlib.suppress(FileExistsError):
            own.symlink_to(shared, target_is_directory=True)


class Engine:
    """Fulfils engine.running.RunningEngine once wait_ready() has returned."""

    def __init__(
        self, spec: EngineSpec, record: LaunchRecord, night_dir: Path, limits: Limits, link: KeeperLink
    ) -> None:
        self.spec = spec
        self._record = record
        self._limits = limits
        self._link = link
        self._log = night_dir / record.log_path
        self._log_start = 0
        self._begun = time.monotonic()
        self._oom_kills = oom_kills()
        self._card_env: dict[str, str] = {}
        self._ready_offset: int | None = None
        self._ready_tree: dict[int, tuple[int, str]] = {}  # pid -> (start ticks, name) of its processes when ready
        self._stopped: StopReport | None = None
        self._asked_to_stop = False
        self._stopping = threading.RLock()  # a signal handler may stop what is being stopped
        self._http = http_client(self.base_url, ANSWER_S)

    @classmethod
    def start(
        cls,
        spec: EngineSpec,
        launch_id: str,
        night_dir: Path,
        limits: Limits,
        port: int | None = None,
        placement: Placement = NOTHING,
        card_env: Mapping[str, str] = {},
        card: Card | None = None,
    ) -> Engine:
        """Starts the engine and returns as soon as its process exists. `placement` is what spec.overlay became; the
        compile caches are kept by spec, so that no code of one arm reaches the other (engine/caches.py). `card_env` is
        how an engine on the host is given its card (cards/visible.py), `card` how one in a container is (None: all).
        Raises EngineFailure.

        Its files are in night_dir/artifacts/launches/launch_id: engine.log, and cwd, an empty folder that it runs in
        so that none of our top-level names is on its path.
        """
        if not re.fullmatch(r"[\w.-]+", launch_id):
            raise ValueError(f"launch_id {launch_id!r} must be letters, digits, '.', '_' or '-'")
        night_dir = night_dir.absolute()
        folder = night_dir / "artifacts" / "launches" / launch_id
        (folder / "cwd").mkdir(parents=True, exist_ok=True)
        log = folder / "engine.log"
        cache = night_dir / "artifacts" / "compile_cache" / spec.id
        shims = interpreter.shims(spec.python, folder / "shim", spec.container)
        copy_prebuilt(spec, build_folder(spec, cache))
        if port is not None and not ports.is_free(port):
            raise EngineFailure(Failure(kind=FailureKind.PORT_TAKEN, reason=ports.held_by(port)))
        with _promising:
            port = port or ports.free_port(frozenset(_promised))
            _promised.add(port)
        nonce = secrets.token_hex(4)
        _share_model_facts(night_dir / "artifacts" / "modelinfos", cache / "vllm" / "modelinfos")
        already = log.stat().st_size if log.exists() else 0  # of a lost launch with the same id
        line = command.command_line(spec, port, f"nightgate-{launch_id}-{nonce}")
        if spec.container is None:
            env, cidfile = command.environment(spec, cache, os.environ, shims, placement, card_env), None
        else:
            boxed = in_container(spec, line, placement, shims, cache, folder, launch_id, nonce, card)
            line, env, cidfile = boxed.line, boxed.env, boxed.cidfile
        try:
            link = KeeperLink(line, env, folder / "cwd", log, limits.engine_stop_s, cidfile)
        except NotStarted as error:
            _promised.discard(port)
            raise interpreter.not_started(spec, str(error)) from error
        record = LaunchRecord(
            launch_id=launch_id, spec_id=spec.id, pid=link.pid, pid_started=link.started, port=port, nonce=nonce,
            log_path=str(log.relative_to(night_dir)),
            container_id=f"{spec.container.runtime}://{link.container}" if spec.container and link.container else None,
        )  # fmt: skip
        engine = cls(spec, record, night_dir, limits, link)
        engine._log_start = already
        engine._card_env = dict(card_env)
        return engine

    @property
    def record(self) -> LaunchRecord:
        return self._record

    @property
    def base_url(self) -> str:
        return f"http://{ports.LOOPBACK}:{self._record.port}"

    @property
    def served_name(self) -> str:
        return f"nightgate-{self._record.launch_id}-{self._record.nonce}"

    def wait_ready(self) -> LaunchRecord:
        """Waits until it answers, owns its socket and serves our nonce; reads back what was realised.

        Raises EngineFailure, having stopped the engine.
        """
        try:
            self._wait_healthy()
            ready_s = time.monotonic() - self._begun
            self._confirm_name()
            self._ready_offset = self.log_offset()
            self._ready_tree = {pid: (ticks, keeper.name(pid)) for pid, ticks in self._link.tree().items()}
            endpoints = read_endpoints(self._http)
            with contextlib.suppress(OSError):  # for whoever wants all of it; a full disk does not end the launch
                (self._log.parent / "endpoints.json").write_text(json.dumps(endpoints, indent=1))
            realised = realise(self.spec, self.log_since(self._log_start), endpoints)
            if self.spec.container is None:
                realised["environment_dropped"] = list(command.dropped(self.spec, os.environ))
            else:
                realised |= container_runtime.image_of(self._record)
            if self._card_env:
                realised["card_environment"] = {**self._card_env}
            self._record = self._record.model_copy(
                update={
                    "ready_s": round(ready_s, 3),
                    "realised": realised,
                    "mismatches": mismatches(self.spec, realised),
                    "rss_bytes": self.rss_bytes(),
                }
            )
        except BaseException:
            self.stop()
            raise
        return self._record

    def check(self) -> None:
        """Alive since the same start, sole owner of its socket, healthy, serving our nonce. Raises EngineFailure."""
        self._raise_if_ended()
        self._raise_if_part_ended()
        if not self._socket_is_ours():
            self._raise_if_ended(wait_s=2.0)
            raise self._fail(FailureKind.NOT_OURS, f"nobody listens on port {self._record.port} any more")
        try:
            health = self._http.get("/health").status_code
        except httpx.TimeoutException:
            raise EngineFailure(self._classify(None, timed_out=True, waited_s=ANSWER_S)) from None
        except httpx.HTTPError as error:
            self._raise_if_ended(wait_s=2.0)
            raise self._fail(FailureKind.CRASH, f"/health cannot be read: {error}") from error
        if health != 200:
            self._raise_if_ended(wait_s=ANSWER_S)  # vLLM answers 503 for a moment before it ends
            raise self._fail(FailureKind.CRASH, f"/health answers {health}")
        self._confirm_name()

    def stop(self) -> StopReport:
        """Ends it, gracefully then by force, and waits until processes and memory are gone. Safe to call twice.

        Raises EngineFailure when a process cannot be ended at all.
        """
        with self._stopping:
            if self._stopped:
                return self._stopped
            self._asked_to_stop = True
            begun = time.monotonic()
            left: tuple[int, ...] = ()
            try:
                forced, left = self._link.end()
            except KeeperLost:
                end_orphans([self._record], grace_s=self._limits.engine_stop_s)
                forced = True
            self._http.close()
            _promised.discard(self._record.port)
            self._stopped = StopReport(seconds=time.monotonic() - begun, forced=forced)
        if left:
            pids = ", ".join(map(str, left))
            raise self._fail(FailureKind.HANG, f"pid {pids} cannot be ended even by SIGKILL: look at the card's driver")
        return self._stopped

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log_offset(self) -> int:
        return self._log.stat().st_size

    def log_since(self, offset: int) -> str:
        with open(self._log, "rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")

    def pids(self) -> tuple[int, ...]:
        """Every process of this engine, its first one included."""
        return tuple(sorted(self._link.tree()))

    def rss_bytes(self) -> int:
        """Resident memory of all its processes together; pages that they share count once for each."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(psutil.Error):
                total += psutil.Process(pid).memory_info().rss
        return total

    # --- how it is known ------------------------------------------------------------------------------------------

    def _wait_healthy(self) -> None:
        deadline = self._begun + self._limits.engine_start_s
        while True:
            self._raise_if_ended()
            if self._socket_is_ours():
                with contextlib.suppress(httpx.HTTPError):
                    if self._http.get("/health").status_code == 200:
                        return
            if time.monotonic() > deadline:
                waited = time.monotonic() - self._begun
                raise EngineFailure(self._classify(None, timed_out=True, waited_s=waited))
            self._raise_if_ended(wait_s=POLL_S)

    def _socket_is_ours(self) -> bool:
        """False when nobody listens. Raises EngineFailure when anybody else does, beside ours or instead of it."""
        found = ports.listeners(self._record.port)
        if not found:
            return False
        ours = self._link.tree()
        if any(pid not in ours for pid in found):
            if not ports.listeners(self._record.port):
                return False  # it closed between the two looks
            raise self._fail(FailureKind.NOT_OURS if self._ready_offset is not None else FailureKind.PORT_TAKEN,
                             ports.held_by(self._record.port, besides=set(ours)))  # fmt: skip
        return True

    def _confirm_name(self) -> None:
        try:
            answer = self._http.get("/v1/models")
            names = [card["id"] for card in answer.json()["data"]]
        except httpx.TimeoutException:
            raise EngineFailure(self._classify(None, timed_out=True, waited_s=ANSWER_S)) from None
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            self._raise_if_ended(wait_s=2.0)
            raise self._fail(FailureKind.NOT_OURS, f"/v1/models on our port lists no models: {error}") from error
        if names != [self.served_name]:
            raise self._fail(FailureKind.NOT_OURS, f"port {self._record.port} serves {', '.join(map(str, names))}, "
                                                   f"not {self.served_name}")  # fmt: skip

    def _raise_if_ended(self, wait_s: float = 0.0) -> None:
        try:
            code = self._link.exit_code(wait_s)
            if code is None and not self._link.alive():  # it ended after the keeper's last look
                code = self._link.exit_code(wait_s=5.0)
        except KeeperLost:
            if not self._asked_to_stop:
                raise self._fail(FailureKind.CRASH, "the engine's keeper was ended from outside") from None
            code = None
        if self._asked_to_stop:
            raise self._fail(FailureKind.CRASH, "the engine was stopped by us")
        if code is not None:
            raise EngineFailure(self._classify(code, timed_out=False))

    def _raise_if_part_ended(self) -> None:
        """/health still answers for seconds after a worker's death (vLLM 0.32: a check 1 s after it passed)."""
        now = self._link.tree()
        for pid, (ticks, name) in self._ready_tree.items():
            if now.get(pid) != ticks:
                self._raise_if_ended(wait_s=ANSWER_S)
                raise self._fail(FailureKind.CRASH, f"the engine lives, but its process {name} (pid {pid}) has ended")

    def _classify(self, exit_code: int | None, timed_out: bool, waited_s: float | None = None) -> Failure:
        start = self._log_start if self._ready_offset is None else self._ready_offset
        before, now = self._oom_kills, oom_kills()
        return classify(
            self.log_since(max(start, self.log_offset() - TAIL_BYTES)), exit_code, timed_out,
            was_ready=self._ready_offset is not None, waited_s=waited_s, port=self._record.port,
            kernel_killed=None if before is None or now is None else now > before,
        )  # fmt: skip

    def _fail(self, kind: FailureKind, reason: str) -> EngineFailure:
        tail = self.log_since(max(self._log_start, self.log_offset() - 8192)).splitlines()[-20:]
        return EngineFailure(Failure(kind=kind, reason=reason, log_tail=tuple(line[:400] for line in tail)))
