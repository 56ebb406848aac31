"""Rules of the KV cache's format, against the installed vLLM's own source and the cards' sheets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.readers import kv_dtype as reader
from agents.tuning.levers import kv_dtype
from contracts import Change, Lever
from tests.agents.installed import DENSE, MIXED, about, checked, cited_line


def change(known: Any, after: str | None) -> str | None:
    before = known.spec.flags.get("kv-cache-dtype")
    return checked(Change(lever=Lever.ENGINE_FLAG, key="kv-cache-dtype", before=before, after=after), known)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "sm_90"])
def test_fp8_where_the_card_has_one_of_its_encodings(arch: str) -> None:
    assert change(about(arch), "fp8") is None


def test_fp8_on_gfx906_is_refused_although_vllms_gate_lets_it_pass() -> None:
    reason = str(change(about("gfx906"), "fp8"))
    assert reason.startswith("gfx906 has no FP8 arithmetic of either encoding (configs/cards/gfx906.yaml calls fp8 and")
    assert "each value of an fp8 cache would be converted in software" in reason
    assert "would let it start all the same" in reason
    assert "on_cdna()" in cited_line(reason, "platforms/rocm.py")


def test_gfx90a_is_told_what_it_could_try_instead() -> None:
    """The decision record's way back: INT8 with a scale for each head, where there is no FP8."""
    known = about("gfx90a")
    assert "int8_per_token_head could be tried" in str(change(known, "fp8_e4m3"))
    assert change(known, "int8_per_token_head") is None


def test_int8_is_not_refused_for_want_of_matrix_instructions() -> None:
    """It is converted to the query's dtype as it is read."""
    assert change(about("gfx906"), "int8_per_token_head") is None


def test_a_value_that_this_version_has_not() -> None:
    """By the parser's own list, and where that is open by the type behind it."""
    known = about("gfx950")
    assert "int8_per_token_head" in str(change(known, "int8"))
    asked = Change(lever=Lever.ENGINE_FLAG, key="kv-cache-dtype", after="int8")
    reason = str(kv_dtype.problem(asked, known.spec, known))
    assert "has no KV cache of int8" in reason and "did you mean int8_per_token_head?" in reason
    assert "vllm/" in reason


def test_what_auto_is_already_changes_nothing() -> None:
    assert "is kept in bfloat16 already: the model's own dtype is bf16" in str(change(about("gfx950"), "bfloat16"))
    assert change(about("gfx950", flags={"dtype": "half"}), "bfloat16") is None
    assert change(about("gfx950", flags={"kv-cache-dtype": "fp8"}), "auto") is None


def test_the_back_end_in_use_has_to_take_it() -> None:
    known = about("gfx950", flags={"attention-backend": "ROCM_ATTN"})
    reason = str(change(known, "int8_per_token_head"))
    assert reason.startswith("ROCM_ATTN, the attention back end in use, takes no KV cache of int8_per_token_head")
    assert "vllm/v1/attention/backends/rocm_attn.py" in reason
    assert change(known, "fp8") is None


def test_or_any_of_the_order_for_each_head_size() -> None:
    assert change(about("gfx950", MIXED), "int8_per_token_head") is None  # TRITON_ATTN takes 256 and 512
    reason = str(change(about("gfx942"), "nvfp4"))
    assert "no attention back end of vLLM" in reason and "heads of 128 with a KV cache of nvfp4" in reason
    assert "TRITON_ATTN: it takes no KV cache of nvfp4" in reason


def test_a_cpu_has_one_back_end() -> None:
    assert change(about("cpu"), "fp8") is None
    assert str(change(about("cpu"), "int8_per_token_head")).startswith("CPU_ATTN, the attention back end in use")


PLATFORM = """
def _get_backend_priorities(use_mla, use_sparse, use_kv_connector=False):
    return [AttentionBackendEnum.PLAIN]
class RocmPlatform:
    def supports_fp8(cls): return {supports}
    def is_fp8_fnuz(cls): return "{fnuz}" in _GCN_ARCH
"""


@pytest.mark.parametrize(
    ("arch", "supports", "fnuz", "words"),
    [
        ("gfx950", "True", "gfx9", "writes FP8 in the FNUZ encoding on gfx950 (vllm/platforms/rocm.py:6)"),
        ("gfx942", "True", "gfx11", "writes FP8 in the OCP encoding on gfx942"),
        ("gfx950", "on_gfx942()", "gfx94", "takes no FP8 on gfx950 (vllm/platforms/rocm.py:5)"),
        ("gfx950", "True", "gfx94", None),
        ("gfx950", "somebody_knows()", "gfx94", None),
    ],
)
def test_the_encoding_that_a_version_writes_is_the_cards(
    tmp_path: Path, arch: str, supports: str, fnuz: str, words: str | None
) -> None:
    """A tree of our own in vLLM's shape: no released version is wrong here."""
    registry = 'class AttentionBackendEnum:\n    PLAIN = "vllm.v1.attention.backends.plain.Plain"\n'
    files = {
        "platforms/rocm.py": PLATFORM.format(supports=supports, fnuz=fnuz),
        "v1/attention/backends/registry.py": registry,
        "v1/attention/backends/plain.py": "class Plain(AttentionBackend):\n    pass\n",
    }
    for name, text in files.items():
        (tmp_path / "vllm" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "vllm" / name).write_text(text)
    known = about(arch)
    known = known.model_copy(update={"knobs": known.knobs.model_copy(update={"path": str(tmp_path / "vllm")})})
    asked = Change(lever=Lever.ENGINE_FLAG, key="kv-cache-dtype", after="fp8")
    reason = kv_dtype.problem(asked, known.spec, known)
    assert (words in str(reason)) if words else reason is None


@pytest.mark.parametrize("arch", ["gfx906", "gfx950", "sm_90"])
@pytest.mark.parametrize("model", [DENSE, MIXED])
def test_what_the_reader_proposes_passes(arch: str, model: str) -> None:
    known = about(arch, model, load={"concurrency": 64, "input_tokens": (8000, 8000)}, flags={"max-num-seqs": 64})
    proposed = [f.change for f in reader.look(known) if f.change]
    assert [checked(change, known) for change in proposed] == [None] * len(proposed)
    assert bool(proposed) == (arch != "gfx906")
