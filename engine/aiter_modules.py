"""AITER's prebuilt modules, copied to where an arm's engine will look for them (engine/caches.py says why).

Copied and not linked: AITER writes a rebuilt module over the old file, and a link would lead it into the installed
tree. Checked on a tree of AITER's layout; never run on an AMD card.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from cards.ask_container import bind, question
from contracts import EngineSpec, Failure, FailureKind, Lever
from engine.caches import AITER_MODULES
from engine.running import EngineFailure

COPY_S = 600.0  # a few GB from a slow disk
# A patch to what those modules are compiled from. Prebuilt ones would hide it.
COMPILED = re.compile(
    r"^(?:\+\+\+|---) (?:(?:\S*/)?(?:csrc|hsa|3rdparty|gradlib)/|\S*\.(?:cu|cuh|h|hpp|cpp)\b)", re.MULTILINE
)

# Runs in the engine's interpreter; argv[1] is the build's folder. Importing aiter would open the card: its place is
# asked instead. The folder gets its name when it is whole, so that a killed copy is never taken for one.
SCRIPT = """
import importlib.util, os, shutil, sys
build = sys.argv[1]
done, half = os.path.join(build, "@"), os.path.join(build, "@.half")
found = importlib.util.find_spec("aiter")
places = list(found.submodule_search_locations or []) if found else []
jit = os.path.join(places[0], "jit") if places else ""
shutil.rmtree(half, ignore_errors=True)
os.makedirs(half)
for name in sorted(os.listdir(jit)) if os.path.isdir(jit) else ():
    path = os.path.join(jit, name)
    if name.endswith(".so"):
        shutil.copy2(path, half)
    elif name == "flydsl_cache":
        shutil.copytree(path, os.path.join(half, name))
os.rename(half, done)
""".replace("@", AITER_MODULES)


def compiled_anew(spec: EngineSpec) -> bool:
    """A patch of this spec reaches AITER's compiled sources, so each module is built from them when it is first used.
    A patch whose text is not known counts."""
    patches = spec.overlay.get(Lever.SOURCE_PATCH, {})
    return any("aiter" in key and not (isinstance(value, str) and not COMPILED.search(value))
               for key, value in patches.items() if value is not None)  # fmt: skip


def copy_prebuilt(spec: EngineSpec, build: Path) -> None:
    """Once for each build folder; 0.1 s where there is no AITER: an empty folder then says so. Raises EngineFailure."""
    build.mkdir(parents=True, exist_ok=True)
    if (build / AITER_MODULES).is_dir() or compiled_anew(spec):
        return
    if spec.container is None:
        line = [spec.python, "-c", SCRIPT, str(build)]
    else:
        line = question(spec.container, SCRIPT, (str(build),), (bind(build),))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        ran = subprocess.run(line, cwd="/", env=env, capture_output=True, text=True, errors="replace", timeout=COPY_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineFailure(_failure(str(error))) from error
    if ran.returncode != 0:
        raise EngineFailure(_failure((ran.stderr.strip().splitlines() or ["it said nothing"])[-1]))


def _failure(why: str) -> Failure:
    reason = f"AITER's prebuilt modules could not be copied for this engine ({why}): free disk space, then start again"
    return Failure(kind=FailureKind.CRASH, reason=reason[:400])
