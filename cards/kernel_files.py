"""Reads the small text files in which the Linux kernel describes a machine. A file that is not there is None.

Nothing here raises. A card may go between two looks, a folder may be closed to this user (pathlib's exists() raises
then) and a read may end in EIO: each means that the machine does not tell.
"""

from __future__ import annotations

import os
from pathlib import Path


def there(path: Path) -> bool:
    """Whether this user can see the file or folder; false for a link to nothing or to itself."""
    return os.path.exists(path)


def entries(folder: Path, pattern: str) -> list[Path]:
    """What fits the glob pattern below the folder, sorted; [] where the folder is not there, closed, or just went."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def real(path: Path) -> Path:
    """Where links lead; of a link that leads to itself, the link."""
    return Path(os.path.realpath(path))


def read_line(path: Path) -> str | None:
    """The file's text without its outer blanks; None when absent, unreadable or empty.

    A container may show a file in a folder and still refuse to read it (EPERM, by the device cgroup).
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None
    return text or None


def read_int(path: Path) -> int | None:
    try:
        return int(read_line(path) or "")
    except ValueError:
        return None


def read_numbers(path: Path) -> dict[str, int]:
    """Lines of "name number", as in KFD's properties and the cgroups' memory.stat; other lines are left out."""
    numbers: dict[str, int] = {}
    for line in (read_line(path) or "").splitlines():
        name, _, value = line.partition(" ")
        try:
            numbers[name] = int(value)
        except ValueError:
            continue
    return numbers


def read_fields(path: Path) -> dict[str, str]:
    """Lines of "name: value", as in /proc/meminfo, /proc/cpuinfo and /proc/PID/status; the first of each name."""
    fields: dict[str, str] = {}
    for line in (read_line(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields
