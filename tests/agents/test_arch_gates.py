"""Gates that take a card for something that it is not: the reader, on a small tree with the known mistakes in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from agents.research.finding import Finding
from agents.research.gates.claims import promises
from agents.research.gates.evaluate import UNKNOWN, Evaluator, Raises, capability_of
from agents.research.gates.files import read_files
from agents.research.gates.left_out import other_spelling
from agents.research.gates.survey import survey
from agents.research.readers import arch_gates
from cards.sheet import CardSheet, Number
from contracts import Card
from tests.agents.examples import CPU, KNOBS, dossier

ROCM = '''
"""A platform. "gfx906" in a docstring is no gate."""
import re

def _ask_the_driver():
    return amdsmi_info().get("target_graphics_version", "")

_GCN_ARCH = _ask_the_driver()
_ON_CDNA = any(a in _GCN_ARCH for a in ["gfx9", "gfx1250"])
_ON_GFX9 = any(a in _GCN_ARCH for a in ["gfx90a", "gfx942", "gfx950"])
_ON_GFX1X = "gfx11" in _GCN_ARCH

def on_cdna() -> bool:
    return _ON_CDNA

def on_gfx9() -> bool:
    return _ON_GFX9

def on_gfx942() -> bool:
    return "gfx942" in _GCN_ARCH

def on_gfx1x() -> bool:
    return _ON_GFX1X and not _ON_CDNA

def get_cdna_version() -> int:
    if on_gfx942():
        return 3
    return 0

def capability_from_arch(arch: str):
    found = re.match(r"gfx(\\d+)", arch)
    if not found:
        return None
    digits = found.group(1)
    if len(digits) == 4:
        major, minor = int(digits[:2]), int(digits[2])
    else:
        major, minor = int(digits[0]), int(digits[1])
    if major > 12:
        raise ValueError(arch)
    return major, minor

def use_paged_kernel(head: int) -> bool:
    if on_cdna():
        return head in (64, 128)
    return False

class Platform:
    @classmethod
    def supports_fp8(cls) -> bool:
        return on_cdna()

    @classmethod
    def supports_mx(cls) -> bool:
        return "gfx95" in _GCN_ARCH

    @classmethod
    def use_custom_allreduce(cls) -> bool:
        return any(g in _GCN_ARCH for g in ["gfx94", "gfx95"])

    @classmethod
    def check_dtype(cls, dtype):
        if dtype == torch.bfloat16:
            if not cls.has_device_capability(80):
                raise ValueError("no")
'''
KERNELS = """
def schemes(platform):
    found = []
    if platform.supports_fp8():
        found.append("fp8")
    if platform.is_cuda() and platform.supports_fp8():  # never on ROCm: no use
        found.append("other")
    return found

def scaled(platform):
    if platform.is_rocm():
        return own_answer()
    return platform.supports_fp8()  # never reached on ROCm

def cache_dtype_fits(platform, name):
    if name.startswith("fp8"):
        return platform.has_device_capability(89)
    if platform.is_cuda():
        return name == "fp8x" and platform.has_device_capability(89)
    return True

def attention(platform, head):
    return use_paged_kernel(head)

def skinny():
    return on_gfx9() or on_gfx1x()
"""
OPS = """
def is_aiter_found_and_supported() -> bool:
    if current_platform.is_rocm() and FOUND:
        return get_cdna_version() > 2
    return False

TILES = {"gfx942": 128}
"""


def tree(folder: Path, **files: str) -> str:
    package = folder / "vllm"
    for name, text in ({"platforms/rocm.py": ROCM, "kernels.py": KERNELS, "ops.py": OPS} | files).items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(package)


def sheet(arch: str, **fields: Any) -> CardSheet:
    def said(value: float) -> Number:
        return Number(value=value, source="an example")

    base: dict[str, Any] = {
        "arch": arch,
        "name": "a card",
        "kind": "amd",
        "wavefront": 64,
        "compute_units": said(60),
        "memory_gib": said(32),
        "bandwidth_gb_s": said(1024),
        "tflops": {"fp16": said(26.5)},
        "lds_bytes": said(65536),
        "vgprs": said(256),
    }
    return CardSheet(**(base | fields))


GFX906 = sheet("gfx906", native=("dot2", "int8_dot4"), absent=("mfma", "fp8", "bf16_matrix", "mx"))
GFX950 = sheet("gfx950", native=("mfma", "fp8", "mx"), lds_bytes=Number(value=163840, source="an example"))


def look(vllm: str, card: CardSheet = GFX906, aiter: str = "") -> list[Finding]:
    return arch_gates.look(
        dossier(knobs=KNOBS.model_copy(update={"path": vllm}), card=card.card(), sheet=card, aiter=aiter)
    )


def places(finding: Finding) -> list[str]:
    return [e.source for e in finding.evidence]


# --- the known mistakes ---


def test_a_gfx9_card_without_matrix_cores_is_taken_for_cdna(tmp_path: Path) -> None:
    found = look(tree(tmp_path))[0]
    assert found.kind == "trap"
    assert found.title == (
        "_ON_CDNA, on_cdna, supports_fp8 say yes for gfx906, which has no fp8 and no mfma; 2 places rely on it"
    )
    assert places(found) == [
        "vllm/platforms/rocm.py:9",  # the cause
        "vllm/platforms/rocm.py:13",
        "vllm/platforms/rocm.py:50",  # what follows from it
        "configs/cards/gfx906.yaml",
        "vllm/kernels.py:4",  # where it is asked, and matters on ROCm
        "vllm/platforms/rocm.py:44",
        "vllm/kernels.py:23",  # who calls what asks
    ]
    assert '-_ON_CDNA = any(a in _GCN_ARCH for a in ["gfx9", "gfx1250"])' in found.fix
    assert '+_ON_CDNA = any(a in _GCN_ARCH for a in ["gfx90a", "gfx942", "gfx950", "gfx1250"])' in found.fix


def test_hip_capability_passes_questions_meant_for_nvidia(tmp_path: Path) -> None:
    found = look(tree(tmp_path))[1]
    assert found.kind == "trap"
    assert "compute capability (9, 0), which passes 2 questions" in found.title
    assert "bf16 and fp8" in found.title
    assert places(found) == ["vllm/kernels.py:17", "vllm/platforms/rocm.py:64", "configs/cards/gfx906.yaml"]
    assert found.evidence[0].detail == (
        "in cache_dtype_fits: platform.has_device_capability(89) under: name.startswith('fp8')"
    )


def test_a_name_in_another_spelling_ends_the_start(tmp_path: Path) -> None:
    found = look(tree(tmp_path))[2]
    assert found.kind == "trap"
    assert "spells the card gfx9006" in found.title
    assert places(found)[:3] == [f"vllm/platforms/rocm.py:{n}" for n in (6, 30, 40)]
    mended = ROCM.replace("_GCN_ARCH = _ask", 'FIX = {"gfx9006": "gfx906"}\n_GCN_ARCH = _ask')
    assert not any("spells" in f.title for f in look(tree(tmp_path, **{"platforms/rocm.py": mended})))


def test_what_leaves_the_card_out_is_a_fact(tmp_path: Path) -> None:
    family, aiter, collectives = look(tree(tmp_path))[3:]
    assert family.title == "_ON_GFX9, on_gfx9 says no for gfx906, against its name; 1 place relies on it"
    assert "vllm/kernels.py:26" in places(family)
    assert aiter.title.startswith("vllm uses no AITER kernel on gfx906: is_aiter_found_and_supported says no")
    assert places(aiter) == ["vllm/ops.py:2"]
    assert collectives.title.startswith("1 gates keep vllm's own all-reduce from gfx906")
    assert {f.kind for f in (family, aiter, collectives)} == {"fact"}


def test_a_checkouts_own_build_list_is_evidence(tmp_path: Path) -> None:
    vllm = tree(tmp_path)
    (tmp_path / "CMakeLists.txt").write_text('# build\nset(HIP_SUPPORTED_ARCHS "gfx906;gfx90a")\n')
    assert places(look(vllm)[-1])[-1] == "CMakeLists.txt:2"


def test_on_the_card_that_the_code_is_for_there_is_nothing_to_say(tmp_path: Path) -> None:
    ops = OPS.replace("> 2", ">= 0")
    assert look(tree(tmp_path, **{"ops.py": ops}), GFX950) == []


def test_a_no_for_a_unit_that_the_card_has(tmp_path: Path) -> None:
    older = ROCM.replace('"gfx95" in _GCN_ARCH', '_GCN_ARCH == "gfx1250"')
    found = next(f for f in look(tree(tmp_path, **{"platforms/rocm.py": older}), GFX950) if f.kind == "trap")
    assert found.title == "supports_mx says no for gfx950, which has mx; 0 places rely on it"
    assert found.fix == "add gfx950 to Platform.supports_mx (vllm/platforms/rocm.py:54)"


def test_sizes_by_arch_are_held_against_the_sheet(tmp_path: Path) -> None:
    aiter = tmp_path / "aiter"
    aiter.mkdir()
    (aiter / "ops.py").write_text('def room(arch):\n    LDS = {"gfx95": 128 * 1024, "gfx94": 64 * 1024}\n')
    (found,) = look("", GFX950, str(aiter))
    assert found.title == "aiter counts 131072 bytes of LDS for gfx950 in 1 place; the card has 163840"
    assert found.kind == "fact"
    assert look("", sheet("gfx942"), str(aiter)) == []


def test_a_project_that_does_not_know_the_card(tmp_path: Path) -> None:
    aiter = tmp_path / "aiter"
    aiter.mkdir()
    archs = ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")
    (aiter / "chip.py").write_text(f"GFX_MAP = {dict(enumerate(archs))}\nVGPRS = {{'gfx9': 512}}\n")
    (found,) = look("", GFX906, str(aiter))
    assert found.title == "aiter does not know gfx906: 1 of its lists of archs lack it"
    assert places(found) == ["aiter/chip.py:1"]


# --- what cannot be read ---


def test_broken_and_odd_files_cost_a_line_each(tmp_path: Path) -> None:
    vllm = tree(tmp_path, **{"broken.py": 'X = "gfx9"\ndef f_arch(:\n    return "gfx9" in arch\n'})
    (Path(vllm) / "loop").symlink_to(vllm)
    (Path(vllm) / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (Path(vllm) / "long.py").write_bytes(b"#" * (2 * 1024 * 1024 + 1))
    found = look(vllm)[-1]
    assert found.title == "2 parts of vllm could not be read for questions about the card"
    assert sorted(places(found)) == ["vllm/broken.py:2", "vllm/long.py"]
    assert len(look(vllm)) == 7  # the rest is found as ever


def test_an_expression_nested_a_thousand_deep_ends_nothing(tmp_path: Path) -> None:
    deep = "x" + " + x" * 1500
    ifs = "".join(f"    if a{n}:\n        return {n}\n" for n in range(1200))
    text = f'def supports_fp8_too():\n{ifs}    return on_cdna() or {deep}\nON_LONG = {deep} or "gfx9" in arch\n'
    assert look(tree(tmp_path, **{"deep.py": text}))[0].title.startswith("_ON_CDNA, on_cdna, supports_fp8 say yes")


def test_a_checkouts_kernel_benchmarks_are_read_too(tmp_path: Path) -> None:
    vllm = tree(tmp_path)
    (tmp_path / "CMakeLists.txt").write_text("")
    kernels = tmp_path / "benchmarks" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "tune.py").write_text("def space():\n    return NONKDIM if on_cdna() else []\n")
    assert "benchmarks/kernels/tune.py:2" in places(look(vllm)[0])


def test_without_a_sheet_or_an_amd_card_it_says_nothing(tmp_path: Path) -> None:
    vllm = tree(tmp_path)
    known = KNOBS.model_copy(update={"path": vllm})
    assert arch_gates.look(dossier(knobs=known, card=GFX906.card())) == []
    assert arch_gates.look(dossier(knobs=known, card=CPU, sheet=GFX906)) == []
    other: Card = GFX906.card().model_copy(update={"arch": "sm_90", "kind": "nvidia"})
    assert arch_gates.look(dossier(knobs=known, card=other, sheet=GFX906)) == []
    assert look("/nowhere") == []


# --- the evaluator ---


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ('"gfx9" in _GCN_ARCH', True),
        ('any(a in gcn_arch for a in ["gfx90a", "gfx942"])', False),
        ('get_gfx() in ("gfx906", "gfx1030")', True),
        ('str(props.gcnArchName).split(":")[0].startswith(("gfx94", "gfx90"))', True),
        ("torch.cuda.get_device_capability(0)[0] == 9", True),
        ("current_platform.has_device_capability(90)", True),
        ("capability.to_int() >= 94", False),
        ("(9, 0) <= (cap.major, cap.minor) < (13, 0)", UNKNOWN),  # `cap` is nobody's name for it here
        ("envs.X and on_nothing()", UNKNOWN),
        ('envs.X and "gfx94" in arch', False),
        ('envs.X or "gfx90" in arch', True),
        ("not is_rocm()", False),
        ('{"gfx906": 64, "gfx942": 32}.get(arch, 0)', 64),
        ('{"gfx942": 32}.get(arch, 0)', 0),
        ('128 if arch.startswith("gfx9") else 64', 128),
        ("2 ** 10 ** 10", UNKNOWN),
        ('re.match(r"(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!")', UNKNOWN),
        ('__import__("os").getcwd()', UNKNOWN),
    ],
)
def test_the_evaluator_answers_for_an_arch(expression: str, answer: Any) -> None:
    said = Evaluator("gfx906").value(ast.parse(expression, mode="eval").body)
    assert said is answer if answer is UNKNOWN else said == answer


def test_functions_answer_raise_or_stay_unknown(tmp_path: Path) -> None:
    module = survey(read_files(Path(tree(tmp_path))), "gfx906").files.module("vllm/platforms/rocm.py")
    module.parse(re.compile("def capability_from_arch"))
    parse = module.functions["capability_from_arch"][0].node
    assert Evaluator("gfx906").function(parse) == (9, 0)
    assert Evaluator("gfx1201").function(parse) == (12, 0)
    assert Evaluator("gfx9006").function(parse) == Raises(40)
    assert Evaluator("gfx906").function(module.functions["use_paged_kernel"][0].node) is UNKNOWN


@pytest.mark.parametrize(
    ("arch", "pair"),
    [("gfx906", (9, 0)), ("gfx90a", (9, 0)), ("gfx950", (9, 5)), ("gfx1201", (12, 0)), ("sm_9", None)],
)
def test_capability_as_hip_reports_it(arch: str, pair: tuple[int, int] | None) -> None:
    assert capability_of(arch) == pair


def test_only_archs_with_a_minor_version_of_zero_have_another_spelling() -> None:
    assert [other_spelling(a) for a in ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950")] == [
        "gfx9006",
        "gfx9008",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("on_cdna", {"mfma"}),
        ("_ON_MI3XX", {"mfma"}),
        ("supports_fp8", {"fp8"}),
        ("FP8_ARCHS", {"fp8"}),
        ("is_fp8_fnuz", set()),  # which of two formats
        ("fp8_dtype", set()),
        ("is_navi", set()),
    ],
)
def test_what_a_name_promises(name: str, units: set[str]) -> None:
    assert promises(name) == units
