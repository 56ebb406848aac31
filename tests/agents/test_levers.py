"""A lever reads, writes and checks one kind of key."""

from __future__ import annotations

import pytest

from agents.tuning.levers import LEVERS
from contracts import Lever
from tests.agents.examples import KNOBS, spec

FLAG, ENV, COMP = LEVERS[Lever.ENGINE_FLAG], LEVERS[Lever.ENVIRONMENT], LEVERS[Lever.COMPILATION]


def test_every_lever_has_its_actions() -> None:
    assert set(LEVERS) == set(Lever)


def test_a_lever_for_files_says_what_it_lays_over_them() -> None:
    assert LEVERS[Lever.SOURCE_PATCH].place is not None
    assert not any(LEVERS[lever].place for lever in (Lever.ENGINE_FLAG, Lever.ENVIRONMENT, Lever.COMPILATION))


@pytest.mark.parametrize("spelling", ["max-num-seqs", "max_num_seqs", "--max-num-seqs", "--MAX_num_seqs"])
def test_a_flag_has_one_spelling(spelling: str) -> None:
    assert FLAG.normalise(spelling) == "max-num-seqs"
    engine = spec(flags={spelling: 4})
    assert FLAG.read(engine, "max-num-seqs") == 4
    assert FLAG.write(engine, "max_num_seqs", 16).flags == {"max-num-seqs": 16}
    assert FLAG.write(engine, "max-num-seqs", None).flags == {}


def test_only_the_part_before_the_dot_is_a_flag() -> None:
    assert FLAG.normalise("kernel_config.ir_op_priority") == "kernel-config.ir_op_priority"


def test_nested_compilation_keys() -> None:
    engine = COMP.write(spec(compilation={"mode": 3}), "pass_config.fuse_norm_quant", True)
    assert engine.compilation == {"mode": 3, "pass_config": {"fuse_norm_quant": True}}
    assert COMP.keys(engine) == ("mode", "pass_config.fuse_norm_quant")
    assert COMP.write(engine, "pass_config.fuse_norm_quant", None).compilation == {"mode": 3}


def test_writing_leaves_the_old_spec_alone() -> None:
    engine = spec(flags={"max-num-seqs": 4}, compilation={"pass_config": {"a": 1}})
    FLAG.write(engine, "max-num-seqs", 8)
    COMP.write(engine, "pass_config.a", 2)
    assert engine == spec(flags={"max-num-seqs": 4}, compilation={"pass_config": {"a": 1}})


@pytest.mark.parametrize(
    ("lever", "key", "value", "says"),
    [
        (FLAG, "max-num-seq", 4, "did you mean max-num-seqs?"),
        (FLAG, "no-enable-prefix-caching", True, "write enable-prefix-caching with the value false"),
        (FLAG, "max-num-seqs", "many", "takes a value of type int"),
        (FLAG, "max-num-seqs", True, "takes a value of type int"),
        (FLAG, "max-num-batched-tokens", "8k", "takes a value of type int"),
        (FLAG, "enforce-eager", "yes", "takes a value of type bool"),
        (FLAG, "dtype", "float23", "did you mean float32?"),
        (FLAG, "port", 8001, "belongs to the launch"),
        (FLAG, "model", "x", "what is served"),
        (FLAG, "compilation-config", {"mode": 0}, "use lever compilation_config"),
        (FLAG, "tp", 2, "write tensor-parallel-size"),
        (FLAG, "cudagraph_mode", "NONE", "key of lever compilation_config"),
        (FLAG, "kernel-config.ir_op_prio", [], "did you mean ir_op_priority?"),
        (FLAG, "max-num-seqs.x", 1, "takes no keys after a dot"),
        (ENV, "PYTHONPATH", "/x", "cannot be tuned"),
        (ENV, "HF_HUB_OFFLINE", "0", "cannot be tuned"),
        (ENV, "VLLM_CACHE_ROOT", "/x", "cannot be tuned"),
        (ENV, "AITER_JIT_DIR", "/x", "cannot be tuned"),  # both arms' kernels in one folder
        (ENV, "NIGHTGATE_EVIDENCE", "0", "with it a change is seen to be in use"),
        (ENV, "NIGHTGATE_EVIDENCE_FILES", "/x.py", "cannot be tuned"),
        (ENV, "VLLM_PORT", "1", "cannot be tuned"),
        (ENV, "VLLM_CPU_OMP_THREAD_BIND", "0", "did you mean VLLM_CPU_OMP_THREADS_BIND?"),
        (ENV, "VLLM_CPU_KVCACHE_SPACE", "much", "takes a number"),
        (ENV, "VLLM_CPU_KVCACHE_SPACE", 2, "write it in quotes"),
        (ENV, "A=B", "1", "not a name"),
        (ENV, "A", "x\0y", "NUL"),
        (COMP, "moode", 0, "did you mean mode?"),
        (COMP, "cache_dir", "/x", "launch's own"),
        (COMP, "max_num_seqs", 4, "it is an engine_flag"),
        (COMP, "cudagraph_capture_sizes", {"a": 1}, "takes a value of type list"),
    ],
)
def test_refusals_name_the_fix(lever: object, key: str, value: object, says: str) -> None:
    problem = lever.validate(key, value, KNOBS)  # type: ignore[attr-defined]
    assert problem is not None and says in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("lever", "key", "value"),
    [
        (FLAG, "max_num_seqs", 16),
        (FLAG, "gpu-memory-utilization", 1),
        (FLAG, "enforce-eager", None),
        (FLAG, "attention-backend", "FLASH_ATTN"),
        (FLAG, "kernel-config.ir_op_priority.rms_norm", ["native"]),
        (ENV, "NIGHTGATE_PLANTED_FAULT", "skip_layer"),  # not vLLM's: a plugin's or a library's
        (ENV, "VLLM_ROCM_USE_AITER", "1"),
        (COMP, "pass_config.fuse_norm_quant", True),
        (COMP, "cudagraph-capture-sizes", [1, 2, 4]),
    ],
)
def test_what_may_be_tuned(lever: object, key: str, value: object) -> None:
    assert lever.validate(key, value, KNOBS) is None  # type: ignore[attr-defined]
