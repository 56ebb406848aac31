"""For which AMD archs a library's kernels were compiled, read from the file: nothing is loaded.

Clang's offload bundles name each code object: "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-" (clang's documentation, "Clang
Offload Bundler"). A compressed bundle (magic "CCOB") hides the names, so a file that holds one says nothing. rocBLAS
keeps one file an arch: TensileLibrary_lazy_gfx942.dat. Tested on bytes in that format; no ROCm wheel was here.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable
from pathlib import Path

ENTRY = re.compile(rb"amdgcn-amd-amdhsa-[a-z]*-(gfx[0-9a-f]{3,5})\b")
COMPRESSED = b"CCOB"
MOST_BYTES = 1 << 30  # about a second of reading; vLLM's own libraries are a few hundred MB


def archs_in(libraries: Iterable[Path]) -> frozenset[str] | None:
    """None: not to be told from these files (none there, too large, compressed, or no code objects at all)."""
    found: set[str] = set()
    left = MOST_BYTES
    for path in libraries:
        try:
            size = path.stat().st_size
            left -= size
            if left < 0:
                return None
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                names = {match[1].decode() for match in ENTRY.finditer(data)}
                if not names and data.find(COMPRESSED) >= 0:
                    return None
        except (OSError, ValueError):  # gone, unreadable, or empty
            continue
        found |= names
    return frozenset(found) or None


def rocblas_archs(folder: Path) -> frozenset[str] | None:
    """Of a folder rocblas/library; None where there is none."""
    try:
        names = [p.name for p in folder.iterdir()]
    except OSError:
        return None
    return frozenset(m[1] for n in names if (m := re.search(r"_(gfx[0-9a-f]{3,5})\b", n))) or None
