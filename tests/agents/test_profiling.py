"""Both arms profiled, for path evidence: torch's profiler first, and rocprofv3 where that gives no kernels on an AMD
card. Engines, rocprofv3 and the card are stand-ins: nothing of this was ever run on an AMD card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.context import Night
from agents.profiling import ProfileImpossible, profile_arms, profile_cost_s
from agents.research.traces.kernels import Kernels, Window, read_kernels
from agents.research.traces.read import TraceError
from agents.state import Trial
from agents.tuning.kernel_probe import judge_kernels
from agents.tuning.overlay import Overlay
from agents.tuning.probes import ArmSeen
from contracts import Card, Change, Container, EngineSettings, EngineSpec, Hypothesis, Lever, NightConfig, Probe
from contracts import Workload as Load
from ledger.log import Ledger
from tests.agents.examples import KNOBS
from tests.agents.test_traces_real import ROCPROF
from tests.standin import PYTHON, ROCM_BIN, standin_spec

pytestmark = [pytest.mark.whole_night]  # no night, but up to four launches each: too slow for make quick

Z100 = Card(
    arch="gfx906", kind="amd", name="Hygon gfx906", memory_bytes=32 << 30, compute_units=60, wavefront=64, source="test"
)
CPU = Z100.model_copy(update={"kind": "cpu", "arch": "x86_64"})
NO_KERNELS = {"STANDIN_NO_KERNELS": "1"}
REFUSES = {"STANDIN_REFUSE_FLAG": "profiler-config"}
THERE = {"PATH": f"{ROCM_BIN}:/usr/bin:/bin"}
BOTH = Probe(kind="kernel", pattern="^standin_compiled_step$")


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    load = Load(name="w", concurrency=4, requests=8, warmup_requests=2, input_tokens=(16, 32), output_tokens=(8, 8))
    config = NightConfig(name="n", minutes=60, engine=EngineSettings(python=PYTHON, model="stand-in"), workload=load)
    (tmp_path / "night").mkdir()
    with Ledger.create(tmp_path / "night") as ledger:
        night = Night(config, Z100, tmp_path / "night", ledger, Overlay.create(tmp_path / "overlay", standin_spec()))
        yield night
        night.arms.down()


def profiles(night: Night, env: dict[str, str], spare_s: float = 3600.0) -> tuple[Kernels, Kernels]:
    """The incumbent runs eager, the candidate does not."""
    return arms(night, standin_spec(env, enforce_eager=True), standin_spec(env), spare_s)


def arms(night: Night, a: EngineSpec, b: EngineSpec, spare_s: float = 3600.0) -> tuple[Kernels, Kernels]:
    change = Change(lever=Lever.ENGINE_FLAG, key="enforce-eager", before=True, after=False)
    why = Hypothesis(change=change, proposer="test", why="t", predicted_gain=1.05, probability=0.5, cost_s=1)
    trial = Trial(experiment_id="E001", hypothesis=why, candidate=b, try_number=1, alpha=0.05, started_s=0.0)
    seen = profile_arms(night, a, b, (ArmSeen(), ArmSeen()), "kernel", trial, Path("profiles"), spare_s, KNOBS)
    assert seen[0].kernels and seen[1].kernels
    return seen[0].kernels, seen[1].kernels


def launched(night: Night) -> list[str]:
    """The arms in the order of their launches."""
    return [str(event.data["arm"]) for event in night.ledger.events if event.kind == "launch_started"]


def test_where_torchs_profiler_sees_kernels_it_is_the_only_one(night: Night) -> None:
    a, b = profiles(night, THERE)
    assert (a.profiler, b.profiler, launched(night)) == ("torch", "torch", ["B", "A"])
    assert judge_kernels(BOTH, a, b).b["profiler"] == "torch"


@pytest.mark.parametrize("why", [NO_KERNELS, REFUSES])
@pytest.mark.parametrize("kind", ["", "parent"])
def test_both_arms_under_rocprofv3(night: Night, why: dict[str, str], kind: str) -> None:
    """Four requests of eight tokens are 32 launches in each arm, and some more of requests that keep up the load. 40 of
    each kernel came before them, and the engine's own process is found among those that left a file."""
    a, b = profiles(night, {**why, **THERE, "STANDIN_ROCPROF": kind})
    assert launched(night) == ["B", "B", "A"] and not night.arms.pids()
    assert (a.profiler, b.profiler) == ("rocprofv3", "rocprofv3")
    assert [k.name for k in a.seen] == ["standin_step"] and a.launches >= 32
    assert {k.name for k in b.seen} == {"standin_step", "standin_compiled_step"} and b.launches >= 64
    assert a.warnings == (f"80 of {80 + a.launches} launches were before or after the burst and do not count",)
    proof = judge_kernels(BOTH, a, b)
    assert proof.outcome == "proven" and proof.a["profiler"] == proof.b["profiler"] == "rocprofv3"
    same = Probe(kind="kernel", pattern="^standin_step$", differs=("registers",))
    assert judge_kernels(same, a, b).reason == "the same kernels in both arms, equal in registers (32)"
    warm_up = judge_kernels(Probe(kind="kernel", pattern="warm_up"), a, b)
    assert warm_up.outcome == "absent"  # a launch of the warm-up is no use


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("nothing", r"left no record of arm B, which had 30 s to end \(limits.engine_stop_s\)"),
        ("clock", "rocprofv3's record of arm B cannot be used: .*cannot be told from those of the warm-up"),
    ],
)
def test_what_rocprofv3_does_not_tell_is_not_guessed(night: Night, kind: str, why: str) -> None:
    with pytest.raises(ProfileImpossible, match=why):
        profiles(night, {**NO_KERNELS, **THERE, "STANDIN_ROCPROF": kind})


def test_a_record_that_was_cut_off_proves_nothing(night: Night) -> None:
    a, b = profiles(night, {**NO_KERNELS, **THERE, "STANDIN_ROCPROF": "cut"})
    assert "not whole: the file is cut off" in judge_kernels(BOTH, a, b).reason
    assert judge_kernels(BOTH, a, b).outcome == "unknown"


def test_without_rocprofv3_or_time_for_it_the_reason_says_both(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    none = "torch's profiler saw no kernel in arm B; rocprofv3 is neither on the engine's PATH nor in /opt/rocm"
    with pytest.raises(ProfileImpossible, match=none), monkeypatch.context() as elsewhere:
        elsewhere.setattr("agents.profiling.rocprofv3_for", lambda environment: None)  # this machine may have ROCm
        profiles(night, NO_KERNELS)
    first = profile_cost_s(night, standin_spec(), standin_spec())
    with pytest.raises(ProfileImpossible, match="both arms under rocprofv3 need .* s, and .* s are left"):
        profiles(night, {**NO_KERNELS, **THERE}, spare_s=first + 0.01)
    before = launched(night)
    with pytest.raises(ProfileImpossible, match="its evidence needs a profile of both arms"):
        profiles(night, {**NO_KERNELS, **THERE}, spare_s=5.0)
    assert launched(night) == before


def test_another_makers_card_stays_with_torchs_profiler(night: Night) -> None:
    night.card = CPU
    a, b = profiles(night, {**NO_KERNELS, **THERE})
    assert launched(night) == ["B", "A"]
    assert "no event of the category kernel" in judge_kernels(BOTH, a, b).reason


def test_an_engine_in_a_container_has_no_rocprofv3(night: Night) -> None:
    """Its runtime is not here, so that torch's profile fails as well."""
    boxed = standin_spec(THERE).model_copy(update={"container": Container(image="none", runtime="podman", devices=())})
    with pytest.raises(ProfileImpossible, match="; rocprofv3 is not used for engines in a container"):
        arms(night, boxed, boxed)


def test_two_profilers_are_not_compared(tmp_path: Path) -> None:
    b = read_kernels(csv(tmp_path, 10))
    a = b.model_copy(update={"profiler": "torch"})
    proof = judge_kernels(Probe(kind="kernel", pattern="k", differs=("grid",)), a, b)
    assert (proof.outcome, proof.reason) == ("unknown", "the arms have different profilers: torch and rocprofv3")


def csv(folder: Path, *starts: int) -> Path:
    """Kernels of 5 ns, in the columns that are read."""
    path = folder / "7_kernel_trace.csv"
    rows = [f'"k<int, {start}>(int)",{start},{start + 5},0,32' for start in starts]
    path.write_text("Kernel_Name,Start_Timestamp,End_Timestamp,LDS_Block_Size,VGPR_Count\n" + "\n".join(rows) + "\n")
    return path


def test_the_record_is_cut_to_the_burst(tmp_path: Path) -> None:
    path = csv(tmp_path, 10, 20, 30, 40)
    assert read_kernels(path).launches == 4 and not read_kernels(path).warnings
    burst = read_kernels(path, window=Window(5, 20, 30, 45))
    assert [k.name for k in burst.seen] == ["k<int, 20>(int)", "k<int, 30>(int)"]
    assert burst.warnings == ("2 of 4 launches were before or after the burst and do not count",)
    for alive_from, alive_to in ((11, 45), (5, 44)):
        with pytest.raises(TraceError, match="cannot be told from those of the warm-up"):
            read_kernels(path, window=Window(alive_from, 20, 30, alive_to))


def test_a_line_that_ends_in_the_middle_is_told(tmp_path: Path) -> None:
    path = csv(tmp_path, 10, 20)
    path.write_text(path.read_text()[:-1])  # the number before it may have had more digits
    assert read_kernels(path).warnings == ("the file is cut off; the 2 rows before that count",)


@pytest.mark.skipif(not ROCPROF.is_file(), reason="the real samples are not beside this checkout (shared/data)")
def test_rocprofv3s_own_sample_with_a_window() -> None:
    """Nine launches; two of them began between these moments."""
    window = Window(1550151853029637, 1550151853060000, 1550151853090000, 1550151853174037)
    cut = read_kernels(ROCPROF, window=window)
    assert (cut.launches, cut.profiler) == (2, "rocprofv3")
