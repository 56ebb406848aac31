"""What is wrong with this machine's cards, in words, each with its fix. Pure over the file tree: nothing is opened on a
device, so a card that nobody may use costs nothing to look at."""

from __future__ import annotations

from pathlib import Path

HERE = Path("/")


def card_problems(root: Path = HERE, dev_root: Path = HERE / "dev") -> tuple[tuple[str, str], ...]:
    """(what is wrong, how to mend it) for each problem, most basic first; () where nothing is wrong. `root` holds sys/
    and proc/, `dev_root` is the folder of kfd and dri/."""
    return ()
