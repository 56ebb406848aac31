"""Which parameters make a kernel compile again, from call sites of our own text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from agents.research.compile.flow import Flow, Vary
from agents.research.compile.modules import Sources
from agents.research.compile.storms import storms
from agents.research.readers import compile_storms
from tests.agents.examples import CPU, GFX950, KNOBS, dossier, spec
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


@pytest.mark.real_engine
def test_tritons_own_binder_counts_the_same(aiter: Path, tmp_path: Path) -> None:
    tools = toolchain()
    asked = dossier(spec=spec(python=tools.python), knobs=KNOBS, card=GFX950, aiter=str(aiter))
    copy, *_ = compile_storms.look(asked, cache=tmp_path)
    assert copy.evidence[1].source == f"counted by Triton {tools.triton}'s binder"
    assert copy.evidence[1].detail == (
        "rows over 16 sizes: 16 variants as it is, 3 as a run-time argument, 1 with do_not_specialize"
    )
