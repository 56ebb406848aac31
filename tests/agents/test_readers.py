"""One reader, one question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research import readers as readers_package
from agents.research.knobs import Knob
from agents.research.rank import research
from agents.research.readers import READERS, batch_limits, cpu_threads, defaults, execution_mode
from contracts import Lever, Limit, Objective
from tests.agents.examples import GFX950, KNOBS, dossier, spec, workload

BUSY = {"running_mean": 3.9, "running_peak": 4, "waiting_mean": 12.1, "waiting_peak": 12, "kv_cache_usage_peak": 0.2}


def test_the_readers_are_found_by_their_files() -> None:
    folder = Path(readers_package.__file__).parent
    assert len(READERS) == len([p for p in folder.glob("*.py") if p.name != "__init__.py"])
    assert {"defaults", "execution_mode", "batch_limits", "cpu_threads", "prior"} <= set(READERS)


# --- batch_limits ---


def limits(profile: dict[str, Any] | None = None, seqs: Any = 4, **work: Any) -> list[Any]:
    engine = spec(flags={} if seqs is None else {"max-num-seqs": seqs})
    return batch_limits.read(dossier(spec=engine, profile=profile or {}, workload=workload(**work)))


def test_the_limit_goes_up_to_what_is_there() -> None:
    found = limits(BUSY)
    assert [h.change.after for h in found] == [16, 8]
    best = found[0]
    assert best.bound == pytest.approx(16 / 3.9)
    assert 1 < best.predicted_gain < best.bound
    assert best.probability == 0.8
    assert any("waiting_peak 12" in e.detail for e in best.evidence)


def test_without_counters_it_says_less_surely() -> None:
    best = limits()[0]
    assert best.bound == 4
    assert best.probability < 0.8


@pytest.mark.parametrize(
    ("profile", "seqs", "work"),
    [
        ({**BUSY, "waiting_peak": 0}, 4, {}),  # nobody waited
        (BUSY, 16, {}),  # the limit is not below the demand
        (BUSY, 64, {}),
        (BUSY, None, {}),  # no limit set, none read back
        ({}, 4, {"concurrency": None, "rate_per_s": 2.0}),  # an open loop says nothing about how many are there
        (BUSY, 4, {"objective": Objective(metric="tpot_ms_p50")}),
        (BUSY, True, {}),
        (BUSY, 0, {}),
    ],
)
def test_no_proposal_where_there_is_no_reason(profile: dict[str, Any], seqs: Any, work: dict[str, Any]) -> None:
    assert limits(profile, seqs, **work) == []


def test_an_open_loop_is_judged_by_what_was_seen() -> None:
    found = limits(BUSY, concurrency=None, rate_per_s=3.0)
    assert [h.change.after for h in found] == [16, 8, 32]  # twice as many, for bunches


@pytest.mark.parametrize(
    ("held", "there", "sizes"),
    [
        (2, 3, [4]),
        (2, 5, [8, 4]),
        (2, 9, [16, 4]),
        (4, 20, [24, 8]),
        (8, 24, [24]),  # the middle, 13.9, is 8 again
        (16, 256, [256, 64]),
        (128, 256, [256, 176]),
    ],
)
def test_the_whole_step_and_half_of_it_as_a_ratio(held: int, there: int, sizes: list[int]) -> None:
    assert [h.change.after for h in limits({}, held, concurrency=there)] == sizes


def test_a_full_cache_makes_it_doubtful() -> None:
    for crowd in ({"preemptions": 3}, {"kv_cache_usage_peak": 0.97}):
        best = limits({**BUSY, **crowd})[0]
        assert (best.probability, best.risk) == (0.3, "medium")
        assert "preempted" in best.why


def test_time_to_first_token_has_no_bound() -> None:
    assert limits(BUSY, objective=Objective(metric="ttft_ms_p95"))[0].bound is None


def test_a_latency_limit_is_a_risk() -> None:
    objective = Objective(limits=(Limit(metric="tpot_ms_p95", at_most=60),))
    assert limits(BUSY, objective=objective)[0].risk == "medium"


def test_the_limit_may_come_from_the_engine() -> None:
    d = dossier(realised={"max_num_seqs": 4}, profile=BUSY)
    assert batch_limits.read(d)[0].change.before is None


# --- execution_mode ---


def test_eager_is_seen_and_said_why() -> None:
    found = execution_mode.read(dossier(spec=spec(flags={"enforce-eager": True}), realised={"enforce_eager": True}))
    assert [(h.change.key, h.change.before, h.change.after) for h in found] == [("enforce-eager", True, None)]
    assert {e.source for e in found[0].evidence} == {"tonight's engine configuration", "realised configuration"}
    assert found[0].bound is None  # no profile of kernels, so no bound


def test_a_card_that_waits_for_its_host_has_more_to_win_from_graphs() -> None:
    idle = {"spec": spec(flags={"enforce-eager": True}), "profile": {"card_busy_percent_mean": 20.0}}
    (h,) = execution_mode.read(dossier(**idle, card=GFX950))
    assert h.predicted_gain == pytest.approx(1 / (0.2 + 0.8 / 5))
    assert h.evidence[-1].detail.startswith("the card was busy 20% of the measured time (the driver's counter)")
    (h,) = execution_mode.read(dossier(**idle))  # a CPU has no such counter
    assert h.predicted_gain == execution_mode.GAIN


def test_compilation_switched_off_inside_the_configuration() -> None:
    found = execution_mode.read(dossier(spec=spec(compilation={"mode": 0, "cudagraph_mode": "NONE"})))
    assert [h.change.key for h in found] == ["mode"]  # a CPU has no graphs


@pytest.mark.parametrize("flags", [{}, {"enforce-eager": False}, {"enforce-eager": 1}])
def test_nothing_to_say_about_a_compiled_engine(flags: dict[str, Any]) -> None:
    assert execution_mode.read(dossier(spec=spec(flags=flags))) == []


# --- defaults ---


def test_going_back_is_proposed_for_what_was_set_by_hand() -> None:
    engine = spec(
        flags={"max_num_seqs": 4, "enforce-eager": False, "dtype": "float32", "max-model-len": 2048, "unknown": 1},
        env={"VLLM_ROCM_USE_AITER": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "MINE": "1"},
        compilation={"cudagraph_capture_sizes": [1, 2], "pass_config": {"fuse_norm_quant": False}},
    )
    found = {(h.change.lever, h.change.key) for h in defaults.read(dossier(spec=engine))}
    assert found == {
        (Lever.ENGINE_FLAG, "max-num-seqs"),
        (Lever.ENGINE_FLAG, "dtype"),
        (Lever.ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND"),
        (Lever.COMPILATION, "cudagraph_capture_sizes"),
        (Lever.COMPILATION, "pass_config.fuse_norm_quant"),
    }  # enforce-eager false and AITER "0" are the defaults; max-model-len fits the machine; the others are not vLLM's


def test_what_fits_the_machine_is_left_and_said() -> None:
    engine = spec(flags={"max-model-len": 2048}, env={"VLLM_CPU_KVCACHE_SPACE": "2"})
    assert defaults.read(dossier(spec=engine)) == []
    assert len(defaults.dropped(dossier(spec=engine))) == 2


def test_a_switch_that_reaches_other_kernels_is_not_undone_and_said() -> None:
    """AITER was switched on for its kernels; one of its kinds that is on by itself and was switched off may go back."""
    part = Knob(name="VLLM_ROCM_USE_AITER_MHA", kind="bool", default=True, default_known=True, source="envs.py:1")
    knobs = KNOBS.model_copy(update={"env": {**KNOBS.env, part.name: part}})
    d = dossier(spec=spec(env={"VLLM_ROCM_USE_AITER": "1", part.name: "0"}), knobs=knobs)
    assert [h.change.key for h in defaults.read(d)] == [part.name]
    [left] = defaults.dropped(d)
    assert left.startswith("environment: VLLM_ROCM_USE_AITER: '1' -> default") and "switched on" in left
    assert defaults.dropped(dossier(spec=spec(env={"VLLM_ROCM_USE_AITER": "0"}), knobs=knobs)) == []


def test_the_models_own_dtype_is_the_default() -> None:
    d = dossier(spec=spec(flags={"dtype": "bfloat16"}), model_config_json={"torch_dtype": "bfloat16"})
    assert defaults.read(d) == []
    assert len(defaults.read(d.model_copy(update={"model_config_json": {}}))) == 1


# --- CPU threads ---


def test_cores_that_the_engine_keeps_for_its_server_are_offered_to_the_model() -> None:
    realised = {"omp_cores": "0, 1, 2, 4", "omp_reserved": "5"}  # as the engine's log says it
    (h,) = cpu_threads.read(dossier(realised=realised))
    assert (h.change.lever, h.change.key, h.change.after) == (Lever.ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND", "0-2,4-5")
    assert h.bound == 5 / 4 and 1 < h.predicted_gain < h.bound
    assert "reserved_cpus=[5]" in h.evidence[0].detail


def test_all_cores_are_not_offered_to_two_engines_at_once() -> None:
    realised = {"omp_cores": "0", "omp_reserved": "1"}
    assert cpu_threads.read(dossier(realised=realised, arms="alternate")) != []
    twins = dossier(realised=realised, arms="twin")
    assert cpu_threads.read(twins) == []
    (said,) = research(twins, ["cpu_threads"]).dropped
    assert said.startswith("environment: VLLM_CPU_OMP_THREADS_BIND: default -> 0-1 (cpu_threads): two engines at once")
    assert "arms: alternate" in said
    assert cpu_threads.dropped(dossier(arms="twin")) == []  # the log did not say: nothing is left out


@pytest.mark.parametrize(
    "fields",
    [
        {"realised": {"omp_cores": "0, 1", "omp_reserved": ""}},  # nothing is reserved
        {"realised": {}},  # the log did not say
        {"realised": {"omp_cores": "0", "omp_reserved": "1"}, "spec": spec(env={"VLLM_CPU_OMP_THREADS_BIND": "0"})},
    ],
)
def test_no_cores_to_offer(fields: dict[str, Any]) -> None:
    assert cpu_threads.read(dossier(**fields)) == []
