"""What Hygon's own public tools say of its cards: names, archs, which driver goes with which DTK (configs/hygon.yaml),
and where their driver writes that a card is divided.

| what | where |
| --- | --- |
| names of this driver | /opt/hyhal/bin/update_ids, lines of map["6210"]="K100_AI" |
| virtual cards (vDCU, vHCU) | /etc/vdev/vdev<n>.conf; inside a container that has one, /etc/vdev/docker/vdev<n>.conf |
| MIG instances | /etc/dmi_mig_config/ci/*.conf |

The last two hold lines of "name: value", the card's PCI address under PciBusId and pci. Read in source:
HYGON-AI/hcu-container-toolkit at 9b3eed0 (2026-08-21), internal/config/image/dtk_image.go and internal/discover;
HYGON-AI/hcu-dcgm at b223b72 (2026-08-21), pkg/dcgm. Checked on folders written from it; not run on such a machine.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import yaml

from cards.kernel_files import entries, read_fields, read_line
from contracts import Frozen

FILE = Path(__file__).resolve().parents[1] / "configs" / "hygon.yaml"
OWN_NAMES = "opt/hyhal/bin/update_ids"
_OWN_NAME = re.compile(r'^\s*map\["([0-9a-fA-F]{4})"\]="([^"]+)"', re.MULTILINE)
# (what it is, folder, files, the line that holds the card's PCI address)
DIVIDED = (
    ("virtual card", "etc/vdev", "vdev*.conf", "PciBusId"),
    ("virtual card", "etc/vdev/docker", "vdev*.conf", "PciBusId"),
    ("MIG instance", "etc/dmi_mig_config/ci", "*.conf", "pci"),
)


# Of gpu_metrics' throttle_status, as Hygon's own tool splits it "by the convention of its driver" (hcu-dcgm at b223b72,
# pkg/dcgm/structs.go, ThrottleFlags). A limit of power is a card's normal life; heat and a forced slowdown void a run.
# That every card of Hygon's fills it so is their tool's word.
THROTTLE_BITS = {0: "heat: THERMAL", 1: "power: POWER", 2: "other: SLOWDOWN", 3: "power: BOARD_LIMIT"}


class Tier(Frozen):
    driver: str  # from this version on
    dtk: tuple[str, ...]


class Hygon(Frozen):
    sources: dict[str, str]
    names: dict[str, str]  # "54b7" -> "Z100"
    archs: dict[str, tuple[str, ...]]  # "gfx936" -> cards
    drivers: tuple[Tier, ...]


@lru_cache(maxsize=1)
def facts() -> Hygon:
    return Hygon.model_validate(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def card_name(device_id: int, root: Path = Path("/")) -> str | None:
    """ "Hygon Z100", by the installed driver's own list, else by ours; None where neither has it."""
    number = f"{device_id:04x}"
    own = {found[1].lower(): found[2] for found in _OWN_NAME.finditer(read_line(root / OWN_NAMES) or "")}
    name = own.get(number) or facts().names.get(number)
    return f"Hygon {name}" if name else None


def arch_of_name(name: str) -> str | None:
    """ "K100_AI", "bw1000", "gfx936" -> arch, as far as it is known of a Hygon card."""
    plain = name.strip().lower().removeprefix("hygon").strip().replace("-", "_")
    for arch, cards in facts().archs.items():
        if plain in (arch, *(card.lower().replace("-", "_") for card in cards)):
            return arch
    return None


def wrong_dtk(driver: str | None, dtk: str | None) -> tuple[str, str] | None:
    """(what is wrong, what to do) where Hygon's own list does not put this DTK with this driver. None where it does,
    and where it does not know one of the two: a release may be newer than the list."""
    version, release = _numbers(driver), re.match(r"\d+\.\d+", dtk or "")
    below = [t for t in facts().drivers if version and _numbers(t.driver) <= version]
    fitting = [t.driver for t in facts().drivers if release is not None and release[0] in t.dtk]
    if not below or release is None or not fitting or release[0] in below[-1].dtk:
        return None
    what = f"Hygon's list puts DTK {' or '.join(below[-1].dtk)} with driver {driver}, and this is DTK {dtk}"
    return what, f"take a driver that it puts with DTK {release[0]} (from {' or '.join(fitting)} on), or another DTK"


def divisions(address: str, root: Path = Path("/")) -> tuple[tuple[str, str], ...]:
    """(what it is, its file) for each part into which this card was divided, as this host or container sees it; () for
    a card whose address is not known: a file without one is not about it."""
    found = []
    if not address:
        return ()
    for what, folder, pattern, key in DIVIDED:
        for file in entries(root / folder, pattern):
            if (read_fields(file).get(key) or "").lower() == address.lower():
                found.append((what, f"/{file.relative_to(root)}"))
    return tuple(found)


def _numbers(version: str | None) -> tuple[int, ...]:
    """ "6.3.30-V1.9.2" -> (6, 3, 30); () for none."""
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", (version or "").strip(), re.IGNORECASE)
    return tuple(int(n) for n in found[1].split(".")) if found else ()
