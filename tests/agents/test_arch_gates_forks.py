"""The gates of a fork that was made for this very card: small trees of the shapes that such forks have."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.research.gates.evaluate import UNKNOWN
from agents.research.gates.files import read_files
from agents.research.gates.survey import Survey, survey
from tests.agents.test_arch_gates import GFX906, look, tree

ROCM = """
_GCN_ARCH = _ask_the_driver()
_ON_GFX9 = any(a in _GCN_ARCH for a in ["gfx90a", "gfx942", "gfx950"])
_ON_GFX906 = "gfx906" in _GCN_ARCH

def on_gfx9() -> bool:
    return _ON_GFX9

def on_gfx906() -> bool:
    return _ON_GFX906

class Platform:
    @classmethod
    def supports_fp8(cls) -> bool:
        return on_gfx9() or on_gfx906()
"""
OPS = """
def is_aiter_found_and_supported() -> bool:
    from vllm.platforms.rocm import on_gfx906, on_gfx9
    return on_gfx9() or on_gfx906()
"""
USES = """
def newer():
    return "gfx942" in gcn_arch

def tile(platform):
    if platform.supports_fp8():
        return 16 if on_gfx906() else 32
"""
IN_A_BRANCH = """
if current_platform.is_rocm():
    from vllm.platforms.rocm import on_gfx906
else:

    def on_gfx906() -> bool:
        return False
"""
BY_A_FLAG = """
is_hip_ = current_platform.is_rocm()
if is_hip_:
    from vllm.platforms.rocm import on_gfx906
else:

    def on_gfx906() -> bool:
        return False
"""
WHERE_IT_FAILS = """
try:
    from vllm.platforms.rocm import on_gfx906
except ImportError:

    def on_gfx906() -> bool:
        return False
"""
BEFORE_IT = """
def on_gfx906() -> bool:
    return False

if current_platform.is_rocm():
    from vllm.platforms.rocm import on_gfx906
"""
ELSEWHERE = """
if current_platform.is_cuda():

    def on_gfx906() -> bool:
        return False
"""
AS_A_FLAG = """
on_gfx906 = False
if current_platform.is_rocm():
    on_gfx906 = "gfx906" in gcn_arch
"""


def fork(folder: Path, **files: str) -> str:
    return tree(folder, **{"platforms/rocm.py": ROCM, "ops.py": OPS, "kernels.py": USES} | files)


def seen(folder: Path, **files: str) -> Survey:
    return survey(read_files(Path(fork(folder, **files)), "gfx906"), "gfx906")


@pytest.mark.parametrize("fallback", [IN_A_BRANCH, BY_A_FLAG, WHERE_IT_FAILS, BEFORE_IT, ELSEWHERE, AS_A_FLAG])
def test_a_stand_in_for_other_platforms_is_not_the_cards_answer(tmp_path: Path, fallback: str) -> None:
    files = {"quantization/awq.py": fallback + USES}
    found = seen(tmp_path, **files)
    assert found.answer("on_gfx906", found.files.module("vllm/quantization/awq.py")) is True
    assert {g.answer for g in found.gates["on_gfx906"]} == {True}
    assert not any("against its name" in f.title and "on_gfx906" in f.title for f in look(fork(tmp_path, **files)))


def test_on_another_platform_the_stand_in_is_what_runs(tmp_path: Path) -> None:
    found = seen(tmp_path, **{"quantization/awq.py": IN_A_BRANCH.replace("is_rocm", "is_xpu") + USES})
    assert found.answer("on_gfx906", found.files.module("vllm/quantization/awq.py")) is False


def test_a_question_nobody_can_answer_leaves_the_name_open(tmp_path: Path) -> None:
    text = IN_A_BRANCH.replace("current_platform.is_rocm()", "HAS_IT") + USES
    found = seen(tmp_path, **{"quantization/awq.py": text})
    assert found.answer("on_gfx906", found.files.module("vllm/quantization/awq.py")) is UNKNOWN


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("X = False\nif current_platform.is_rocm():\n    X = 'gfx9' in gcn_arch\n", True),
        ("X = 'gfx9' in gcn_arch\nif current_platform.is_cuda():\n    X = 'gfx95' in gcn_arch\n", True),
        ("X = False\nif asked():\n    X = 'gfx9' in gcn_arch\n", UNKNOWN),
        ("X = True\nif asked():\n    X = 'gfx9' in gcn_arch\n", UNKNOWN),
        ("if asked():\n    X = 'gfx9' in gcn_arch\nelse:\n    X = 'gfx94' in gcn_arch\n", UNKNOWN),
        ("try:\n    import aiter\n    X = 'gfx9' in gcn_arch\nexcept ImportError:\n    X = False\n", UNKNOWN),
        ("X = 'gfx95' in gcn_arch\nX = 'gfx9' in gcn_arch\n", True),  # the last one counts
    ],
)
def test_a_flag_is_what_the_module_ends_with(tmp_path: Path, text: str, answer: object) -> None:
    found = seen(tmp_path, **{"flags.py": text.replace("X ", "_ON_CDNA ")})
    assert found.answer("_ON_CDNA", found.files.module("vllm/flags.py")) is answer


def test_a_yes_that_names_the_card_is_told_as_meant(tmp_path: Path) -> None:
    found = next(f for f in look(fork(tmp_path)) if "supports_fp8" in f.title)
    assert found.kind == "fact"
    assert found.title == (
        "supports_fp8 says yes for gfx906 by name, though the card has no fp8: this vllm means to do without the unit; "
        "1 place relies on it"
    )
    assert found.fix == ""
    assert found.evidence[0].source == "vllm/platforms/rocm.py:14"


def test_a_fork_that_lets_its_card_in_keeps_no_aiter_out(tmp_path: Path) -> None:
    assert not any("no AITER kernel" in f.title for f in look(fork(tmp_path), GFX906))
