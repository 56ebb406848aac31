"""The roofline's formulas, each by hand on a model that fits on a page, then an 8B model on a real card's figures."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from agents.research.dossier import Dossier
from agents.research.model_shape import AttentionKind, Experts, ModelShape, model_shape
from agents.research.roofline import estimate, limit_words, roofline
from agents.research.served import kv_bits, kv_dtype, peak, served
from agents.research.shares import share
from agents.research.step_work import (
    Load,
    experts_touched,
    keys_read,
    latent_of,
    pairs,
    step_work,
    weight_bytes,
)
from cards.sheet import CardSheet, Number, read_sheet
from contracts import Card
from tests.agents.examples import dossier, spec, workload

# 2 layers, hidden 8, 2 query heads and 1 KV head of size 4, feed-forward 16, 10 words, input and output table apart.
SMALL = ModelShape(
    architecture="Small",
    hidden=8,
    layers=2,
    vocabulary=10,
    attention=(AttentionKind(layers=2, heads=2, kv_heads=1, head_size=4),),
    intermediate=16,
    dense_layers=2,
)
# A layer's linear weights: qkv (2 + 2) * 4 * 8 = 128, out 8 * 8 = 64, gate and up 32 * 8 = 256, down 8 * 16 = 128: 576.
LINEAR = 2 * 576
BF16 = served(SMALL, {})
assert BF16 is not None


def number(value: float) -> Number:
    return Number(value=value, source="made up for a test")


def card(**fields: Any) -> CardSheet:
    """1 GB/s, 0.001 TFLOPS = 1e9 FLOP/s in 16 bits, 1 GiB."""
    base: dict[str, Any] = {
        "arch": "gfx000",
        "name": "a small card",
        "kind": "amd",
        "wavefront": 64,
        "compute_units": number(1),
        "memory_gib": number(1),
        "bandwidth_gb_s": number(1),
        "tflops": {"bf16": number(0.001), "fp32": number(0.0005)},
        "lds_bytes": number(65536),
        "vgprs": number(512),
    }
    return CardSheet(**{**base, **fields})


def about(model: ModelShape, sheet: CardSheet, flags: dict[str, Any] | None = None, **fields: Any) -> Dossier:
    work = workload(**fields.pop("work", {}))
    held = {"model": model, "sheet": sheet, "card": sheet.card(), "spec": spec(flags=flags or {}), "workload": work}
    return dossier(**{**held, **fields})


# --- counting ---


def test_pairs_of_a_causal_mask() -> None:
    assert pairs(4, 0, None) == 1 + 2 + 3 + 4
    assert pairs(2, 10, None) == 11 + 12
    assert pairs(4, 0, 2) == 1 + 2 + 2 + 2
    assert pairs(3, 1, 3) == 2 + 3 + 3
    assert pairs(1, 100, 16) == 16


def test_keys_that_have_to_be_read() -> None:
    assert keys_read(1, 100, None) == 101
    assert keys_read(1, 100, 16) == 16
    assert keys_read(3, 100, 16) == 18  # the windows of three neighbours overlap
    assert keys_read(4, 0, 16) == 4


def test_experts_that_get_a_token() -> None:
    assert experts_touched(4, 1, 1) == pytest.approx(1)
    assert experts_touched(4, 1, 2) == pytest.approx(4 * (1 - 0.75**2))  # 1.75
    assert experts_touched(4, 4, 1) == pytest.approx(4)


def test_one_decode_step_by_hand() -> None:
    """3 sequences, 1 token each, 7 earlier ones."""
    work = step_work(SMALL, BF16, Load(sequences=3, tokens=1, context=7, logits=1, decode=True), "auto", "bf16")
    assert work["attention"].flops == 3 * 2 * 4 * 2 * 4 * 8  # sequences, layers, 4 * heads * head size * pairs
    # K and V: 2 * 1 head * 4 * 2 bytes = 16 a token; 8 read and 1 written; q and out 2 * 2 heads * 4 * 2 bytes.
    assert work["attention"].bytes == 3 * 2 * (16 * 9 + 32)
    assert work["gemm"].flops == 2 * LINEAR * 3
    # Inputs and outputs: (n + k) * 2 bytes * 3 tokens, of (16, 8), (8, 8), (32, 8), (8, 16), in 2 layers.
    assert work["gemm"].bytes == LINEAR * 2 + 2 * (24 + 16 + 40 + 24) * 2 * 3
    assert work["sampling"].flops == 2 * 10 * 8 * 3
    assert work["sampling"].bytes == 80 * 2 + 3 * (8 * 2 + 10 * 8)
    assert work["norm"].bytes == 5 * 4 * 8 * 2 * 3
    assert "moe" not in work and "communication" not in work


def test_a_prompt_needs_one_row_of_logits() -> None:
    work = step_work(SMALL, BF16, Load(sequences=1, tokens=4, context=0, logits=1, decode=False), "auto", "bf16")
    assert work["attention"].flops == 2 * 4 * 2 * 4 * 10
    assert work["gemm"].flops == 2 * LINEAR * 4
    assert work["sampling"].flops == 2 * 80


def test_experts_read_what_is_touched_and_compute_what_is_active() -> None:
    model = SMALL.model_copy(
        update={"experts": Experts(layers=2, count=4, top_k=1, intermediate=16), "intermediate": 0, "dense_layers": 0}
    )
    work = step_work(model, BF16, Load(sequences=2, tokens=1, context=0, logits=1, decode=True), "auto", "bf16")
    assert work["moe"].flops == 2 * 3 * 8 * 2 * 16 * 2  # 2 * three matrices * hidden * layers * width * tokens
    assert work["moe"].bytes == pytest.approx(3 * 8 * 2 * 16 * 1.75 * 2 + 2 * 8 * 2 * 2 * 2)
    assert weight_bytes(model, BF16) == 2 * (2 * (128 + 64) + 3 * 8 * 2 * 4 * 16 + 2 * 80)


def test_tensor_parallel_halves_the_weights_and_adds_all_reduces() -> None:
    model = SMALL.model_copy(update={"attention": (AttentionKind(layers=2, heads=2, kv_heads=2, head_size=4),)})
    load = Load(sequences=1, tokens=1, context=7, logits=1, decode=True)
    one, two = (step_work(model, BF16, load, "auto", "bf16", n) for n in (1, 2))
    assert two["gemm"].flops * 2 == one["gemm"].flops
    assert two["attention"].flops * 2 == one["attention"].flops
    assert two["norm"] == one["norm"]  # repeated on each card
    assert two["communication"].wire == 2 * 2 * 1 * 8 * 2  # two a layer, 2 * (2 - 1) / 2, hidden, 2 bytes
    assert weight_bytes(model, BF16, 2) * 2 == weight_bytes(model, BF16)


def test_latent_attention_keeps_one_vector_a_token() -> None:
    config = {"kv_lora_rank": 6, "qk_rope_head_dim": 2, "qk_nope_head_dim": 4, "v_head_dim": 4}
    latent = latent_of(config)
    assert latent is not None and latent_of({}) is None
    load = Load(sequences=1, tokens=1, context=7, logits=1, decode=True)
    work = step_work(SMALL, BF16, load, "auto", "bf16", 1, latent)
    assert work["attention"].bytes == 2 * ((6 + 2) * 2 * 9 + 32)
    assert work["attention"].flops == 2 * 2 * 8 * (2 * 8 + 2 * 6)  # layers, heads, pairs, scores and values
    assert latent.flops_a_pair(decode=False) == 2 * 6 + 2 * 4


# --- how it is served ---


@pytest.mark.parametrize(
    ("method", "config", "bits", "math"),
    [
        (None, {}, 16, "bf16"),
        ("fp8", {}, 8, "fp8"),
        ("awq", {"bits": 4, "group_size": 128}, 4.125, "bf16"),
        ("mxfp4", {}, 4.25, "bf16"),
        (
            "quark",
            {
                "global_quant_config": {
                    "weight": {"dtype": "fp4", "group_size": 32},
                    "input_tensors": {"dtype": "fp4", "group_size": 32},
                }
            },
            4.25,
            "fp4",
        ),
        (
            "compressed-tensors",
            {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "int"},
                        "input_activations": {"num_bits": 8, "type": "int"},
                    }
                }
            },
            8,
            "int8",
        ),
        (
            "compressed-tensors",
            {"config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
            4.5,
            "bf16",
        ),
        ("modelopt", {"quant_algo": "NVFP4"}, 4.5, "fp4"),
    ],
)
def test_widths_of_weights(method: str | None, config: dict[str, Any], bits: float, math: str) -> None:
    how = served(SMALL.model_copy(update={"quantization": method, "quantization_config": config}), {})
    assert how is not None
    assert (how.bits, how.math) == (bits, math)


def test_an_unknown_quantisation_gives_no_bound() -> None:
    odd = SMALL.model_copy(update={"quantization": "novel"})
    assert served(odd, {}) is None
    assert estimate(about(odd, card())) is None
    half_said = SMALL.model_copy(update={"quantization": "quark", "quantization_config": {"global_quant_config": None}})
    assert served(half_said, {}) is None


def test_a_card_without_the_dtype_lends_the_next_wider_peak() -> None:
    assert peak(read_sheet("gfx906"), "bf16") == (26.5e12, "fp16")
    assert peak(read_sheet("gfx942"), "fp4") == (2614.9e12, "fp8")
    assert peak(read_sheet("gfx90a"), "fp8") == (191.5e12, "bf16")
    assert peak(read_sheet("gfx950"), "novel") is None


def test_widths_of_the_cache() -> None:
    assert kv_bits("auto", "bf16", 128) == 16
    assert kv_bits("auto", "fp32", 128) == 32
    assert kv_bits("fp8_e4m3", "bf16", 128) == 8
    assert kv_bits("int8_per_token_head", "bf16", 128) == 8.25
    assert kv_bits("int4_per_token_head", "bf16", 64) == 4.5
    scheme = SMALL.model_copy(update={"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}})
    assert kv_dtype(scheme, {}) == "fp8"
    assert kv_dtype(scheme, {"kv-cache-dtype": "bfloat16"}) == "bfloat16"


# --- bounds ---

ONE_LENGTH = {"concurrency": 2, "input_tokens": (4, 4), "output_tokens": (4, 4)}


def test_bounds_by_hand() -> None:
    """1e9 bytes/s and 1e9 FLOP/s: the larger of a category's bytes and FLOPs is its time in ns."""
    line = roofline(about(SMALL, card(), work=ONE_LENGTH))
    assert line is not None
    # Decode: 2 sequences, context 4 + 4 / 2 = 6. attention: FLOPs 2 * 2 * 4 * 2 * 4 * 7 = 896, bytes 2 * 2 * 160 = 640.
    # gemm: FLOPs 4608, bytes 2304 + 832 = 3136. sampling: 320 and 352. norm: 640 bytes.
    ns = {name: round(part.seconds * 1e9) for name, part in line.decode.items()}
    assert ns == {"attention": 896, "gemm": 4608, "sampling": 352, "norm": 640}
    limits = {name: part.limit for name, part in line.decode.items()}
    assert limits == {"attention": "compute", "gemm": "compute", "sampling": "bandwidth", "norm": "bandwidth"}
    assert limit_words(line.decode) == "compute: gemm 71% of the time"
    assert line.decode_step_s == pytest.approx(6496e-9)
    assert line.decode_tokens_per_s == pytest.approx(2 / 6496e-9)
    # Prefill: both prompts in a pass of 8 tokens. attention: 2 * 2 * 4 * 2 * 4 * 10 = 1280; gemm 2 * 1152 * 8 = 18432;
    # sampling 352 bytes; norm 5 * 4 * 8 * 2 * 8 = 2560 bytes.
    assert {n: round(p.seconds * 1e9) for n, p in line.prefill.items()} == {
        "attention": 1280,
        "gemm": 18432,
        "sampling": 352,
        "norm": 2560,
    }
    assert line.together == 2
    assert line.prefill_s == pytest.approx(22624e-9 / 2)
    assert line.decode_s == pytest.approx(6496e-9 * 4 / 2)
    assert line.output_tokens_per_s == pytest.approx(4 / (11312e-9 + 12992e-9))


def test_the_estimate_is_the_same_as_shares() -> None:
    about_it = about(SMALL, card(), work=ONE_LENGTH)
    guess = estimate(about_it)
    assert guess is not None
    assert guess.decode.shares["gemm"] == pytest.approx(4608 / 6496)
    assert sum(guess.prefill.shares.values()) == pytest.approx(1)
    assert guess.words == "estimated: roofline of gfx000 (a small card)"
    found = share(about_it, "decode", "gemm")
    assert found is not None
    assert found.value == pytest.approx(12992 / (11312 + 12992) * 4608 / 6496)


def test_drafted_tokens_share_a_pass_over_the_weights() -> None:
    flags = {"speculative-config": {"num_speculative_tokens": 3}}
    line = roofline(about(SMALL, card(tflops={"bf16": number(1)}), flags, work=ONE_LENGTH))
    plain = roofline(about(SMALL, card(tflops={"bf16": number(1)}), work=ONE_LENGTH))
    assert line is not None and plain is not None
    assert line.tokens_per_step == 4
    assert line.decode_tokens_per_s > 1.5 * plain.decode_tokens_per_s


def test_memory_by_hand() -> None:
    """1 GiB * 0.5 less 2 * (1152 + 160) bytes of weights; 32 bytes of cache a token, sequences of 8."""
    line = roofline(about(SMALL, card(), {"gpu-memory-utilization": 0.5}, work=ONE_LENGTH))
    assert line is not None
    assert line.weight_bytes == 2624
    assert line.kv_bytes_per_token == 32
    assert line.kv_bytes_per_sequence == 256
    assert line.kv_memory_bytes == 2**29 - 2624
    assert line.sequences_fit == (2**29 - 2624) // 256


def test_a_window_bounds_what_a_sequence_keeps() -> None:
    near = AttentionKind(layers=1, heads=2, kv_heads=1, head_size=4, window=5)
    full = AttentionKind(layers=1, heads=2, kv_heads=1, head_size=4)
    line = roofline(about(SMALL.model_copy(update={"attention": (full, near)}), card(), work=ONE_LENGTH))
    assert line is not None
    assert line.kv_bytes_per_token == 16
    assert line.kv_bytes_per_sequence == 16 * 8 + 16 * 5


def test_how_many_run() -> None:
    def running(flags: dict[str, Any] | None = None, **fields: Any) -> float:
        line = roofline(about(SMALL, card(), flags, **fields))
        assert line is not None
        return line.running

    assert running(work=ONE_LENGTH) == 2
    assert running({"max-num-seqs": 1}, work=ONE_LENGTH) == 1
    assert running(work=ONE_LENGTH, profile={"running_mean": 1.5}) == 1.5
    open_loop = {**ONE_LENGTH, "concurrency": None}
    assert running(work={**open_loop, "rate_per_s": 1.0}) == 1  # each is done long before the next comes
    # One request decodes 4 steps. Bytes limit: step(r) = 2304 + 160 + r (416 + 448 + 96 + 320) = 2464 + 1280 r ns, and
    # r = rate * 4 * step(r) = 0.28 * (2.464 + 1.280 r) has the solution 0.690 / 0.642 = 1.075.
    assert running(work={**open_loop, "rate_per_s": 70_000.0}) == pytest.approx(1.075, abs=0.002)
    flood = {**open_loop, "rate_per_s": 1e9}  # more than the card can do
    assert running({"max-num-seqs": 4096}, work=flood) == 1024
    assert running(work=flood) == 256  # what vLLM allows on a small card
    small = Card(arch="gfx000", kind="amd", name="full", memory_bytes=3200, compute_units=1, source="test")
    assert running(work={**ONE_LENGTH, "concurrency": 9}, card=small) == 1  # the cache holds one sequence


def test_communication_only_with_a_link_speed() -> None:
    model = SMALL.model_copy(update={"attention": (AttentionKind(layers=2, heads=2, kv_heads=2, head_size=4),)})
    flags = {"tensor-parallel-size": 2}
    silent, linked = (roofline(about(model, card(**more), flags)) for more in ({}, {"link_gb_s": number(1)}))
    assert silent is not None and linked is not None
    assert "communication" not in silent.decode
    assert any("communication is left out" in said for said in silent.assumptions)
    assert linked.decode["communication"].limit == "link"


def test_nothing_without_a_model_or_a_sheet() -> None:
    assert roofline(dossier()) is None
    assert roofline(about(SMALL.model_copy(update={"attention": ()}), card())) is None


# --- a real size: 8B dense, bf16, on one H200 ---

EIGHT_B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}


def test_8b_on_an_h200() -> None:
    """32 streams, 1024 in, 128 out: the workload of the H200 twin measurement.

    Linear weights: 32 * (6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336) = 6,979,321,856, 13.96 GB, and
    1.05 GB each for the two tables: 16.06 GB. A decode step reads 15.01 GB of them: 3.13 ms at 4.8 TB/s. KV: 131,072
    bytes a token; 32 sequences of 1088: 4.57 GB, 0.95 ms. Prefill: 13.96 GFLOP a token at 989.4 TFLOPS: 70,900 tokens/s
    at most, attention and norms come on top.
    """
    line = roofline(
        about(
            model_shape(EIGHT_B),
            read_sheet("sm_90"),
            work={"concurrency": 32, "input_tokens": (1024, 1024), "output_tokens": (128, 128)},
        )
    )
    assert line is not None
    assert line.weight_bytes / 1e9 == pytest.approx(16.06, abs=0.01)
    assert line.kv_bytes_per_token == 131072
    assert line.decode["attention"].seconds * 1e3 == pytest.approx(0.955, abs=0.005)
    assert line.decode_step_s * 1e3 == pytest.approx(4.1, abs=0.1)
    assert limit_words(line.decode) == "bandwidth: gemm 71% of the time"
    assert 0.9 * 70_900 < line.prefill_tokens_per_s < 70_900
    assert limit_words(line.prefill).startswith("compute: gemm")
    # The twin served 18.9 requests/s: 2420 output tokens/s, below the bound, as it must be.
    assert 2420 < line.output_tokens_per_s < 5000


TWIN = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "h200_twin" / "aa_pairs.csv"


@pytest.mark.skipif(not TWIN.is_file(), reason="needs ../shared/data/h200_twin: a real engine's measurements")
def test_no_measured_run_beats_the_bounds() -> None:
    """The H200 twin: an 8B-shaped model, 32 streams, 1024 in, 128 out, vLLM 0.26. A token took 8.8 ms where a decode
    step must take 4.1 (prefill steps of others lie between)."""
    lengths = {"concurrency": 32, "input_tokens": (1024, 1024), "output_tokens": (128, 128)}
    line = roofline(about(model_shape(EIGHT_B), read_sheet("sm_90"), work=lengths))
    assert line is not None
    with TWIN.open(encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    assert len(runs) == 24
    for run in runs:
        assert 1.5 < float(run["mean_tpot_s"]) / line.decode_step_s < 4
        assert 0.3 < float(run["requests_per_s"]) * 128 / line.output_tokens_per_s < 1
