"""What runs, read from a real log of vLLM 0.32.0 (CPU build), started with --enforce-eager --max-num-seqs 8
--max-model-len 1024 --attention-backend FLASH_ATTN on 2026-11-29."""

from pathlib import Path
from typing import Any

import pytest

from contracts import EngineSpec
from engine.asked import mismatches, same
from engine.realised import cache_config, parse_log, realise

LOG = (Path(__file__).parent / "logs" / "eager_ready.txt").read_text()
# The shape of /server_info?config_format=json, the parts that are read.
INFO: dict[str, Any] = {
    "vllm_config": {
        "scheduler_config": {"max_num_seqs": 8, "max_num_batched_tokens": 2048, "async_scheduling": False},
        "cache_config": {"block_size": 128, "enable_prefix_caching": True},
        "attention_config": {"backend": "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"},
        "kernel_config": {"moe_backend": "triton"},
        "parallel_config": {"is_moe_model": False},
        "compilation_config": {"cudagraph_capture_sizes": []},
    },
    "vllm_env": {"VLLM_CPU_KVCACHE_SPACE": 1},
}


def spec(flags: dict[str, Any] | None = None, **more: Any) -> EngineSpec:
    return EngineSpec(python="p", model="m", flags=flags or {}, **more)


def test_the_log_alone() -> None:
    found = parse_log(LOG)
    assert found["version"] == "0.32.0"
    assert (found["dtype"], found["enforce_eager"], found["enable_chunked_prefill"]) == ("bfloat16", True, True)
    assert (found["compilation.mode"], found["compilation.cudagraph_mode"]) == ("NONE", "NONE")
    assert (found["kv_cache_tokens"], found["omp_cores"]) == (46592, "0")
    assert "speculative_config" not in found or found["speculative_config"] is None


def test_a_backend_that_was_accepted_and_is_not_used() -> None:
    asked = spec({"attention-backend": "FLASH_ATTN", "kernel-config": {"moe_backend": "triton"}, "max-num-seqs": 8})
    found = realise(asked, LOG, {"info": INFO})
    assert found["attention_backend"] == "CPU_ATTN"
    assert mismatches(asked, found) == (
        "asked attention_backend = FLASH_ATTN, realised CPU_ATTN",
        "asked moe_backend = triton, realised none, the model has no experts",
    )


def test_compile_mode_3_becomes_2_on_a_cpu() -> None:
    log = LOG.replace("<CompilationMode.NONE: 0>", "<CompilationMode.DYNAMO_TRACE_ONCE: 2>")
    asked = spec(compilation={"mode": 3})
    assert mismatches(asked, realise(asked, log, {})) == ("asked compilation.mode = 3, realised DYNAMO_TRACE_ONCE",)
    assert not mismatches(spec(compilation={"mode": 2}), realise(spec(), log, {}))


def test_what_nothing_tells_about_is_unconfirmed_not_agreed() -> None:
    found = realise(spec({"disable-log-stats": True}, env={"VLLM_NO_SUCH": "1"}), LOG, {"info": INFO})
    assert found["unconfirmed"] == ["disable_log_stats", "env.VLLM_NO_SUCH"]


def test_variables_as_the_engine_sees_them() -> None:
    asked = spec(env={"VLLM_CPU_KVCACHE_SPACE": "2", "PLUGIN_SWITCH": "1"})
    assert mismatches(asked, realise(asked, LOG, {"info": INFO})) == ("asked VLLM_CPU_KVCACHE_SPACE = 2, realised 1",)


def test_a_gpu_log() -> None:
    """The line is vllm/platforms/cuda.py's and rocm.py's of 0.32.0; nobody ran it here."""
    line = "Using TRITON_ATTN attention backend out of potential backends: ['ROCM_ATTN', 'TRITON_ATTN'].\n"
    assert parse_log(line)["attention_backend"] == "TRITON_ATTN"


@pytest.mark.parametrize(
    ("name", "wanted", "got"),
    [
        ("dtype", "half", "torch.float16"),
        ("dtype", "auto", "bfloat16"),
        ("max_num_seqs", "8", 8),
        ("kv_cache_memory_bytes", "1G", 1 << 30),
        ("max_model_len", "2k", 2000),
        ("compilation.mode", 0, "NONE"),
        ("compilation.mode", "none", 0),
        ("env.VLLM_USE_THIS", "1", True),
        ("speculative_config", {"method": "ngram"}, "SpeculativeConfig(method='ngram', model=None)"),
        ("compilation.cudagraph_capture_sizes", [1, 2], [1, 2]),
    ],
)
def test_values_that_are_the_same(name: str, wanted: Any, got: Any) -> None:
    assert same(name, wanted, got)


@pytest.mark.parametrize(("wanted", "got"), [(8, 16), ("fp8", "auto"), (True, False), ([1], [1, 2]), ("x", 1)])
def test_values_that_differ(wanted: Any, got: Any) -> None:
    assert not same("anything", wanted, got)


def test_the_sizes_of_captured_graphs_are_always_told() -> None:
    """The token gate asks at their edges, whether or not the night sets them."""
    compilation = {"cudagraph_capture_sizes": [1, 2, 4], "cudagraph_copy_inputs": False}
    found = realise(spec(), LOG, {"info": {"vllm_config": {"compilation_config": compilation}}})
    assert found["compilation.cudagraph_capture_sizes"] == [1, 2, 4]
    assert "compilation.cudagraph_copy_inputs" not in found


def test_cache_config_labels() -> None:
    text = '# HELP x\nvllm:cache_config_info{block_size="128",engine="0",num_gpu_blocks="364"} 1.0\n'
    assert cache_config(text) == {"block_size": "128", "engine": "0", "num_gpu_blocks": "364"}
    assert cache_config("") == {}


@pytest.mark.parametrize("log", ["", "Initializing a V1 LLM engine (v1) with config: dtype=", "with config: a=(b=[c"])
def test_a_strange_log_is_no_error(log: str) -> None:
    assert isinstance(realise(spec(), log, {"models": {"data": []}, "info": {}}), dict)


@pytest.mark.parametrize(
    ("wanted", "runs", "told"),
    [
        ("triton", "TritonExperts", False),  # vLLM 0.26 on an H200, 2026-11-30: it logs the class
        ("flashinfer_cutlass", "FlashInferCutlassExperts", False),
        ("triton", "FlashInferExperts", True),
    ],
)
def test_experts_are_named_by_their_class(wanted: str, runs: str, told: bool) -> None:
    assert bool(mismatches(spec({"moe-backend": wanted}), {"moe_backend": runs})) is told
