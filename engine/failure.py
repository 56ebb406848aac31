"""Why an engine is not serving, told from its last words. Pure: text and exit code in, Failure out."""

from __future__ import annotations

import re
import signal

from contracts import Failure, FailureKind

TAIL_LINES = 40  # kept in the record
REASON_CHARACTERS = 400

# vLLM puts "(Worker pid=1) ERROR 11-29 13:49:29 [core.py:1063] " before each line of its own; a line may hold several.
PREFIX = re.compile(
    r"^(?:\([\w-]+ pid=\d+\)\s?|(?:ERROR|WARNING|INFO|CRITICAL|DEBUG)(?: \d\d-\d\d)? \d\d:\d\d:\d\d\s?"
    r"|\[[\w./-]+(?::\d+)?\]\s?)+"
)
EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w]*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure))(?::\s*(.*))?$")
# Raised because another process already failed: never the cause.
DERIVED = re.compile(
    r"EngineDeadError|Engine core initialization failed|See root cause above|See stack trace \(above\)"
    r"|Executor failed\.|WorkerProc initialization failed|Worker failed with error|CancelledError|KeyboardInterrupt"
)
OUT_OF_MEMORY = re.compile(
    r"MemoryError|OutOfMemoryError|out of memory|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc"
    r"|hipErrorOutOfMemory|HSA_STATUS_ERROR_OUT_OF_RESOURCES|No available memory for the cache blocks"
    r"|less than desired (?:GPU|CPU) memory|KV cache is needed, which is larger than the available"
    r"|[Nn]ot enough memory|[Ii]nsufficient memory|exceeds the (?:available|total) memory|larger than the available KV"
    r"|Available memory on node|\bOOM\b"
)
PORT = re.compile(r"[Aa]ddress already in use|EADDRINUSE|\[Errno 98\]")
NO_MODULE = re.compile(r"No module named '?vllm\b|PackageNotFoundError.*vllm")
USAGE = re.compile(
    r"(?:^|\s)error: (?:argument |unrecognized arguments|the following arguments|ambiguous option|.*invalid)"
)
REFUSING = {"ValueError", "ValidationError", "NotImplementedError", "AssertionError", "ArgumentError", "TypeError",
            "KeyError", "OSError", "FileNotFoundError", "ImportError"}  # fmt: skip
# Native aborts that leave no Python traceback.
NATIVE = re.compile(
    r"died unexpectedly|Segmentation fault|terminate called|Fatal Python error|core dumped|SIGABRT"
    r"|Memory access fault by GPU"
)


# What a dying interpreter still says, and says nothing by it.
NOISE = re.compile(
    r"^nanobind|^\s*- (?:leaked|\.\.\. skipped)|resource_tracker|warnings\.warn\(|refleaks\.html|^\s*[~^]+$"
)


WORKER_KILLED = re.compile(r"died unexpectedly \(exit code: -9\)")


def bare(line: str) -> str:
    return PREFIX.sub("", line.rstrip()).rstrip()


def exceptions(lines: list[str]) -> list[tuple[str, str]]:
    """(class, message) of each exception line that is a cause, in order; pydantic's second line is its message."""
    found: list[tuple[str, str]] = []
    for number, line in enumerate(lines):
        match = EXCEPTION.match(line)
        if match is None or DERIVED.search(line):
            continue
        name, message = match.group(1), match.group(2) or ""
        if "validation error" in message:
            below = [text.strip() for text in lines[number + 1 : number + 4]]
            message = next((text for text in below if text.startswith("Value error")), " ".join(below[:2]))
            message = re.sub(r"\s*\[type=.*", "", message)
        found.append((name, message))
    return found


def shown(line: str) -> str:
    """One line, short enough for a report."""
    line = " ".join(line.split())
    return line if len(line) <= REASON_CHARACTERS else line[: REASON_CHARACTERS - 3] + "..."


def died(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"ended by signal {-exit_code}"


def classify(
    log_tail: str,
    exit_code: int | None,
    timed_out: bool,
    *,
    was_ready: bool = False,
    waited_s: float | None = None,
    port: int | None = None,
    kernel_killed: bool | None = None,
) -> Failure:
    """What kind of failure it was, with the one most telling line as its reason.

    `log_tail`: the log since the start, or since ready for a failure in mid-run. `exit_code`: None while it lives.
    `kernel_killed`: did the kernel's out-of-memory killer count a victim meanwhile? None when that cannot be read:
    then a SIGKILL that we did not send is taken for its work.
    """
    lines = [text for line in log_tail.splitlines() if (text := bare(line)) and not NOISE.search(text)]
    tail = tuple(shown(line) for line in lines[-TAIL_LINES:])
    causes = exceptions(lines)

    def failure(kind: FailureKind, reason: str) -> Failure:
        return Failure(kind=kind, reason=shown(reason), log_tail=tail)

    def line_with(pattern: re.Pattern[str]) -> str | None:
        return next((line for line in lines if pattern.search(line) and not DERIVED.search(line)), None)

    if line := line_with(NO_MODULE):
        return failure(FailureKind.NO_VLLM, f"the engine's interpreter cannot import vLLM: {line}")
    if line := line_with(PORT):
        return failure(FailureKind.PORT_TAKEN, f"port {port} was taken before the engine could have it: {line}")
    # Memory before all else: what follows a failed allocation may look like anything.
    memory_causes = [f"{name}: {message}" for name, message in causes if OUT_OF_MEMORY.search(f"{name}: {message}")]
    if memory_causes:
        return failure(FailureKind.OUT_OF_MEMORY, memory_causes[0])
    if kernel_killed and exit_code is not None:
        return failure(FailureKind.OUT_OF_MEMORY, f"the kernel's out-of-memory killer ended it ({died(exit_code)})")
    worker_killed = line_with(WORKER_KILLED)
    if exit_code == -signal.SIGKILL or worker_killed:
        who = worker_killed or "ended by SIGKILL"
        if kernel_killed is None:
            return failure(FailureKind.OUT_OF_MEMORY, f"{who}: most likely by the kernel's out-of-memory killer")
        return failure(FailureKind.CRASH, f"{who}: SIGKILL from outside, the kernel counted no out-of-memory kill")
    if not causes and (line := line_with(OUT_OF_MEMORY)):
        return failure(FailureKind.OUT_OF_MEMORY, line)
    if timed_out and exit_code is None:
        last = f"; its last words: {lines[-1]}" if lines else "; it said nothing"
        took = f" after {waited_s:.0f} s" if waited_s is not None else ""
        return failure(FailureKind.HANG, f"alive but {'not answering' if was_ready else 'not ready'}{took}{last}")
    if (line := line_with(USAGE)) or exit_code == 2:
        return failure(FailureKind.REFUSED_CONFIGURATION, line or (lines[-1] if lines else "exit code 2, no words"))
    code = died(exit_code) if exit_code is not None else "still alive"
    if causes:
        name, message = causes[0]
        reason = f"{name}: {message}" if message else name
        if not was_ready and name in REFUSING:
            return failure(FailureKind.REFUSED_CONFIGURATION, reason)
        return failure(FailureKind.CRASH, f"{reason} ({code})")
    if line := line_with(NATIVE):
        return failure(FailureKind.CRASH, f"{line} ({code})")
    last = f"; its last words: {lines[-1]}" if lines else "; it said nothing"
    return failure(FailureKind.CRASH, f"{code}{last}")
