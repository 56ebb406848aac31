"""Which fused-MoE tables an engine that ran has asked for, by its log. vLLM writes the file's name at the first lookup,
found or not (get_moe_configs, fused_moe.py of 0.30.0 to 0.33.0): what it calls the card is then known, not guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from agents.research.tables.moe_json import MoeName, parse_name
from agents.research.tables.reading import read_text

MOST_BYTES = 64 << 20  # of one log; a night's own are below 1 MB
_LINE = re.compile(r"(?:Config file not found at|Using configuration from) (?P<paths>.*)")
_FILE = re.compile(r"E=[0-9]+,N=[0-9]+,device_name=[^/\n]*?\.json")


def asked_for(logs: Iterable[str]) -> dict[MoeName, str]:
    """Name of a table -> log:line of the first lookup. A log that cannot be read says nothing."""
    found: dict[MoeName, str] = {}
    for path in logs:
        text, _ = read_text(Path(path), MOST_BYTES)
        for number, line in enumerate((text or "").splitlines(), 1):
            held = _LINE.search(line) if "device_name=" in line else None
            for file in _FILE.findall(held["paths"]) if held else ():
                if named := parse_name(file):
                    found.setdefault(named, f"{Path(path).name}:{number}")
    return found
