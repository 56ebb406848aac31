"""Which parameters make a kernel compile again, from call sites of our own text."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.research.compile.flow import Flow, Vary
from agents.research.compile.modules import Sources
from agents.research.compile.storms import storms
from agents.research.compile.used_by import Uses, other_models, uses
from agents.research.readers import compile_storms
from contracts import Card
from tests.agents.examples import CPU, GFX950, KNOBS, dossier, spec
from tests.agents.tables_examples import FP8_BLOCK, dense, write
from tests.agents.triton_python import toolchain


@pytest.mark.parametrize(
    ("expression", "vary"),
    [
        ("num_tokens", Vary.EACH),
        ("meta.max_seqlen_q", Vary.EACH),
        ("x.shape[0]", Vary.EACH),
        ("query.size(0) * heads", Vary.EACH),
        ("topk_ids.numel()", Vary.EACH),
        ("cdiv(M, 64)", Vary.EACH),
        ("rows", Vary.EACH),  # rows, width = x.shape
        ("min(rows, 8) if wide else 4", Vary.EACH),
        ("seq_lens.max().item()", Vary.EACH),
        ("next_power_of_2(num_tokens)", Vary.POWERS),
        ("size", Vary.POWERS),  # size = min(x.numel(), 1024), then next_power_of_2(size)
        ("width", Vary.FIXED),
        ("x.shape[1]", Vary.FIXED),
        ("weight.shape[0]", Vary.FIXED),
        ("k_cache.size(0)", Vary.FIXED),
        ("next_power_of_2(head_size)", Vary.FIXED),
        ("num_tokens > 64", Vary.FIXED),
        ("num_tokens % 16", Vary.FIXED),
        ("config['BLOCK_M']", Vary.FIXED),
        ("get_config(num_tokens)['BLOCK_M']", Vary.FIXED),
        ("block", Vary.FIXED),  # block = 16 or 32, by a comparison
        ("dim", Vary.FIXED),  # dim = x.size(0): lies the other way round
        ("max_num_seqs", Vary.FIXED),
        ("max_model_len", Vary.FIXED),
        ("decode_query_len", Vary.FIXED),
        ("num_tokens_per_block", Vary.FIXED),
    ],
)
def test_what_varies_with_the_batch(expression: str, vary: Vary) -> None:
    function = ast.parse(
        "def launch(x, num_tokens, wide):\n"
        "    rows, width = x.shape\n"
        "    size = min(x.numel(), 1024)\n"
        "    size = next_power_of_2(size)\n"
        "    dim = x.size(0)\n"
        "    block = 16 if num_tokens < 64 else 32\n"
    )
    assert Flow(function).of(ast.parse(expression, mode="eval").body) == vary


@pytest.mark.parametrize(
    ("signature", "expression", "vary"),
    [
        ("causal_conv1d_update(x, max_query_len)", "seqlen", Vary.FIXED),  # batch, dim, seqlen = x.shape: 1 + drafts
        ("causal_conv1d_update(x, max_query_len)", "width - 1 + (max_query_len - 1)", Vary.FIXED),
        ("causal_conv1d_update(x, max_query_len)", "batch", Vary.EACH),
        ("causal_conv1d_fn(x, max_query_len)", "seqlen", Vary.EACH),
        ("decode_attention(x, max_seqlen_q)", "max_seqlen_q", Vary.FIXED),
        ("decode_attention(x, max_seqlen_k)", "max_seqlen_k", Vary.EACH),  # the context grows
        ("prefill_attention(x, max_seqlen_q)", "max_seqlen_q", Vary.EACH),
    ],
)
def test_new_tokens_of_a_sequence_do_not_vary_where_it_decodes(signature: str, expression: str, vary: Vary) -> None:
    function = ast.parse(f"def {signature}:\n    batch, dim, seqlen = x.shape\n").body[0]
    assert Flow(function).of(ast.parse(expression, mode="eval").body) == vary


def test_rows_that_are_sequences_of_one_length_say_that_it_decodes() -> None:
    text = "def scores(q, seq_lens, max_query_len):\n    {}\n"
    uniform = text.format("assert q.shape[0] == seq_lens.numel() * max_query_len")
    length = ast.parse("max_query_len", mode="eval").body
    assert Flow(ast.parse(uniform).body[0]).of(length) == Vary.FIXED
    assert Flow(ast.parse(text.format("pass")).body[0]).of(length) == Vary.EACH


KERNELS = """
import triton
import triton.language as tl


@triton.jit
def helper(pid, count, N: tl.constexpr):
    half = count // 2
    if pid < half:
        return pid + count
    return pid % N


@triton.jit
def copy_rows(
    x_ptr, y_ptr, stride,
    rows: tl.constexpr,
    WIDTH: tl.constexpr,
):
    pid = helper(tl.program_id(0), rows * 2, 8)
    i = tl.arange(0, WIDTH)
    mask = (pid < rows) & (i < stride)
    tl.store(y_ptr + pid * stride + i, tl.load(x_ptr + pid * stride + i, mask=mask), mask=mask)


@triton.jit
def zero_rows(y_ptr, rows: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, rows), 0.0)


@triton.heuristics({"GRID": lambda args: triton.cdiv(args["M"], 64), "EVEN": lambda args: args["M"] % 64 == 0})
@triton.jit(do_not_specialize=["M"])
def gemm(y_ptr, M, GRID: tl.constexpr, EVEN: tl.constexpr):
    tl.store(y_ptr + tl.program_id(0) % GRID, 1.0)


@triton.autotune(configs=[], key=["M", "width"])
@triton.jit
def tuned(y_ptr, M, width):
    tl.store(y_ptr, 1.0)


@triton.jit
def blocks(y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), 1.0)


@triton.jit
def steps_bwd(y_ptr, rows: tl.constexpr):
    tl.store(y_ptr, rows)
"""
LAUNCHES = """
import triton

from .kernels import blocks, copy_rows, gemm, steps_bwd, tuned, zero_rows


def run(x, y, config):
    M, width = x.shape
    copy_rows[(M,)](x, y, x.stride(0), rows=M, WIDTH=triton.next_power_of_2(width))
    zero_rows[(1,)](y, M)
    gemm[(M,)](y, M, **config)
    tuned[(M,)](y, M, width)
    blocks[(1,)](y, BLOCK=triton.next_power_of_2(M))
    steps_bwd[(1,)](y, rows=M)
"""


@pytest.fixture
def aiter(tmp_path: Path) -> Path:
    folder = tmp_path / "aiter" / "ops" / "triton"
    folder.mkdir(parents=True)
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "launches.py").write_text(LAUNCHES)
    (folder / "broken.py").write_text("import triton\n\nkernel[grid](\n")
    return tmp_path / "aiter"


def test_one_storm_for_each_parameter_that_follows_the_batch(aiter: Path) -> None:
    found = {(s.kernel, s.parameter): (s.how, s.vary, len(set(s.values))) for s in storms(Sources(aiter))}
    assert found == {
        ("copy_rows", "rows"): ("constexpr", Vary.EACH, 16),
        ("zero_rows", "rows"): ("constexpr", Vary.EACH, 16),
        ("gemm", "GRID"): ("heuristic", Vary.EACH, 7),
        ("tuned", "M"): ("autotune key", Vary.EACH, 16),
        ("blocks", "BLOCK"): ("constexpr", Vary.POWERS, 12),
    }


FIX = """--- a/aiter/ops/triton/kernels.py
+++ b/aiter/ops/triton/kernels.py
@@ -11,10 +11,10 @@
     return pid % N
~
~
-@triton.jit
+@triton.jit(do_not_specialize=["rows"])
 def copy_rows(
     x_ptr, y_ptr, stride,
-    rows: tl.constexpr,
+    rows,
     WIDTH: tl.constexpr,
 ):
     pid = helper(tl.program_id(0), rows * 2, 8)
""".replace("~", " ")  # no line of this file ends with a space


def test_findings_without_triton(aiter: Path) -> None:
    asked = dossier(card=GFX950, aiter=str(aiter))
    copy, zero, tuned, gemm, few = compile_storms.look(asked)
    assert copy.kind == "opportunity"
    assert copy.title == "copy_rows is compiled again for other batches: 16 variants over 16 sizes, by rows"
    assert copy.fix == FIX
    assert copy.evidence[0].source == "aiter/ops/triton/launches.py:9"
    assert copy.evidence[1].detail == (
        "rows over 16 sizes: 16 variants as it is, 3 as a run-time argument, 1 with do_not_specialize"
    )
    assert copy.terms is not None and (copy.terms.speedup, copy.terms.probability) == (16, 0.1)
    assert zero.kind == "trap"
    assert zero.fix == "Needs a person. rows: it is given to tl.arange (aiter/ops/triton/kernels.py:28)"
    assert tuned.fix == "Needs a person. M is part of the autotuner's key: take it out, or round it to a few sizes"
    assert '+@triton.jit(do_not_specialize=["M", "GRID"])' in gemm.fix
    assert few.title == "1 kernel of aiter is compiled again for a few sizes of a batch, such as powers of two"
    assert compile_storms.dropped(asked) == [
        "compile_storms: /engine/python has no Triton, so variants are counted by different values alone"
    ]
    assert compile_storms.dropped(asked.model_copy(update={"spec": spec(python="")})) == [
        "compile_storms: no interpreter with Triton was named (--python), so variants are counted by different values "
        "alone"
    ]
    assert compile_storms.look(dossier(card=CPU, aiter=str(aiter))) == []


# --- whose kernels they are ---

REGISTRY = """
_MODELS = {
    "PlainForCausalLM": ("plain", "PlainForCausalLM"),
    "PagesForCausalLM": (
        "vllm.models.pages",
        "PagesForCausalLM",
    ),
}
"""
HYBRID = {
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
}


def plain(root: Path, architecture: str = "PlainForCausalLM", card: Card = GFX950, **more: Any) -> Uses:
    write(root / "vllm/model_executor/models/registry.py", REGISTRY)
    write(root / "vllm/model_executor/models/plain.py", "from .towers import Tower\n")
    write(root / "vllm/models/pages/__init__.py", "")
    knobs = KNOBS.model_copy(update={"path": str(root / "vllm")})
    found = uses(dossier(knobs=knobs, model=dense(architectures=[architecture], **more), card=card))
    assert found is not None
    return found


def storm(kernel_at: str, kernel: str = "_kernel", call_at: str = "vllm/layers/calls.py:1") -> Any:
    return SimpleNamespace(kernel_at=kernel_at, kernel=kernel, call_at=call_at)


@pytest.mark.parametrize(
    ("kernel_at", "kernel", "why"),
    [
        ("vllm/models/pages/amd/ops/index.py:4", "_rows", "pages"),
        ("vllm/model_executor/models/towers.py:4", "_rows", ""),  # plain.py imports it
        ("vllm/model_executor/layers/lightning_attn.py:13", "_fwd", "lightning attention"),
        ("vllm/model_executor/layers/mamba/ops/causal_conv1d.py:6", "_causal_conv1d_update_kernel", "linear attention"),
        ("vllm/model_executor/layers/mamba/ops/ssd.py:6", "_chunk", "state spaces"),
        ("vllm/layers/vision_tower.py:6", "_rows", "images"),
        ("vllm/layers/activation.py:6", "_rows", ""),
        ("aiter/ops/triton/mla_decode_rope.py:6", "_stage2", "latent attention"),
        ("aiter/ops/triton/activation.py:6", "_act_mul_mxfp4_quant_kernel", "4-bit floats"),
        ("aiter/ops/triton/gemm_a8w8.py:6", "_gemm_a8w8_kernel", "8-bit weights"),
        ("aiter/ops/triton/gemm_a16w16.py:6", "_gemm_a16_w16_kernel", ""),
        ("aiter/ops/triton/moe/sort.py:6", "_sort", "experts"),
    ],
)
def test_what_a_dense_16_bit_model_cannot_run(tmp_path: Path, kernel_at: str, kernel: str, why: str) -> None:
    assert other_models(storm(kernel_at, kernel), plain(tmp_path)) == why


def test_what_a_model_has_stays(tmp_path: Path) -> None:
    conv, chunk = storm("vllm/layers/mamba/ops/causal_conv1d.py:6"), storm("vllm/layers/mamba/ops/ssd.py:6")
    assert [other_models(s, plain(tmp_path, **HYBRID)) for s in (conv, chunk)] == ["", "state spaces"]
    quantised = plain(tmp_path, quantization_config=FP8_BLOCK)
    assert other_models(storm("aiter/gemm_a8w8.py:6"), quantised) == ""
    assert other_models(storm("aiter/gemm_afp4wfp4.py:6"), quantised) == "4-bit floats"
    pages = plain(tmp_path, "PagesForCausalLM")
    assert other_models(storm("vllm/models/pages/amd/index.py:4"), pages) == ""
    unheard = plain(tmp_path, "UnheardForCausalLM")  # not in the registry: nobody knows whose code is its own
    assert other_models(storm("vllm/models/pages/amd/index.py:4"), unheard) == ""


def test_parts_of_attention_are_joined_by_latent_layers_and_by_aiter_s_back_ends(tmp_path: Path) -> None:
    """On gfx906 TRITON_ATTN and ROCM_ATTN serve: neither calls it, so its compiles are nobody's there."""
    merge = storm("vllm/v1/attention/ops/triton_merge_attn_states.py:58", "merge_attn_states_kernel")
    gfx906 = GFX950.model_copy(update={"arch": "gfx906"})
    assert other_models(merge, plain(tmp_path, card=gfx906)).startswith("attention in parts")
    assert other_models(merge, plain(tmp_path)) == ""


def test_a_kernel_of_all_that_is_called_for_others_only(tmp_path: Path) -> None:
    call = "vllm/v1/attention/ops/turboquant_soa/triton_turboquant_unified_attention.py:1247"
    mine = plain(tmp_path)
    assert (
        other_models(storm("vllm/v1/attention/ops/unified.py:7", "reduce_segments", call), mine) == "another KV cache"
    )
    assert other_models(storm("vllm/v1/attention/ops/unified.py:7", "reduce_segments"), mine) == ""


def test_kernels_of_other_models_are_one_fact_unless_they_were_seen(aiter: Path, tmp_path: Path) -> None:
    text = KERNELS.replace("def copy_rows", "def copy_mxfp4_rows")
    (aiter / "ops/triton/kernels.py").write_text(text)
    (aiter / "ops/triton/launches.py").write_text(LAUNCHES.replace("copy_rows", "copy_mxfp4_rows"))
    asked = dossier(card=GFX950, aiter=str(aiter), model=dense())
    *others, fact = compile_storms.look(asked, tmp_path / "cache")
    assert not any("copy_mxfp4_rows" in f.title for f in others)
    assert fact.title == (
        "1 kernels of aiter that are compiled again for other batches are not for Any: 1 for 4-bit floats"
    )
    (tmp_path / "engine.log").write_text(LOG.replace("copy_rows", "copy_mxfp4_rows"))
    seen = asked.model_copy(update={"engine_logs": (str(tmp_path / "engine.log"),)})
    assert any(
        f.kind == "opportunity" and "copy_mxfp4" in f.title for f in compile_storms.look(seen, tmp_path / "cache")
    )


LOG = """INFO 11-29 vllm serving
WARNING 11-29 [jit_monitor.py:140] Triton kernel JIT compilation during inference: copy_rows. This causes a delay
WARNING 11-29 [jit_monitor.py:137] Triton kernel JIT compilation during inference: copy_rows (constexprs={rows=3}). This
WARNING 11-29 [jit_monitor.py:140] TileLang JIT compilation during inference: other_kernel. This causes a delay
"""


def test_an_unchanged_tree_is_not_read_again(aiter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, cache = dossier(knobs=KNOBS, card=GFX950, aiter=str(aiter)), tmp_path / "cache"
    first = compile_storms.look(asked, cache)
    read: list[Path] = []
    monkeypatch.setattr(compile_storms, "storms", lambda sources: read.append(sources.root) or storms(sources))
    assert compile_storms.look(asked, cache) == first and read == []
    kernels = aiter / "ops" / "triton" / "kernels.py"
    kernels.write_text(kernels.read_text().replace("rows: tl.constexpr", "rows"))
    assert compile_storms.look(asked, cache) != first and read == [aiter]


def test_what_the_jit_monitor_saw(aiter: Path, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text(LOG)
    logs = (str(tmp_path / "engine.log"), str(tmp_path / "missing.log"))
    twice, once, copy, *_ = compile_storms.look(dossier(card=GFX950, aiter=str(aiter), engine_logs=logs))
    assert twice.kind == "trap"
    assert twice.title == "copy_rows was compiled 2 times while the engine served, after its warm-up"
    assert [e.source for e in twice.evidence] == ["engine.log:2", "engine.log:3"]
    assert once.title == "other_kernel was compiled once while the engine served, after its warm-up"
    assert copy.terms is not None and copy.terms.probability == 0.5  # the same kernel, now with a cause


def test_a_vendors_own_kernels_are_not_for_the_other_card(aiter: Path) -> None:
    (aiter / "nvidia").mkdir()
    (aiter / "nvidia" / "__init__.py").write_text(KERNELS + LAUNCHES.replace("from .kernels", "from .none"))
    titles = [f.title for f in compile_storms.look(dossier(card=GFX950, aiter=str(aiter)))]
    assert sum("copy_rows" in title for title in titles) == 1


@pytest.mark.engine_python
def test_tritons_own_binder_counts_the_same(aiter: Path, tmp_path: Path) -> None:
    tools = toolchain()
    asked = dossier(spec=spec(python=tools.python), knobs=KNOBS, card=GFX950, aiter=str(aiter))
    copy, *_ = compile_storms.look(asked, cache=tmp_path)
    assert copy.evidence[1].source == f"counted by Triton {tools.triton}'s binder"
    assert copy.evidence[1].detail == (
        "rows over 16 sizes: 16 variants as it is, 3 as a run-time argument, 1 with do_not_specialize"
    )
