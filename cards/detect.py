"""What cards does this machine have? Read from the kernel and NVML; HIP and CUDA are never initialised."""

from __future__ import annotations

from pathlib import Path

from cards import amd, cpu, nvidia
from contracts import Card

HERE = Path("/")


def detect(sys_root: Path = HERE) -> tuple[Card, ...]:
    """Every card, AMD first, then NVIDIA, the CPU last. Another root is a recorded /sys and /proc (NVML, which can
    only speak of this machine, is then not asked)."""
    nvidia_cards = nvidia.detect_nvidia() if sys_root == HERE else ()
    return (*amd.detect_amd(sys_root), *nvidia_cards, cpu.detect_cpu(sys_root))


def free_memory(card: Card, sys_root: Path = HERE) -> int | None:
    """Bytes of the card's memory that nobody holds now; None where the driver does not say."""
    if card.kind == "amd":
        return amd.free_vram(card, sys_root)
    if card.kind == "nvidia":
        return nvidia.free_vram(card)
    return cpu.free_memory(sys_root)
