import re
from typing import Any

import pytest

from contracts import JudgeRule, Limit, Measurement, Objective
from judge.repeat import progress
from judge.void import card_void_reasons, pair_void_reasons, run_void_reasons
from tests.judge.nights import FINE, WORKLOAD, a_run, changed, experiment


def test_a_fine_run_and_a_fine_pair_have_no_reason() -> None:
    assert run_void_reasons(a_run("A"), WORKLOAD) == ()
    assert pair_void_reasons(a_run("A"), a_run("B")) == ()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"failed": 2}, "2 of 50 requests failed"),
        ({"failed": 1, "conditions": {"first_error": "short_output: 3 output tokens, asked for 40"}}, "short_output"),
        ({"completed": 40}, "too few samples: 40 of 48 requests completed"),
        ({"window_s": 0.0}, "the window is 0 s long"),
        ({"window_s": float("nan")}, "the window is nan s long"),
        ({"conditions": {"compiles_in_window": 1}}, "1 compile(s) inside the window"),
        ({"conditions": {"generator_late": True}}, "the load generator was late"),
        ({"conditions": {"client_cpu_share": 0.97}}, "the load generator used 97% of its core"),
        ({"conditions": {"load_kept": False}}, "the load fell before the window ended"),
        ({"conditions": {"foreign_cpu_share": 0.4}}, "other processes used 40% of the CPU, at most 25%"),
        ({"conditions": {"identity_ok": False}}, "the engine was not ours"),
        (
            {"conditions": {"prefix_hit_rate": 0.3}},
            "used prompts: 30.0% of prompt tokens came from the prefix cache, 0.0%",
        ),
    ],
)
def test_each_fault_has_its_reason(fault: dict[str, Any], reason: str) -> None:
    (found,) = run_void_reasons(a_run("A", **fault), WORKLOAD)
    assert reason in found


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("identity_ok", "identity not checked"),
        ("generator_late", "generator lateness not checked"),
        ("load_kept", "not known whether the load was kept"),
        ("client_cpu_share", "the load generator's own CPU use was not measured"),
        ("compiles_in_window", "compiles in the window not counted"),
        ("foreign_cpu_share", "foreign CPU use not measured"),
    ],
)
@pytest.mark.parametrize("value", [None, "yes"])
def test_not_checked_is_not_fine(key: str, reason: str, value: str | None) -> None:
    assert run_void_reasons(a_run("A", conditions={key: value}), WORKLOAD) == (reason,)


def test_a_run_without_any_condition_is_void_for_every_one_of_them() -> None:
    bare = Measurement(
        launch_id="L", arm="A", launch_pair=0, run=0, prompt_seed=1, window_s=1, completed=48, failed=0, metrics={}
    )
    assert len(run_void_reasons(bare, WORKLOAD)) == 6


def test_a_percentile_needs_a_sample_beyond_it() -> None:
    p99 = WORKLOAD.model_copy(update={"objective": Objective(limits=(Limit(metric="ttft_ms_p99", at_most=9),))})
    assert run_void_reasons(a_run("A"), p99) == ("too few samples: ttft_ms_p99 needs 100 requests, 48 completed",)


def test_a_shared_prefix_explains_its_hits_and_preemptions_explain_more() -> None:
    shared = WORKLOAD.model_copy(update={"shared_prefix_tokens": 512})  # 512 of at least 576
    assert run_void_reasons(a_run("A", conditions={"prefix_hit_rate": 0.85}), shared) == ()
    assert "used prompts" in run_void_reasons(a_run("A", conditions={"prefix_hit_rate": 0.95}), shared)[0]
    assert run_void_reasons(a_run("A", conditions={"prefix_hit_rate": 0.95, "preemptions": 3}), shared) == ()


@pytest.mark.parametrize(
    ("b", "reason"),
    [
        ({"prompt_seed": 9}, "different prompts: seeds 0 and 9"),
        ({"completed": 47}, "unequal work: 48 and 47 requests completed"),
        ({"conditions": {"output_tokens": 2303}}, "unequal work: 2304 and 2303 output tokens"),
        ({"conditions": {"prompt_tokens": None}}, "prompt tokens not counted"),
        ({"conditions": {"prefix_hit_rate": 0.02}}, "unequal prefix cache hits: 0.0% and 2.0%"),
        ({"conditions": {"prefix_hit_rate": None}}, "prefix cache hits not measured"),
        ({"conditions": {"started_at": 1.0}}, "the two runs overlapped in time"),
        ({"conditions": {"started_at": None}}, "start times not recorded"),
        ({"launch_id": "L0A"}, "both runs are of launch L0A"),
        ({"run": 1, "conditions": {"started_at": 99.0}, "prompt_seed": 0}, "not one pair"),
    ],
)
def test_each_inequality_has_its_reason(b: dict[str, Any], reason: str) -> None:
    (found,) = pair_void_reasons(a_run("A"), a_run("B", **b))
    assert reason in found


def test_switching_the_prefix_cache_is_a_change_and_not_a_fault() -> None:
    off = {"prefix_caching": False, "prefix_hit_rate": None}
    assert pair_void_reasons(a_run("A", conditions=off), a_run("B", conditions={"prefix_hit_rate": 0.8})) == ()


def test_with_a_shared_prefix_a_change_may_move_its_hits_a_little() -> None:
    a = a_run("A", conditions={"prefix_hit_rate": 0.80})
    assert pair_void_reasons(a, a_run("B", conditions={"prefix_hit_rate": 0.70})) == ()
    assert pair_void_reasons(a, a_run("B", conditions={"prefix_hit_rate": 0.30})) != ()


def test_the_arms_the_wrong_way_round_are_no_pair() -> None:
    assert "arms B and A instead of A and B" in pair_void_reasons(a_run("B"), a_run("A"))


def test_what_to_measure_next() -> None:
    runs = experiment([[1.0, 1.0]])
    assert progress(runs, 0, 2).state == "complete"
    assert (progress(runs[:2], 0, 2).state, progress(runs[:2], 0, 2).run) == ("unfinished", 1)
    assert (progress([], 0, 2).state, progress([], 0, 2).run) == ("unfinished", 0)
    void = changed(runs, lambda m: m.run == 0 and m.arm == "A", void_reasons=("late",))
    once = progress(void, 0, 2)
    assert (once.state, once.run, once.reasons) == ("repeat", 0, ("arm A: late",))
    void += [a_run("A", 0, 0, prompt_seed=50, void_reasons=("late",)), a_run("B", 0, 0, prompt_seed=50)]
    assert progress(void, 0, 2).state == "repeat"
    assert progress(void, 0, 2, repeats=1).state == "void"
    void += [a_run("A", 0, 0, prompt_seed=51), a_run("B", 0, 0, prompt_seed=51)]
    assert progress(void, 0, 2).state == "complete"


def test_the_conditions_named_here_are_those_that_the_measurement_fills() -> None:
    from pathlib import Path

    source = Path("engine/measure.py").read_text() + Path("engine/cpu_use.py").read_text()
    assert {key for key in FINE if f'"{key}"' not in source} == set()


# --- the card -----------------------------------------------------------------------------------------------------


def test_somebody_else_on_the_card_makes_a_run_void() -> None:
    (found,) = run_void_reasons(
        a_run("A", conditions={"card_foreign": ["python (pid 4242) holds 3.0 GiB of it"]}), WORKLOAD
    )
    assert found == "somebody else was on the card: python (pid 4242) holds 3.0 GiB of it"
    assert run_void_reasons(a_run("A", conditions={"card_foreign": []}), WORKLOAD) == ()


def test_memory_of_nobody_visible_that_rises_makes_a_run_void() -> None:
    grown = {"card_foreign": None, "card_vram_others_growth_bytes": 3 << 30}
    (found,) = run_void_reasons(a_run("A", conditions=grown), WORKLOAD)
    assert "rose by 3.0 GiB in the window: somebody whom this user cannot see came" in found
    little = {"card_vram_others_growth_bytes": 200 << 20, "card_vram_others_bytes_max": 9 << 30}
    assert run_void_reasons(a_run("A", conditions=little), WORKLOAD) == ()


def test_who_used_the_cpu_is_named() -> None:
    seen = {"foreign_cpu_share": 0.4, "foreign_cpu_named": ["cc1plus (pid 5): 1.60 cores"]}
    (found,) = run_void_reasons(a_run("A", conditions=seen), WORKLOAD)
    assert found.endswith("(judge.foreign_cpu_share); most of it cc1plus (pid 5): 1.60 cores")


def card_reasons(a: dict[str, Any], b: dict[str, Any], **rule: float) -> tuple[str, ...]:
    return card_void_reasons(a_run("A", conditions=a), a_run("B", conditions=b), JudgeRule(**rule))


def test_a_hot_card_makes_the_pair_void_in_words_and_numbers() -> None:
    hot = {"card_slowed_share": 0.3, "card_throttle_reasons": {"heat: TEMP_HOTSPOT": 0.3, "power: PPT0": 0.9}}
    (found,) = card_reasons({"card_slowed_share": 0.0}, hot)
    assert found == (
        "arm B's card was throttled in 30% of the looks at it (heat: TEMP_HOTSPOT, power: PPT0), at most 10% is "
        "allowed (judge.slowed_share)"
    )
    assert card_reasons({}, hot, slowed_share=1) == ()


def test_a_power_cap_in_both_arms_is_no_fault() -> None:
    at_cap = {"card_throttled_share": 1.0, "card_slowed_share": 0.0, "card_throttle_reasons": {"power: PPT0": 1.0}}
    assert card_reasons(at_cap, at_cap) == ()


def loaded(mhz: float | None, looks: int = 20) -> dict[str, Any]:
    return {"card_sclk_mhz_loaded": mhz, "card_loaded_samples": looks}


def test_a_clock_that_differs_between_the_arms_makes_the_pair_void() -> None:
    (found,) = card_reasons(loaded(1700), loaded(1300))
    assert found == ("arm B's clock was 24% lower: 1700 MHz in A, 1300 in B, at most 15% is allowed (judge.clock_drop)")
    assert "arm A's clock was 24% lower" in card_reasons(loaded(1300), loaded(1700))[0]
    assert card_reasons(loaded(1700), loaded(1500)) == ()
    assert card_reasons(loaded(1700), loaded(1300), clock_drop=0.3) == ()


def test_what_a_card_does_not_tell_makes_nothing_void() -> None:
    """Other than what every machine can tell, above: most cards tell only some of this."""
    untold = dict.fromkeys(
        ("card_foreign", "card_vram_others_growth_bytes", "card_slowed_share", "card_sclk_mhz_loaded")
    )
    assert run_void_reasons(a_run("A", conditions=untold), WORKLOAD) == ()
    assert card_reasons(untold, untold) == () == card_reasons({}, {})
    assert card_reasons(loaded(1700), loaded(None)) == ()
    assert card_reasons(loaded(1700), loaded(1300, looks=2)) == ()  # two looks at a loaded card are no median


def test_the_card_s_conditions_named_by_the_judge_are_those_that_the_sentinel_fills() -> None:
    from pathlib import Path

    filled = "".join(Path(f"cards/{name}.py").read_text() for name in ("window", "sentinel"))
    judged = set(re.findall(r'"(card_\w+|foreign_cpu_named)"', Path("judge/void.py").read_text()))
    assert {key for key in judged if f'"{key}"' not in filled} == set() != judged
