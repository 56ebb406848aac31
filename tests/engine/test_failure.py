"""Failures told apart by the engine's last words. The files in logs/ were written by vLLM 0.32.0 (CPU build) on a
2-core x86 machine on 2026-11-29, shortened at "..." and with the folders of that machine removed."""

from pathlib import Path

import pytest

from contracts import FailureKind
from engine.failure import classify

LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("name", "exit_code", "kind", "words"),
    [
        ("block_size_16", 1, FailureKind.REFUSED_CONFIGURATION, "No common block size for 16"),
        ("bad_value", 2, FailureKind.REFUSED_CONFIGURATION, "argument --max-num-seqs: invalid int value: 'zero'"),
        ("unknown_flag", 2, FailureKind.REFUSED_CONFIGURATION, "unrecognized arguments: --frobnicate"),
        ("too_long", 1, FailureKind.REFUSED_CONFIGURATION, "max_model_len (999999) is greater than the derived"),
        ("cache_too_big", 1, FailureKind.OUT_OF_MEMORY, "is less than"),
        ("killed_worker", 0, FailureKind.CRASH, "Worker proc VllmWorker-0 died unexpectedly (exit code: -9)"),
    ],
)
def test_real_logs(name: str, exit_code: int, kind: FailureKind, words: str) -> None:
    ready = name == "killed_worker"
    log = (LOGS / f"{name}.txt").read_text()
    failure = classify(log, exit_code, timed_out=False, was_ready=ready, kernel_killed=False)
    assert failure.kind is kind
    assert words in failure.reason and "\n" not in failure.reason
    assert 0 < len(failure.log_tail) <= 40


TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has 31.98 GiB",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 4398046511104 bytes. Error code 12 (Cannot allocate memory)",
        "MemoryError",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        "ValueError: To serve at least one request with the model's max seq len (8192), (0.35 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (0.10 GiB).",
        "RuntimeError: HIP error: hipErrorOutOfMemory",
    ],
)
def test_running_out_of_memory_has_many_words(text: str) -> None:
    log = f"(EngineCore pid=7) ERROR 11-29 01:02:03 [core.py:9] {TRACEBACK}{text}\n"
    log += "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    failure = classify(log, 1, timed_out=False)
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert text.split(":")[0].split(".")[-1] in failure.reason


def test_sigkill_is_out_of_memory_only_when_the_kernel_counted_one() -> None:
    assert classify("INFO all is well\n", -9, timed_out=False, kernel_killed=True).kind is FailureKind.OUT_OF_MEMORY
    assert classify("INFO all is well\n", -9, timed_out=False, kernel_killed=None).kind is FailureKind.OUT_OF_MEMORY
    from_outside = classify("INFO all is well\n", -9, timed_out=False, kernel_killed=False)
    assert from_outside.kind is FailureKind.CRASH and "no out-of-memory kill" in from_outside.reason


def test_the_kernel_kills_a_worker_and_the_server_only_says_that_its_engine_is_dead() -> None:
    log = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
    assert classify(log, 1, timed_out=False, was_ready=True, kernel_killed=True).kind is FailureKind.OUT_OF_MEMORY


def test_the_first_cause_is_told_not_what_follows_from_it() -> None:
    log = (
        f"{TRACEBACK}RuntimeError: Triton kernel launch failed\n"
        f"{TRACEBACK}vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
    )
    failure = classify(log, 1, timed_out=False, was_ready=True)
    assert failure.kind is FailureKind.CRASH
    assert failure.reason == "RuntimeError: Triton kernel launch failed (exit code 1)"


def test_the_same_error_refuses_before_ready_and_crashes_after() -> None:
    log = f"{TRACEBACK}ValueError: no such thing\n"
    assert classify(log, 1, timed_out=False).kind is FailureKind.REFUSED_CONFIGURATION
    assert classify(log, 1, timed_out=False, was_ready=True).kind is FailureKind.CRASH


def test_native_death() -> None:
    fault = "Memory access fault by GPU node-1 on address 0x7f0000000000. Reason: Page not present.\n"
    failure = classify("INFO fine\n" + fault, -6, timed_out=False)
    assert failure.kind is FailureKind.CRASH
    assert "Memory access fault" in failure.reason and "SIGABRT" in failure.reason
    assert "SIGSEGV" in classify("INFO fine\n", -11, timed_out=False).reason


def test_hang_says_how_long_and_its_last_words() -> None:
    failure = classify("INFO Loading weights\n", None, timed_out=True, waited_s=300)
    assert failure.kind is FailureKind.HANG
    assert "300 s" in failure.reason and "Loading weights" in failure.reason


def test_port_taken_and_interpreter_without_vllm() -> None:
    bind = f"{TRACEBACK}OSError: [Errno 98] Address already in use\n"
    assert classify(bind, 1, timed_out=False, port=8000).kind is FailureKind.PORT_TAKEN
    module = "/usr/bin/python: Error while finding module specification for 'vllm.entrypoints.cli.main' "
    module += "(ModuleNotFoundError: No module named 'vllm')\n"
    assert classify(module, 1, timed_out=False).kind is FailureKind.NO_VLLM


@pytest.mark.parametrize("log", ["", "\n\n", "\x00\xff garbage \x1b[0m", "Traceback (most recent call last):"])
def test_there_is_always_a_reason(log: str) -> None:
    failure = classify(log, 1, timed_out=False)
    assert failure.kind is FailureKind.CRASH and "exit code 1" in failure.reason
