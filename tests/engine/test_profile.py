"""A bounded profile: of the real engine, with vLLM's torch profiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agents.research.traces.kernels import Kernels, read_kernels
from agents.tuning.kernel_probe import judge_kernels
from contracts import Probe
from engine.command import command_line
from engine.profile import FLAG, profiled, start_profile, stop_profile, traces_in
from engine.running import EngineFailure
from engine.server import Engine
from tests.real import LIMITS, real_spec
from tests.standin import standin_spec


def test_the_flag_is_the_only_difference(tmp_path: Path) -> None:
    plain = standin_spec()
    asked = profiled(plain, tmp_path, steps=8)
    assert asked.flags[FLAG]["max_iterations"] == 8 and asked.id != plain.id  # type: ignore[index, call-overload]
    assert asked.model_copy(update={"flags": plain.flags}) == plain
    line = command_line(asked, 1, "n")
    assert f'"torch_profiler_dir": "{tmp_path}"' in line[line.index("--profiler-config") + 1]


def test_only_finished_kinds_of_files_are_traces(tmp_path: Path) -> None:
    for name in (
        "rank0.1.pt.trace.json.gz",
        "rank0.profiler_out.txt",
        "host/7_kernel_trace.csv",
        "a.async_llm.1.pt.trace.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [path.name for path in traces_in(tmp_path)] == ["7_kernel_trace.csv", "rank0.1.pt.trace.json.gz"]
    assert traces_in(tmp_path / "missing") == ()


def test_an_engine_that_was_started_without_the_flag_says_so(tmp_path: Path) -> None:
    with Engine.start(standin_spec(), "L001", tmp_path, LIMITS) as engine:
        engine.wait_ready()
        with pytest.raises(EngineFailure, match="unknown to this engine: it was started without --profiler-config"):
            start_profile(engine)


def recorded(engine: Engine, folder: Path, **sampling: float) -> Kernels:
    """Four requests under the profiler, and what it saw of them."""
    already = frozenset(traces_in(folder))
    start_profile(engine)
    for number in range(4):
        body = {"model": engine.served_name, "prompt": f"There are {number}+25=", "max_tokens": 4, **sampling}
        httpx.post(f"{engine.base_url}/v1/completions", json=body, trust_env=False, timeout=120).raise_for_status()
    (trace,) = stop_profile(engine, folder, already)
    return read_kernels(trace, "cpu_op")


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kernels, Kernels]]:
    night = tmp_path_factory.mktemp("profiled")
    folder = night / "artifacts" / "profiles"
    with Engine.start(profiled(real_spec(), folder), "L001", night, LIMITS) as engine:
        engine.wait_ready()
        yield recorded(engine, folder, temperature=0), recorded(engine, folder, temperature=1.0, top_p=0.9)


@pytest.mark.engine_python
@pytest.mark.timeout(600)
def test_a_real_engines_operators(profiles: tuple[Kernels, Kernels]) -> None:
    """A CPU engine has no kernels; its operators are traced. Greedy and sampled requests stand for two arms."""
    greedy, sampled = profiles
    assert not greedy.warnings and not sampled.warnings
    launches = {kernel.name: kernel.launches for kernel in greedy.seen}
    assert sum(launches.values()) > 100 and any(name.startswith("_C") for name in launches), sorted(launches)
    probe = Probe(kind="kernel", category="cpu_op", pattern="sort|exponential|multinomial")
    proof = judge_kernels(probe, greedy, sampled)
    assert proof.outcome == "proven", proof.reason
    assert judge_kernels(probe, greedy, greedy).outcome == "absent"
    everywhere = Probe(kind="kernel", category="cpu_op", pattern="^_C")
    assert judge_kernels(everywhere, greedy, sampled).outcome == "absent"  # both arms do that
    unnamed = Probe(kind="kernel", category="kernel", pattern=".")
    assert judge_kernels(unnamed, Kernels(source="a", seen=()), greedy).outcome == "unknown"
