"""The reader of bounds: what it tells, what it warns of."""

from __future__ import annotations

from typing import Any

from agents.research.dossier import Dossier, PhaseProfile
from agents.research.finding import Finding
from agents.research.model_shape import AttentionKind, ModelShape
from agents.research.readers.roofline import dropped, look
from cards.sheet import read_sheet
from tests.agents.examples import dossier, spec, workload

# 10 layers of hidden 1000, 10 heads of 100: 10 * (3 + 1 + 12) million linear weights, and two tables of 100 million.
MODEL = ModelShape(
    architecture="Round",
    hidden=1000,
    layers=10,
    vocabulary=100_000,
    attention=(AttentionKind(layers=10, heads=10, kv_heads=10, head_size=100),),
    intermediate=4000,
    dense_layers=10,
)


def about(model: ModelShape | None = MODEL, flags: dict[str, Any] | None = None, **fields: Any) -> Dossier:
    sheet = read_sheet("gfx942")
    held: dict[str, Any] = {"model": model, "sheet": sheet, "card": sheet.card(), "spec": spec(flags=flags or {})}
    held["workload"] = workload(concurrency=16, input_tokens=(1000, 1000), output_tokens=(200, 200))
    return dossier(**{**held, **fields})


def kinds(findings: list[Finding]) -> list[str]:
    return [f.kind for f in findings]


def test_the_bounds_are_a_fact_with_their_sources() -> None:
    """Decode: 160 + 100 million weights, 520 MB, and 16 sequences of 1100 tokens of 40,000 bytes, 704 MB, at 5.3 TB/s:
    0.098 + 0.133 ms, and a little for activations."""
    (only,) = look(about())
    assert only.kind == "fact"
    assert only.title.startswith("At most, gfx942 (AMD Instinct MI300X) prefills ")
    assert "at 16 sequences, 0.24 ms a step (bandwidth: attention 57% of the time)" in only.title
    told = {e.source: e.detail for e in only.evidence}
    assert told["configs/cards/gfx942.yaml#bandwidth_gb_s"].startswith("5300 GB/s: AMD Instinct MI300X data sheet")
    assert told["config.json"] == "10 layers, hidden 1000, 0.36 billion weights"
    assert told["workload"] == "prompts of 1000 tokens, 16 a pass; 16 sequences of 1100 tokens decode"
    assert "40,000 bytes of cache a token and card" in told["estimated: memory"]


def test_what_was_measured_is_set_against_it() -> None:
    phases = (PhaseProfile(phase="decode", step_ms=1.2, kernel_ms=0.6, source="trace.json"),)
    found = look(about(phases=phases, profile={"output_tokens_per_s": 12_000.0}))
    assert kinds(found) == ["fact"] * 3
    assert (
        "a decode step took 1.20 ms, the bound is 0.24 ms (0.60 ms of it in kernels); 5.1 times the time"
        in found[1].title
    )
    assert found[1].evidence[0].source == "trace.json"
    assert "12,000 output tokens/s, the bound is" in found[2].title


def test_faster_than_light_is_told() -> None:
    found = look(about(profile={"output_tokens_per_s": 1e9}))
    assert "beyond the bound: a figure of the sheet or of the load is wrong" in found[1].title


def test_weights_that_do_not_fit_are_a_trap() -> None:
    """10 layers of 15.616 billion weights: 312.3 GB, and 1.6 GB of tables; 92 % of 192 GiB are 190 GB."""
    wide = AttentionKind(layers=10, heads=32, kv_heads=32, head_size=1000)
    huge = MODEL.model_copy(
        update={"hidden": 32_000, "vocabulary": 12_500, "intermediate": 120_000, "attention": (wide,)}
    )
    trap = look(about(huge))[-1]
    assert trap.kind == "trap"
    assert trap.title.startswith(
        "The weights do not fit: 292.4 GiB a card at tensor-parallel-size 1, and 92% of the card"
    )
    assert trap.fix == "--tensor-parallel-size 2; or weights of fewer bits"
    assert kinds(look(about(huge, {"tensor-parallel-size": 2}))) == ["fact"]


def test_a_cache_that_is_too_small_is_a_trap() -> None:
    """1200 tokens of 40,000 bytes: 48 MB a sequence. 1.54 GB / 206 GB * ... leave room for some, not for 16."""
    share = (720e6 + 5.5 * 48e6) / (192 * 2**30)  # the weights (360 million, 720 MB) and five sequences and a half
    found = look(about(flags={"gpu-memory-utilization": share}))
    assert kinds(found) == ["fact", "trap"]
    assert found[1].title.startswith(
        "The KV cache holds 5 of the workload's longest sequences (1200 tokens), and 16 are"
    )
    assert found[1].fix.startswith("--max-num-seqs 5,")
    assert kinds(look(about(flags={"gpu-memory-utilization": share, "max-num-seqs": 4}))) == ["fact"]


def told_of_length(flags: dict[str, Any], tokens: int, env: dict[str, str], config: dict[str, Any]) -> list[str]:
    load = workload(input_tokens=(tokens, tokens), output_tokens=(100, 100))
    model = MODEL.model_copy(update={"max_positions": 131_072})
    asked = about(model, flags=flags, workload=load, model_config_json=config)
    found = look(asked.model_copy(update={"spec": asked.spec.model_copy(update={"env": env})}))
    return [f.title for f in found if f.kind == "trap" and "refuses" in f.title]


def test_requests_that_the_engine_refuses_are_a_trap() -> None:
    """The model was made for 131,072 tokens."""
    assert told_of_length({}, 130_000, {}, {}) == []
    (title,) = told_of_length({}, 131_000, {}, {})
    assert "the workload's longest requests: 131,100 tokens in and out, it takes 131,072" in title
    (title,) = told_of_length({"max-model-len": 8192}, 10_000, {}, {})
    assert "10,100 tokens in and out, it takes 8,192" in title
    (title,) = told_of_length({"max-model-len": 200_000}, 1000, {}, {})
    assert title == "vLLM refuses to start: max-model-len 200,000 is more than the 131,072 tokens of the model"
    assert told_of_length({"max-model-len": 200_000}, 1000, {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, {}) == []
    stretched = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert told_of_length({}, 1_000_000, {}, stretched) == []  # how far is not known here
    assert told_of_length({}, 131_000, {}, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}})


def test_an_open_loop_is_held_to_the_peak_that_was_seen() -> None:
    share = (720e6 + 5.5 * 48e6) / (192 * 2**30)
    work = workload(concurrency=None, rate_per_s=1.0, input_tokens=(1000, 1000), output_tokens=(200, 200))
    flags = {"gpu-memory-utilization": share}
    assert kinds(look(about(flags=flags, workload=work))) == ["fact"]
    assert kinds(look(about(flags=flags, workload=work, profile={"running_peak": 9.0}))) == ["fact", "trap"]


def test_no_bound_is_told_with_its_reason() -> None:
    odd = look(about(MODEL.model_copy(update={"quantization": "novel"})))
    assert [f.title for f in odd] == ["There is no roofline: how wide weights of novel are could not be read"]
    assert look(about(model=None)) == []
    assert dropped(about(model=None)) == ["roofline: no config.json of the model"]
    (no_sheet,) = dropped(about(model=None, sheet=None))  # a CPU: nobody looked at the model's config.json
    assert no_sheet.startswith("roofline: no sheet of ")
    assert dropped(dossier(model=MODEL)) == ["roofline: no sheet of x86_64 in configs/cards/"]
    assert dropped(about()) == []
    staged = about(flags={"pipeline-parallel-size": 2})
    assert look(staged) == []
    assert dropped(staged) == ["roofline: pipeline-parallel-size is 2; bounds are worked out for one stage only"]
