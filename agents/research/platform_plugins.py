"""Platforms that a vLLM gets from outside its tree: plugins of the entry-point group vllm.platform_plugins, as Hygon's
vllm_hcu is one. Read from the metadata and the source beside vLLM; nothing is imported.

Where one is chosen, vLLM takes it before every platform of its own (platforms/__init__.py, 0.15 to 0.33). Then
platforms/rocm.py of vLLM's tree decides nothing: neither the order of attention back ends nor what a card can do. Such
a plugin may also register back ends, quantisations and other choices that vLLM's own files do not list, and read
variables of its own. Whether it is chosen its function decides at start, which is not known here.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from agents.research.knobs import Knob, PlatformPlugin
from agents.research.regular_file import read_regular
from engine.own_plugins import entry_points

GROUP = "vllm.platform_plugins"
METADATA = ("*.dist-info/entry_points.txt", "*.egg-info/entry_points.txt", "*.egg/EGG-INFO/entry_points.txt")
MOST_BYTES = 2_000_000  # of one file
MOST_FILES = 5000  # Hygon's vllm_hcu has some 700
_VARIABLE = re.compile(rb"""["'](VLLM_[A-Z][A-Z0-9_]*)["']""")


def platform_plugins(site: Path) -> tuple[PlatformPlugin, ...]:
    """Of the folder that holds the package vllm: site-packages, or a tree that was copied out of an image."""
    found: dict[str, PlatformPlugin] = {}
    for pattern in METADATA:
        for file in sorted(site.glob(pattern)):
            for name, target in _points(file):
                module = target.partition(":")[0].strip().partition(".")[0]
                if not module.isidentifier():  # vLLM cannot load it; and "" or "/" would be every file there is
                    continue
                found.setdefault(name, PlatformPlugin(name=name, module=module, version=_version(file)))
    return tuple(found.values())


def variables(site: Path, plugin: PlatformPlugin) -> dict[str, Knob]:
    """Every VLLM_ name that stands as a text of its own in the plugin's source: what it may read. Defaults and types
    are not known."""
    found: dict[str, Knob] = {}
    for path in sorted(islice((site / plugin.module).rglob("*.py"), MOST_FILES)):
        try:
            text = read_regular(path, MOST_BYTES)
        except OSError:
            continue
        for match in _VARIABLE.finditer(text):
            name = match[1].decode("ascii")
            line = text.count(b"\n", 0, match.start()) + 1
            found.setdefault(name, Knob(name=name, source=f"{path.relative_to(site).as_posix()}:{line}"))
    return found


def _points(file: Path) -> list[tuple[str, str]]:
    try:
        return entry_points(read_regular(file, MOST_BYTES).decode("utf-8"), GROUP)
    except (OSError, ValueError):
        return []


def _version(entry_points: Path) -> str:
    """ "vllm_hcu-0.25.1+das.dtk2604.dist-info" -> "0.25.1+das.dtk2604"; "" where the folder's name has none."""
    folder = entry_points.parent.parent if entry_points.parent.name == "EGG-INFO" else entry_points.parent
    found = re.fullmatch(r"[^-]+-([^-]+?)(?:-py[\d.]+.*)?\.(?:dist-info|egg-info|egg)", folder.name)
    return found[1] if found else ""
