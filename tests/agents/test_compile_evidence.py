"""Kernels of our own text, compiled for cards that are not here; and what can be said without compiling."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from agents.research.compile import gemm_rows
from agents.research.compile.amdgcn import AssemblyError, KernelEvidence, parse_assembly
from agents.research.compile.evidence import Job, Toolchain, find_toolchain, run_jobs
from agents.research.compile.extract import extract
from agents.research.compile.modules import Sources
from agents.research.model_shape import model_shape
from agents.research.readers import compile_evidence
from cards.sheet import read_sheet
from tests.agents.examples import CPU, GFX950, KNOBS, dossier, spec
from tests.agents.triton_python import toolchain

ASSEMBLY = """
example:
	v_mfma_f32_16x16x32_bf16 v[0:3], v[8:11], v[12:15], v[0:3]
	v_mfma_f32_16x16x32_bf16 v[4:7], v[8:11], v[16:19], v[4:7]
	v_dot2_f32_f16 v1, v2, v3, v1
	s_endpgm
; codeLenInByte = 7920
; Occupancy: 1
	.amdgpu_metadata
amdhsa.kernels:
  - .agpr_count:     128
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 204
    .sgpr_count:     34
    .sgpr_spill_count: 0
    .vgpr_count:     256
    .vgpr_spill_count: 77
    .wavefront_size: 64
"""


def test_what_the_assembly_says() -> None:
    seen = parse_assembly(ASSEMBLY, "gfx950", warps=8, lds_bytes=135_104)
    assert seen == KernelEvidence(
        arch="gfx950",
        warps=8,
        vgprs=256,
        agprs=128,
        sgprs=34,
        vgpr_spills=77,
        sgpr_spills=0,
        scratch_bytes=204,
        lds_bytes=135_104,
        wavefront=64,
        code_bytes=7920,
        mfma=2,
        dot=1,
    )
    assert seen.fits
    assert seen.waves == 2  # not the 1 that the compiler prints, which waves_per_eu clamps


def test_text_without_a_kernel_is_said_to_be_that() -> None:
    with pytest.raises(AssemblyError, match="no .vgpr_count"):
        parse_assembly("; nothing here", "gfx950", warps=4, lds_bytes=0)


@pytest.mark.parametrize(
    ("arch", "vgprs", "sgprs", "lds", "waves"),
    [
        ("gfx906", 24, 32, 0, 10),  # 256 // 24
        ("gfx906", 24, 102, 0, 7),  # more than 100 SGPRs
        ("gfx906", 82, 32, 0, 3),  # 84 after rounding to 4
        ("gfx906", 256, 32, 0, 1),
        ("gfx906", 24, 32, 32 << 10, 2),  # two workgroups of 4 waves on 4 SIMDs
        ("gfx90a", 24, 32, 0, 8),
        ("gfx942", 134, 32, 0, 3),  # 136 after rounding to 8
        ("gfx942", 512, 32, 0, 1),
        ("gfx942", 64, 32, 65 << 10, 0),  # does not fit: cannot run
        ("gfx950", 64, 32, 65 << 10, 2),
        ("gfx950", 64, 32, 161 << 10, 0),
    ],
)
def test_waves_a_simd(arch: str, vgprs: int, sgprs: int, lds: int, waves: int) -> None:
    text = ASSEMBLY.replace("256", str(vgprs)).replace("34", str(sgprs))
    assert parse_assembly(text, arch, warps=4, lds_bytes=lds).waves == waves


# --- taking a kernel out of its tree ------------------------------------------------------------------------------

KERNEL = '''
import torch
import triton
import triton.language as tl

from ..utils.grid import swizzle
from aiter.ops.triton.utils.names import make_repr

WIDTH = tl.constexpr(4)
LIMIT = torch.finfo(torch.float32).max
_repr = make_repr("_gemm_a16_w16_kernel")


@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_SIZE_K"] == 0})
@triton.jit(repr=_repr, do_not_specialize=["M"])
def _gemm_a16_w16_kernel(
    a_ptr: torch.Tensor, b_ptr, c_ptr, M, N, K, stride_am, stride_bn, stride_cm,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr, NUM_KSPLIT: tl.constexpr, SPLITK_BLOCK_SIZE: tl.constexpr,
    EVEN_K: tl.constexpr, cache_modifier: tl.constexpr,
):
    """A docstring."""
    pid_m, pid_n = swizzle(tl.program_id(0), tl.cdiv(N, BLOCK_SIZE_N))
    m = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    n = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    k = tl.arange(0, BLOCK_SIZE_K)
    acc = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for i in range(tl.cdiv(K, BLOCK_SIZE_K)):
        more = k + i * BLOCK_SIZE_K
        a = tl.load(a_ptr + m[:, None] * stride_am + more[None, :])
        b = tl.load(b_ptr + more[:, None] + n[None, :] * stride_bn, cache_modifier=cache_modifier)
        acc += tl.dot(a, b)
    tl.store(c_ptr + m[:, None] * stride_cm + n[None, :], acc.to(c_ptr.type.element_ty))


@triton.jit
def uses_a_limit(x_ptr):
    tl.store(x_ptr, LIMIT)
'''
SMALL = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1, "num_warps": 4}
LARGE = {**SMALL, "BLOCK_SIZE_M": 32, "BLOCK_SIZE_K": 512, "num_stages": 4}


@pytest.fixture
def aiter(tmp_path: Path) -> Path:
    files = {
        "ops/triton/_triton_kernels/gemm_a16w16.py": KERNEL,
        "ops/triton/utils/grid.py": (
            "import triton\n\n\n@triton.jit\ndef swizzle(pid, n):\n    return pid // n, pid % n\n"
        ),
        "ops/triton/utils/_triton/arch_info.py": 'NAMES = {"gfx950": "BIGCARD"}\n',
        "ops/triton/configs/gemm/BIGCARD-GEMM-A16W16.json": json.dumps({"M_LEQ_64": SMALL, "M_LEQ_256": LARGE}),
    }
    for name, text in files.items():
        path = tmp_path / "aiter" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "aiter"


def test_a_kernel_is_taken_out_with_what_it_calls(aiter: Path) -> None:
    kernel = gemm_rows.find_kernel(Sources(aiter))
    assert kernel is not None
    assert kernel.problems == []
    assert kernel.where == "aiter/ops/triton/_triton_kernels/gemm_a16w16.py:16"
    assert kernel.heuristics == {"EVEN_K": "lambda args: args['K'] % args['BLOCK_SIZE_K'] == 0"}
    assert "def swizzle(pid, n):" in kernel.text
    assert "@triton.jit(do_not_specialize=['M'])\ndef _gemm_a16_w16_kernel(a_ptr, b_ptr" in kernel.text
    assert "torch" not in kernel.text and "make_repr" not in kernel.text


def test_what_cannot_be_taken_out_is_named(aiter: Path) -> None:
    sources = Sources(aiter)
    module = sources.module(aiter / "ops/triton/_triton_kernels/gemm_a16w16.py")
    assert module is not None
    kernel = extract(sources, module, "uses_a_limit")
    assert kernel.text == ""
    assert kernel.problems == [
        "uses_a_limit uses LIMIT, which aiter/ops/triton/_triton_kernels/gemm_a16w16.py:10 computes"
    ]


def test_the_rows_that_tokens_fall_on() -> None:
    table = {"M_LEQ_16": {}, "M_LEQ_64": {}, "M_GEQ_4096": {}, "any": {}}
    rows = gemm_rows.reached("t.json", table, n=1, k=1, most_tokens=8192)
    assert [(row.key, row.m) for row in rows] == [
        ("M_LEQ_16", 16),
        ("M_LEQ_64", 64),
        ("M_GEQ_4096", 8192),
        ("any", 4095),
    ]
    assert [row.key for row in gemm_rows.reached("t.json", table, n=1, k=1, most_tokens=16)] == ["M_LEQ_16"]


def test_a_table_for_the_very_shape_goes_before_the_default(aiter: Path) -> None:
    folder = aiter / "ops/triton/configs/gemm"
    (folder / "BIGCARD-GEMM-A16W16-N=8-K=4.json").write_text(json.dumps({"any": SMALL}))
    (folder / "BIGCARD-GEMM-A16W16-N=8-K=8.json").write_text("{ broken")
    sources = Sources(aiter)
    assert gemm_rows.table_for(sources, "gfx950", 8, 4) == (
        "aiter/ops/triton/configs/gemm/BIGCARD-GEMM-A16W16-N=8-K=4.json",
        {"any": SMALL},
    )
    found = gemm_rows.table_for(sources, "gfx950", 4, 4)
    assert found is not None and found[0].endswith("BIGCARD-GEMM-A16W16.json")
    assert gemm_rows.table_for(sources, "gfx906", 8, 4) is None
    assert gemm_rows.table_for(sources, "gfx950", 8, 8) is None
    assert sources.broken[0].startswith("aiter/ops/triton/configs/gemm/BIGCARD-GEMM-A16W16-N=8-K=8.json cannot be read")


def test_the_shapes_for_which_vllm_takes_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "vllm/model_executor/layers/utils.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "def use_aiter_triton_gemm(n, m, k, dtype):\n"
        "    if n > 2048 and m > 512:\n        return False\n"
        "    return (m == 640 and k == 320) or (m == 64 and k == 32)\n"
    )
    where = "vllm/model_executor/layers/utils.py:1"
    assert gemm_rows.vllm_routes(Sources(tmp_path / "vllm")) == (where, {(640, 320), (64, 32)})
    assert gemm_rows.vllm_routes(Sources(tmp_path)) is None


# --- the reader ---------------------------------------------------------------------------------------------------

MODEL = model_shape(
    {
        "hidden_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "intermediate_size": 1024,
        "vocab_size": 4096,
    }
)


def test_without_an_interpreter_with_triton_nothing_is_said_and_the_reason_is_told(aiter: Path) -> None:
    sheet = read_sheet("gfx950")
    asked = dossier(card=GFX950, sheet=sheet, aiter=str(aiter), model=MODEL)
    assert compile_evidence.look(asked) == []
    assert compile_evidence.dropped(asked) == [
        "compile_evidence: compiled 0 kernels for gfx950: /engine/python is no interpreter with Triton"
    ]
    assert compile_evidence.dropped(dossier(card=GFX950, sheet=sheet, aiter=str(aiter))) == [
        "compile_evidence: compiled 0 kernels for gfx950: the model's shapes are not known (--model)"
    ]
    (line,) = compile_evidence.dropped(dossier(card=GFX950, sheet=sheet))
    assert line.endswith("compiled 0 kernels for gfx950: no AITER tree was given (--aiter)")
    assert compile_evidence.dropped(dossier(card=CPU, aiter=str(aiter))) == []
    assert compile_evidence.dropped(dossier(card=GFX950)) == []  # a night's


def test_a_file_that_is_no_interpreter_is_no_toolchain(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 3\n")
    assert find_toolchain(str(fake)) is None
    fake.chmod(0o755)
    assert find_toolchain(str(fake)) is None
    assert find_toolchain("python3") is None  # a name, not a file


@pytest.mark.engine_python
def test_a_row_that_needs_too_much_lds_is_a_trap_with_a_row_that_fits(aiter: Path, tmp_path: Path) -> None:
    asked = dossier(
        spec=spec(python=toolchain().python, flags={"max-num-batched-tokens": 256}),
        knobs=KNOBS,
        card=GFX950,
        aiter=str(aiter),
        model=MODEL,
    )
    trap, fine = compile_evidence.look(asked, cache=tmp_path / "cache")
    assert trap.kind == "trap"
    assert "row M_LEQ_256 needs" in trap.title and "gfx950 has 163,840: the kernel cannot be launched" in trap.title
    assert trap.evidence[0].source == "aiter/ops/triton/configs/gemm/BIGCARD-GEMM-A16W16.json#M_LEQ_256"
    assert '"BLOCK_SIZE_K": 256' in trap.fix and "This fits: LDS" in trap.fix
    assert fine.kind == "fact" and fine.title.startswith("1 row of the A16W16 GEMM table fits gfx950 without spills")
    assert "MFMA" in fine.evidence[0].detail
    assert compile_evidence.look(asked, cache=tmp_path / "cache") == [trap, fine]  # remembered
    asked = asked.model_copy(update={"sheet": read_sheet("gfx950")})
    (line,) = compile_evidence.dropped(asked)
    assert line.startswith("compile_evidence: compiled 2 rows of the A16W16 GEMM table for gfx950")
    other = asked.model_copy(update={"card": read_sheet("gfx906").card()})
    (line,) = compile_evidence.dropped(other)
    assert line.endswith("for gfx906: this AITER has no table GEMM-A16W16 for gfx906 that this model reaches")


@pytest.mark.engine_python
def test_a_row_that_vllm_does_not_reach_says_so_in_its_title(aiter: Path, tmp_path: Path) -> None:
    tree = tmp_path / "vllm"
    (tree / "model_executor/layers").mkdir(parents=True)
    (tree / "model_executor/layers/utils.py").write_text(
        "def use_aiter_triton_gemm(n, m, k, dtype):\n    return (m == 5120 and k == 2880) or (m == 8 and k == 9)\n"
    )
    flags: dict[str, JsonValue] = {"max-num-batched-tokens": 256}
    asked = dossier(
        spec=spec(python=toolchain().python, flags=flags),
        knobs=KNOBS.model_copy(update={"path": str(tree)}),
        card=GFX950,
        aiter=str(aiter),
        model=MODEL,
    )
    trap, _ = compile_evidence.look(asked, cache=tmp_path / "cache")
    assert trap.title.endswith("; only other callers of AITER's gemm_a16w16 reach this row, no linear layer of vLLM")


# --- compiling ----------------------------------------------------------------------------------------------------

SCALE = """
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2, mask=i < n)
"""


def _job(**fields: object) -> Job:
    pointer = {"pointer": "float16"}
    launch = {"x_ptr": pointer, "y_ptr": pointer, "n": 128, "BLOCK": 256}
    base = {"kind": "compile", "source": SCALE, "kernel": "scale", "arch": "gfx950", "launches": (launch,)}
    return Job.model_validate({**base, **fields})


@pytest.mark.engine_python
def test_one_kernel_for_four_cards_and_every_way_to_fail(tmp_path: Path) -> None:
    tools = toolchain()
    jobs = [
        *(_job(arch=arch) for arch in ("gfx906", "gfx90a", "gfx942", "gfx950")),
        _job(source=SCALE.replace("* 2", "* undefined")),
        _job(source=SCALE + "\nimport os\nos.abort()\n"),
        _job(source=SCALE + "\nwhile True:\n    pass\n"),
        _job(heuristics={"BLOCK": "lambda args: args['missing']"}, launches=({"x_ptr": None, "y_ptr": None, "n": 1},)),
    ]
    results = run_jobs(tools, jobs, tmp_path, each_s=2)
    assert [r.outcome for r in results] == ["done"] * 4 + ["refused", "crash", "hang", "refused"]
    for result in results[:4]:
        assert result.kernel is not None
        assert (result.kernel.lds_bytes, result.kernel.vgpr_spills, result.kernel.mfma) == (0, 0, 0)
        assert result.kernel.fits and result.kernel.waves == (10 if result.kernel.arch == "gfx906" else 8)
    assert "undefined" in results[4].reason
    assert results[5].reason == "the compiler ended by SIGABRT"
    assert results[7].reason == "ValueError: the heuristic of BLOCK cannot be computed: KeyError('missing')"
    # What the compiler would say again is remembered: an interpreter that is gone gives the same answers.
    gone = Toolchain(python=str(tmp_path / "gone"), triton=tools.triton)
    again = run_jobs(gone, jobs, tmp_path)
    assert again[:5] == results[:5] and again[7] == results[7]
    assert [r.outcome for r in again[5:7]] == ["crash", "crash"] and "cannot be run" in again[5].reason
