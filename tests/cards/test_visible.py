"""Visible-device variables, and how a card is given to an engine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cards.amd import detect_amd
from cards.visible import card_environment, engine_cards, exported_words, left_visible, visible_environment
from contracts import Card
from tests.cards import hosts

ONE = Card(
    arch="gfx906", kind="amd", name="MI50", memory_bytes=1, compute_units=60, source="test",
    pci_address="0000:03:00.0", uuid="GPU-21501edcba987654", index=0,
)  # fmt: skip
TWO = ONE.model_copy(update={"pci_address": "0000:43:00.0", "uuid": "GPU-2150aaaaaaaaaaaa", "index": 1})
H200 = Card(
    arch="sm_90", kind="nvidia", name="H200", memory_bytes=1, compute_units=132, source="NVML device 0",
    pci_address="0000:5d:00.0", uuid="GPU-3f1d9a70-0000-1111-2222-333344445555", index=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("env", "left"),
    [
        ({}, [ONE, TWO]),
        ({"HIP_VISIBLE_DEVICES": "1"}, [TWO]),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, [TWO, ONE]),
        ({"HIP_VISIBLE_DEVICES": ""}, [ONE, TWO]),  # HIP takes an empty list for none given
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, [TWO]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),  # ROCr does not
        ({"ROCR_VISIBLE_DEVICES": "GPU-2150AAAAAAAAAAAA"}, [TWO]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-2150a"}, [TWO]),  # a beginning will do
        ({"ROCR_VISIBLE_DEVICES": "GPU-2150"}, []),  # unless it is two cards'
        ({"ROCR_VISIBLE_DEVICES": "GPU-2150a", "HIP_VISIBLE_DEVICES": "0"}, [TWO]),  # HIP counts what ROCr left
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, []),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "1"}, [ONE]),
        ({"HIP_VISIBLE_DEVICES": "7"}, []),
        ({"HIP_VISIBLE_DEVICES": "1,7,0"}, [TWO]),  # an unknown entry ends the list
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_what_rocr_and_hip_leave(env: dict[str, str], left: list[Card]) -> None:
    assert list(left_visible([ONE, TWO], "rocm", env)) == left


def test_numbers_count_cards_that_are_not_shown(tmp_path: Path) -> None:
    """A card that fell off the bus keeps its number in the runtime."""
    hosts.z100(tmp_path)
    (tmp_path / "sys/bus/pci/devices/0000:04:00.0/config").write_bytes(b"\xff" * 64)
    cards = detect_amd(tmp_path)
    assert [c.pci_address for c in left_visible(cards, "rocm", {"HIP_VISIBLE_DEVICES": "1"})] == ["0000:0a:00.0"]
    assert left_visible(cards, "rocm", {"HIP_VISIBLE_DEVICES": "0"}) == ()


@pytest.mark.parametrize(
    ("value", "left"),
    [("0", [H200]), ("GPU-3f1d9a70", [H200]), (H200.uuid, [H200]), ("", []), ("MIG-3f1d9a70", []), ("1", [])],
)
def test_what_cuda_leaves(value: str, left: list[Card]) -> None:
    assert list(left_visible([H200], "cuda", {"CUDA_VISIBLE_DEVICES": value, "HIP_VISIBLE_DEVICES": "9"})) == left


def test_a_card_is_exported_by_its_uuid() -> None:
    assert visible_environment(TWO) == {
        "ROCR_VISIBLE_DEVICES": "GPU-2150aaaaaaaaaaaa",
        "HIP_VISIBLE_DEVICES": "0",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    assert visible_environment(H200) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": H200.uuid}
    assert visible_environment(ONE.model_copy(update={"kind": "cpu"})) == {}
    assert exported_words(TWO) is None and exported_words(H200) is None


def test_a_card_of_an_old_ledger_is_exported_by_nothing_and_that_is_said() -> None:
    old = Card.model_validate(
        {"arch": "gfx906", "kind": "amd", "name": "MI50", "memory_bytes": 1, "compute_units": 60, "source": "KFD"}
    )
    assert visible_environment(old) == {}
    assert "takes the first card that it sees" in (exported_words(old) or "")


def test_what_is_exported_leaves_just_that_card_however_the_cards_are_numbered() -> None:
    """The runtimes' own rules, applied to what we export: the same card each time the numbers are shuffled."""
    for seed in range(8):
        shuffled = [ONE, TWO]
        random.Random(seed).shuffle(shuffled)
        renumbered = [card.model_copy(update={"index": i}) for i, card in enumerate(shuffled)]
        wanted = next(card for card in renumbered if card.pci_address == TWO.pci_address)
        assert left_visible(renumbered, "rocm", visible_environment(wanted)) == (wanted,)


def test_an_old_vllm_on_cuda_gets_the_number_by_pci_address() -> None:
    number = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}
    assert card_environment(H200, {}, {}, "0.22.0") == number
    assert card_environment(H200, {}, {}, "0.26.0+cu129") == card_environment(H200, {}, {}) == visible_environment(H200)
    assert card_environment(TWO, {}, {}, "0.10.0") == visible_environment(TWO)  # on ROCm it sees numbers anyway


def test_the_engine_s_own_variables_and_an_engine_on_several_cards_are_left_alone() -> None:
    assert card_environment(TWO, {}, {"VLLM_USE_V1": "1"}) == visible_environment(TWO)
    assert card_environment(TWO, {}, {"HIP_VISIBLE_DEVICES": "1"}) == {}
    assert card_environment(TWO, {"tensor-parallel-size": 2}, {}) == {}
    assert engine_cards({"tensor-parallel-size": 2, "pipeline-parallel-size": 2, "max-num-seqs": 8}) == 4
    assert engine_cards({"tensor-parallel-size": 1, "data-parallel-size": None}) == 1
