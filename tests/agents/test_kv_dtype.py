"""Formats of the KV cache: the comparison as data, what a card can do, what this vLLM can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.finding import Finding
from agents.research.knobs import Knob, Knobs
from agents.research.kv_cache import KvFormatsError, gain, read_formats, values_of
from agents.research.readers import kv_dtype
from agents.research.readers.kv_dtype import look
from cards.sheet import read_sheet
from contracts import Lever
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.test_roofline_reader import MODEL

VALUES = ("auto", "float16", "bfloat16", "fp8", "int8_per_token_head", "some_3bit")


SMALLER = [
    *("INT8 per tensor", "INT8 per token and head", "FP8 per token and head", "FP8 per tensor"),
    *("KIVI", "KVQuant"),
]


def knobs(choices: tuple[str, ...] = VALUES, path: str = "/nowhere/vllm") -> Knobs:
    knob = Knob(name="kv-cache-dtype", kind="choice", choices=choices, default="auto", source="config/cache.py:7")
    return KNOBS.model_copy(update={"flags": {**KNOBS.flags, "kv-cache-dtype": knob}, "path": path})


def about(arch: str, flags: dict[str, Any] | None = None, **fields: Any) -> Any:
    sheet = read_sheet(arch)
    held: dict[str, Any] = {"model": MODEL, "sheet": sheet, "card": sheet.card(), "spec": spec(flags=flags or {})}
    held["workload"] = workload(concurrency=16, input_tokens=(1000, 1000), output_tokens=(200, 200))
    return dossier(**{**held, "knobs": knobs(), **fields})


def chances(findings: list[Finding]) -> list[Any]:
    return [f.change.after for f in findings if f.change]


def test_the_comparison_is_data() -> None:
    formats = {f.name: f for f in read_formats()}
    assert list(formats) == [
        *("bf16", "INT8 per tensor", "INT8 per token and head"),
        *("FP8 per token and head", "FP8 per tensor", "KIVI", "KVQuant"),
    ]
    assert formats["KVQuant"].of_bf16 == 0.27
    assert formats["FP8 per token and head"].loss_percent == (0, 1.5)
    assert formats["FP8 per tensor"].loss_words == "loss not known"  # the record judged a scale for each head
    assert all(f.source for f in formats.values())


@pytest.mark.parametrize(
    ("arch", "able"),
    [
        ("gfx906", []),
        ("gfx90a", ["INT8 per tensor", "INT8 per token and head", "KVQuant"]),
        ("gfx942", SMALLER),
        ("gfx950", SMALLER),
    ],
)
def test_which_format_has_its_arithmetic_where(arch: str, able: list[str]) -> None:
    assert [f.name for f in read_formats() if f.bits < 16 and f.runs_on(read_sheet(arch))] == able


def test_a_broken_comparison_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "kv.yaml").write_text("formats: [{name: x}]", encoding="utf-8")
    with pytest.raises(KvFormatsError, match=r"kv\.yaml cannot be used"):
        read_formats(tmp_path / "kv.yaml")


def test_values_from_the_flag_or_from_the_type_behind_it(tmp_path: Path) -> None:
    assert values_of(knobs()) == (VALUES, "vllm/config/cache.py:7")
    (tmp_path / "config").mkdir()
    text = 'import x\nCacheDType = Literal["auto", "fp8"]\nKNOWN = list(CacheDType)\n'
    (tmp_path / "config/cache.py").write_text(text, encoding="utf-8")
    assert values_of(knobs((), str(tmp_path))) == (("auto", "fp8"), "vllm/config/cache.py:2")
    assert values_of(knobs(())) == ((), "")
    assert values_of(KNOBS) == ((), "")


def test_what_half_the_cache_buys() -> None:
    """10 KV heads of 100: 2 * 10 * 10 * 100 values a token, 40,000 bytes in 16 bits, 20,000 in 8."""
    buys = gain(about("gfx942"), "fp8")
    assert buys is not None
    assert (buys.before.kv_bytes_per_token, buys.after.kv_bytes_per_token) == (40_000, 20_000)
    assert 1.9 < buys.attention < 2  # queries and outputs stay as they are
    # The same 206 GB less weights, half the bytes: 2 * 48 MB -> 24 MB a sequence of 1200.
    assert buys.after.sequences_fit == pytest.approx(2 * buys.before.sequences_fit, abs=1)
    scaled = gain(about("gfx942"), "int8_per_token_head")
    assert scaled is not None
    assert scaled.after.kv_bytes_per_token == 20_000 * (8 + 32 / 100) / 8


def test_a_change_only_where_card_and_version_have_it() -> None:
    assert chances(look(about("gfx942"))) == ["int8_per_token_head", "fp8"]
    assert chances(look(about("gfx90a"))) == ["int8_per_token_head"]
    assert chances(look(about("gfx906"))) == []
    assert chances(look(about("gfx942", knobs=knobs(("auto", "fp8_e4m3"))))) == ["fp8_e4m3"]
    both = look(about("gfx942", knobs=knobs(("auto", "fp8", "fp8_per_token_head"))))
    named = {f.change.after: f.title.split(" would")[0] for f in both if f.change}
    assert named == {
        "fp8_per_token_head": "FP8 per token and head (fp8_per_token_head)",
        "fp8": "FP8 per tensor (fp8)",
    }
    assert chances(look(about("gfx942", knobs=KNOBS))) == []
    assert chances(look(about("gfx942", {"kv-cache-dtype": "fp8"}))) == []  # somebody chose


def test_it_is_a_risk_to_the_answers() -> None:
    best = look(about("gfx942"))[-1]
    assert best.kind == "opportunity" and best.risk == "high"
    assert best.change is not None and best.change.lever == Lever.ENGINE_FLAG
    assert best.terms is not None
    assert 1.3 < best.terms.speedup < 1 / 0.75  # half of what the ceiling of 2 saves, and the words say so
    assert best.terms.speedup_from.startswith("judged: 50% of what the ceiling saves; at best 2.00 times")
    assert best.terms.phase == "decode" and "attention is" in best.terms.share_from
    assert best.hypothesis() is not None


def test_not_where_the_back_end_that_is_asked_for_does_not_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_dtype, "_served_by", lambda dossier, value: [("ROCM_ATTN", "vllm/rocm_attn.py")])
    assert chances(look(about("gfx942", {"attention-backend": "TRITON_ATTN"}))) == []
    assert chances(look(about("gfx942", {"attention-backend": "rocm_attn"}))) == ["int8_per_token_head", "fp8"]


def test_the_fact_names_each_format_and_what_is_not_judged() -> None:
    fact = look(about("gfx90a"))[0]
    assert fact.title == (
        "gfx90a has the arithmetic of 3 of 6 compared smaller KV-cache formats; "
        "a flag of vLLM 0.32.0 sets INT8 per token and head"
    )
    told = {e.source: e.detail for e in fact.evidence}
    assert "needs fp8 or fp8_fnuz, which gfx90a has not" in told["configs/kv_dtypes.yaml#FP8 per token and head"]
    assert told["vllm/config/cache.py:7"] == "takes also, not judged here: some_3bit"


def test_a_cache_without_its_arithmetic_is_a_trap() -> None:
    asked = look(about("gfx906", {"kv-cache-dtype": "fp8"}))
    assert [f.kind for f in asked] == ["fact", "trap"]
    assert asked[1].title.startswith("--kv-cache-dtype fp8 needs fp8 or fp8_fnuz, and gfx906 has neither")
    scheme = MODEL.model_copy(update={"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}})
    silent = look(about("gfx90a", model=scheme))
    assert silent[1].title == (
        "The checkpoint's kv_cache_scheme makes the KV cache FP8 without a flag, and gfx90a has no arithmetic for it"
    )
    assert silent[1].fix == "--kv-cache-dtype bfloat16"
    assert [f.kind for f in look(about("gfx942", model=scheme))] == ["fact"]


def test_a_value_that_this_version_does_not_list_is_a_trap() -> None:
    trap = look(about("gfx942", {"kv-cache-dtype": "int8"}))[1]
    assert trap.kind == "trap"
    assert trap.title.startswith("vLLM 0.32.0 does not list int8 among the values of --kv-cache-dtype")
    assert any("The record would set --kv-cache-dtype int8." in e.detail for e in trap.evidence)


def test_room_matters_more_than_the_step_where_the_cache_is_full() -> None:
    share = (720e6 + 5.5 * 48e6) / (192 * 2**30)
    best = look(about("gfx942", {"gpu-memory-utilization": share}))[-1]
    assert best.title.endswith("; 5 of 16 sequences fit now, 11 then")


def test_nothing_without_a_model_or_a_sheet() -> None:
    assert look(dossier()) == []
