"""Present in B, absent in A, or there is no measurement. Log lines are of vLLM 0.32.0 (CPU build), shortened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from agents.tuning.levers import LEVERS
from agents.tuning.probes import ArmSeen, ProbesError, judge_path, probe_for, rules
from contracts import Change, Lever, PathEvidence, Probe
from tests.agents.examples import KNOBS, run

ENGINE = "(EngineCore pid=7) INFO 11-29 13:36:44 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
EAGER_LOG = f"""\
(APIServer pid=6) INFO 11-29 13:36:11 [api_utils.py:286] non-default args: {{'enforce_eager': True, 'max_num_seqs': 4}}
(APIServer pid=6) WARNING 11-29 13:36:29 [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT
{ENGINE}dtype=torch.bfloat16, enforce_eager=True, enable_prefix_caching=True, enable_chunked_prefill=True, \
compilation_config={{'mode': <CompilationMode.NONE: 0>, 'compile_ranges_endpoints': [2048]}}
(EngineCore pid=7) INFO 11-29 13:36:44 [ompmultiprocessing.py:185] \tVLLM_CPU_OMP_THREADS_BIND='auto', auto_setup=True
(Worker pid=8) INFO 11-29 13:37:00 [cpu_worker.py:260] Explicitly set (1.0/9.09) GiB for KV cache on node 0.
"""
COMPILED_LOG = f"""\
(APIServer pid=6) INFO 11-29 13:36:11 [api_utils.py:286] non-default args: {{'max_num_seqs': 4}}
{ENGINE}dtype=torch.bfloat16, enforce_eager=False, enable_prefix_caching=True, enable_chunked_prefill=True, \
compilation_config={{'mode': <CompilationMode.DYNAMO_TRACE_ONCE: 2>, 'compile_ranges_endpoints': [2048]}}
(Worker pid=8) INFO 11-29 13:38:31 [cpu_model_runner.py:87] Warming up model for the compilation...
(Worker pid=8) INFO 11-29 13:40:10 [decorators.py:743] [backbone] saved AOT compiled function to /cache/rank_0_0/model
"""
OTHER_LOG = f"""\
(APIServer pid=6) INFO 11-29 13:48:11 [api_utils.py:286] non-default args: {{'dtype': 'float32', 'block_size': 64}}
{ENGINE}dtype=torch.float32, enforce_eager=True, enable_prefix_caching=False, enable_chunked_prefill=True, \
compilation_config={{'mode': <CompilationMode.NONE: 0>, 'compile_ranges_endpoints': [128]}}
(EngineCore pid=7) INFO 11-29 13:48:32 [ompmultiprocessing.py:185] VLLM_CPU_OMP_THREADS_BIND='nobind', auto_setup=False
(Worker pid=8) INFO 11-29 13:48:41 [cpu_worker.py:260] Explicitly set (2.0/14.84) GiB for KV cache on node 0.
"""


def judged(lever: Lever, key: str, before: JsonValue, after: JsonValue, a: str, b: str) -> PathEvidence:
    change = Change(lever=lever, key=key, before=before, after=after)
    return judge_path(change, probe_for(change, KNOBS), ArmSeen(log=a), ArmSeen(log=b))


NGRAM: dict[str, JsonValue] = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
NGRAM_LOG = (
    f"{ENGINE}model='m', speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3), x=1\n"
)
FLAG, ENV, COMP = Lever.ENGINE_FLAG, Lever.ENVIRONMENT, Lever.COMPILATION


@pytest.mark.parametrize(
    ("lever", "key", "before", "after", "a", "b"),
    [
        (FLAG, "enforce-eager", True, None, EAGER_LOG, COMPILED_LOG),
        (FLAG, "enforce-eager", None, True, COMPILED_LOG, EAGER_LOG),
        (COMP, "mode", None, 0, COMPILED_LOG, EAGER_LOG),
        (COMP, "mode", 0, None, EAGER_LOG, COMPILED_LOG),
        (FLAG, "dtype", None, "float32", EAGER_LOG, OTHER_LOG),
        (FLAG, "dtype", "float32", None, OTHER_LOG, EAGER_LOG),
        (FLAG, "enable-prefix-caching", None, False, EAGER_LOG, OTHER_LOG),
        (FLAG, "enable-prefix-caching", False, True, OTHER_LOG, EAGER_LOG),
        (FLAG, "enable-prefix-caching", False, None, OTHER_LOG, EAGER_LOG),
        (FLAG, "max-num-batched-tokens", None, 128, EAGER_LOG, OTHER_LOG),
        (FLAG, "max-num-batched-tokens", 128, None, OTHER_LOG, EAGER_LOG),
        (FLAG, "speculative-config", None, NGRAM, EAGER_LOG, NGRAM_LOG),
        (FLAG, "speculative-config", NGRAM, None, NGRAM_LOG, EAGER_LOG),
        (ENV, "VLLM_CPU_OMP_THREADS_BIND", None, "nobind", EAGER_LOG, OTHER_LOG),
        (ENV, "VLLM_CPU_KVCACHE_SPACE", "1", "2", EAGER_LOG, OTHER_LOG),
        (
            ENV,
            "NIGHTGATE_PLANTED_FAULT",
            None,
            "skip_layer",
            EAGER_LOG,
            EAGER_LOG + "PLANTED FAULT active: skip_layer\n",
        ),
    ],
)
def test_a_change_in_use_is_proven_and_the_same_engine_twice_is_not(
    lever: Lever, key: str, before: JsonValue, after: JsonValue, a: str, b: str
) -> None:
    proof = judged(lever, key, before, after, a, b)
    assert proof.outcome == "proven", proof.reason
    assert bool(proof.seen_in_a) != bool(proof.seen_in_b)
    assert judged(lever, key, before, after, a, a).outcome == "absent"
    assert judged(lever, key, before, after, b, b).outcome == "absent"


def test_accepted_and_ignored_is_absent_and_the_engine_is_quoted() -> None:
    b = EAGER_LOG + (
        "(APIServer pid=6) INFO non-default args: {'attention_backend': 'FLASH_ATTN'}\n"
        "(Worker pid=8) INFO 11-29 [cpu.py:178] Cannot use AttentionBackendEnum.FLASH_ATTN backend on CPU.\n"
    )
    proof = judged(FLAG, "attention-backend", None, "FLASH_ATTN", EAGER_LOG, b)
    assert proof.outcome == "absent"
    assert "accepted but not in use" in proof.reason
    assert "Cannot use AttentionBackendEnum.FLASH_ATTN backend on CPU" in proof.reason


def test_the_list_of_accepted_arguments_proves_nothing() -> None:
    change = Change(lever=FLAG, key="block-size", after=64)
    probe = Probe(kind="log_line", pattern="'block_size': {after}")
    assert judge_path(change, probe, ArmSeen(log=EAGER_LOG), ArmSeen(log=OTHER_LOG)).outcome == "absent"


@pytest.mark.parametrize("key", ["swap-space", "stream-interval"])
def test_a_key_without_a_rule_is_unknown(key: str) -> None:
    proof = judged(FLAG, key, None, 64, EAGER_LOG, OTHER_LOG)
    assert proof.outcome == "unknown"
    assert f"no way known to see {key} in use" in proof.reason


def test_an_empty_log_shows_nothing() -> None:
    assert judged(FLAG, "enforce-eager", None, True, COMPILED_LOG, "").outcome == "unknown"
    assert judged(FLAG, "enforce-eager", True, None, "", COMPILED_LOG).outcome == "unknown"


def test_colours_and_values_with_signs() -> None:
    a, b = "nothing here\n", "\x1b[32mINFO\x1b[0m VLLM_CPU_OMP_THREADS_BIND='\x1b[1m0-1|2-3\x1b[0m', auto_setup=False\n"
    assert judged(ENV, "VLLM_CPU_OMP_THREADS_BIND", None, "0-1|2-3", a, b).outcome == "proven"
    assert judged(ENV, "VLLM_CPU_OMP_THREADS_BIND", None, ".*", a, b).outcome == "absent"


def test_a_night_files_own_probe() -> None:
    change = Change(lever=ENV, key="MY_SWITCH", after="fast")
    good = Probe(kind="log_line", pattern="my plugin: mode {after}$")
    x = ArmSeen(log="x")
    assert judge_path(change, good, x, ArmSeen(log="my plugin: mode fast")).outcome == "proven"
    broken = Probe(kind="log_line", pattern="my plugin (")
    assert "no regular expression" in judge_path(change, broken, x, x).reason
    empty = Probe(kind="log_line")
    assert judge_path(change, empty, x, x).outcome == "unknown"


SEQS = Change(lever=FLAG, key="max-num-seqs", before=4, after=16)


@pytest.mark.parametrize(
    ("before", "after", "peak_a", "peak_b", "outcome"),
    [
        (4, 16, 4, 16, "proven"),
        (4, 16, 4, 5, "proven"),
        (4, 16, 4, 4, "absent"),
        (4, 16, 16, 16, "absent"),  # the old engine did not keep to its limit: then nothing is known of it
        (4, None, 4, 16, "proven"),
        (16, 4, 16, 4, "proven"),
        (16, 4, 3, 3, "absent"),
        (None, 4, 16, 4, "proven"),
        (None, 300, 16, 16, "absent"),
        (4, 16, None, 16, "unknown"),
        (4, 16, 4, None, "unknown"),
    ],
)
def test_more_or_fewer_at_a_time(before: Any, after: Any, peak_a: Any, peak_b: Any, outcome: str) -> None:
    change = Change(lever=FLAG, key="max-num-seqs", before=before, after=after)
    probe = probe_for(change, KNOBS)
    assert probe.kind == "peak_running"
    a = ArmSeen(runs=(run("A", running_peak=peak_a), run("A")))
    b = ArmSeen(runs=(run("B", running_peak=peak_b),))
    assert judge_path(change, probe, a, b).outcome == outcome


def test_no_runs_no_proof() -> None:
    assert judge_path(SEQS, probe_for(SEQS, KNOBS), ArmSeen(log=EAGER_LOG), ArmSeen(log=OTHER_LOG)).outcome == "unknown"


def test_the_shipped_rules_are_sound() -> None:
    for rule in rules():
        if "*" not in rule.key:
            assert LEVERS[rule.lever].normalise(rule.key) == rule.key
        assert rule.pattern or rule.kind in ("peak_running", "realised", "imported", "table_row")
        assert (rule.kind == "realised") == bool(rule.realised)
    assert {rule.lever for rule in rules()} == set(Lever)  # one way for each lever


def test_a_damaged_rules_file(tmp_path: Path) -> None:
    for text in ("probes: 3\n", "a: b\n", "probes:\n  - {lever: nail, key: x}\n", "probes: [\n", ""):
        path = tmp_path / "probes.yaml"
        path.write_text(text)
        rules.cache_clear()
        with pytest.raises(ProbesError):
            rules(path)
