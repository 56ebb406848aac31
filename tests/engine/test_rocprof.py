"""An engine under rocprofv3: the command line, where the program is looked for, and the process that is ended. What is
run is the stand-in rocprofv3; the real one was never run by us."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from agents.research.traces.kernels import read_kernels
from contracts import EngineSpec
from engine.command import command_line, environment
from engine.profile import traces_in
from engine.rocprof import NO_HANDLERS, rocprofv3_for, under_rocprofv3
from engine.server import Engine
from tests.real import LIMITS
from tests.standin import ROCM_BIN, standin_spec


def profiled_spec(folder: Path, **knobs: str) -> EngineSpec:
    return under_rocprofv3(standin_spec(knobs), f"{ROCM_BIN}/rocprofv3", folder, 30, {}, {})


def test_rocprofv3_goes_before_the_engines_own_command(tmp_path: Path) -> None:
    plain = standin_spec()
    spec = under_rocprofv3(plain, "/opt/rocm/bin/rocprofv3", tmp_path, 30, {}, {})
    line = command_line(spec, 1, "n")
    assert line[:6] == ["/opt/rocm/bin/rocprofv3", "--kernel-trace", "--output-format", "csv", "-d", str(tmp_path)]
    assert line[line.index("--") + 1 :] == command_line(plain, 1, "n")
    assert spec.id != plain.id and spec.flags == plain.flags and NO_HANDLERS.items() <= spec.env.items()


def test_vllm_is_asked_for_patience_where_it_has_any(tmp_path: Path) -> None:
    known = {"shutdown-timeout": "", "max-num-seqs": ""}, {"VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": ""}
    spec = under_rocprofv3(standin_spec(), "rocprofv3", tmp_path, 30.0, *known)
    assert spec.flags["shutdown-timeout"] == 30 and spec.env["VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"] == "30"
    own = under_rocprofv3(standin_spec(shutdown_timeout=90), "rocprofv3", tmp_path, 30.0, *known)
    assert own.flags["shutdown-timeout"] == 90


def test_it_is_looked_for_where_the_engine_would_find_it(tmp_path: Path) -> None:
    def there(folder: Path) -> str:
        folder.mkdir(parents=True)
        (folder / "rocprofv3").symlink_to(Path(ROCM_BIN) / "rocprofv3")
        return str(folder / "rocprofv3")

    assert rocprofv3_for({"PATH": ""}, tmp_path / "opt") is None
    older = there(tmp_path / "opt/rocm-6.4.3/bin")
    assert rocprofv3_for({"PATH": "/nowhere"}, tmp_path / "opt") == older
    newer = there(tmp_path / "opt/rocm-6.10.0/bin")
    assert rocprofv3_for({"PATH": "/nowhere"}, tmp_path / "opt") == newer
    usual = there(tmp_path / "opt/rocm/bin")
    assert rocprofv3_for({}, tmp_path / "opt") == usual
    named = there(tmp_path / "own/bin")
    assert rocprofv3_for({"ROCM_PATH": str(tmp_path / "own")}, tmp_path / "opt") == named
    venv = there(tmp_path / "venv/bin")  # a ROCm from wheels lies beside the engine's interpreter
    spec = standin_spec().model_copy(update={"python": str(tmp_path / "venv/bin/python")})
    assert rocprofv3_for(environment(spec, tmp_path, {"PATH": "/nowhere"}), tmp_path / "opt") == venv


@pytest.mark.parametrize("kind", ["", "parent"])
def test_the_engine_is_known_and_ended_and_then_its_file_is_there(tmp_path: Path, kind: str) -> None:
    """The real program becomes the engine; one that stays as its parent is checked and ended all the same."""
    spec = profiled_spec(tmp_path / "traces", STANDIN_ROCPROF=kind)
    engine = Engine.start(spec, "L001", tmp_path, LIMITS)
    record = engine.wait_ready()
    engine.check()
    first = psutil.Process(record.pid)
    assert first.create_time() == pytest.approx(record.pid_started)
    tree = {record.pid, *(child.pid for child in first.children(recursive=True))}
    assert tree == set(engine.pids()) and len(tree) == 2
    listens = {p.pid for p in map(psutil.Process, tree) if p.net_connections("tcp")}
    assert (record.pid in listens) == (kind == "")
    assert not traces_in(tmp_path / "traces")
    assert not engine.stop().forced
    assert not any(psutil.pid_exists(pid) for pid in tree)
    written = {path.name for path in traces_in(tmp_path / "traces")}
    assert written == {"1_kernel_trace.csv", *(f"{pid}_kernel_trace.csv" for pid in listens)}
    (pid,) = listens
    found = read_kernels(tmp_path / "traces" / "host" / f"{pid}_kernel_trace.csv")
    assert found.profiler == "rocprofv3" and not found.warnings
    assert {k.name: k.launches for k in found.seen}["standin_warm_up_only"] == 40


def test_one_that_does_not_stop_is_killed_and_leaves_no_file(tmp_path: Path) -> None:
    spec = profiled_spec(tmp_path / "traces", STANDIN_ROCPROF="parent", STANDIN_IGNORE_TERM="1")
    engine = Engine.start(spec, "L001", tmp_path, LIMITS.model_copy(update={"engine_stop_s": 1}))
    engine.wait_ready()
    assert engine.stop().forced and not traces_in(tmp_path / "traces")
