"""The Python sources inside an engine's image, copied out once: readers look at them as at an installed tree.

Kept in the user's cache folder by the image's id and interpreter: another image under the same tag is another folder.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from agents.research.knobs import KnobsError
from agents.research.remembered import default_cache
from cards.ask_container import bind, question
from contracts import Container, content_hash

COPY_S = 300.0  # vLLM 0.33.0 has some 3000 such files, 50 MB
# Runs in the image's interpreter; argv[1] is the folder for this image. It gets its name when it is whole.
SCRIPT = """
import importlib.metadata, importlib.util, os, shutil, sys
out = sys.argv[1]
half = os.path.join(out, "half")
shutil.rmtree(half, ignore_errors=True)
os.makedirs(half)
try: points = list(importlib.metadata.entry_points(group="vllm.platform_plugins"))
except Exception: points = []
for point in points:  # a platform of its own: its source, and the metadata by which it is found
    try: named = "%s-%s" % (point.dist.metadata["Name"].replace("-", "_"), point.dist.version)
    except Exception: named = point.module  # no METADATA, as an install that was broken off leaves it
    info = os.path.join(half, named + ".dist-info")
    os.makedirs(info, exist_ok=True)
    with open(os.path.join(info, "entry_points.txt"), "a") as file:
        file.write("%s%s = %s\\n" % ("" if file.tell() else "[vllm.platform_plugins]\\n", point.name, point.value))
packages = dict.fromkeys(["vllm", "aiter"] + [point.value.split(":")[0].split(".")[0].strip() for point in points])
for name in filter(str.isidentifier, packages):  # "" cannot be looked for
    found = importlib.util.find_spec(name)
    for place in list(found.submodule_search_locations or [])[:1] if found else []:
        for info in os.listdir(os.path.dirname(place)):  # the version's name, where no file inside says it
            if info.startswith(name) and info.endswith(".dist-info"):
                os.makedirs(os.path.join(half, info), exist_ok=True)
        for folder, below, files in os.walk(place):
            below[:] = [one for one in below if one != "__pycache__"]
            into = os.path.join(half, name, os.path.relpath(folder, place))
            for file in files:
                if file.endswith((".py", ".json", ".csv", ".yaml")):
                    os.makedirs(into, exist_ok=True)
                    shutil.copyfile(os.path.join(folder, file), os.path.join(into, file))
os.rename(half, os.path.join(out, "tree"))
"""


def vllm_of(container: Container, cache: Path | None = None) -> Path:
    """The folder `vllm`, with `aiter` beside it where the image has that. Raises KnobsError with one line."""
    code, said = _run([container.runtime, "image", "inspect", "-f", "{{.Id}}", container.image])
    if code != 0 or not said:
        fix = f"fetch it with {container.runtime} pull, or start {container.runtime} where that does not answer"
        raise KnobsError(f"the image {container.image} cannot be looked at ({said}): {fix}")
    copied = content_hash([container.python, SCRIPT], 8)  # another interpreter, or a version of ours that copies more
    out = (cache or default_cache("images")) / f"{said.rpartition(':')[2][:24]}-{copied}"
    tree = out / "tree"
    if not tree.is_dir():
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"{out} cannot be made ({error.strerror}): set XDG_CACHE_HOME to a writable folder"
            raise KnobsError(why) from None
        code, said = _run(question(container, SCRIPT, (str(out),), (bind(out),)))
        if code != 0:
            raise KnobsError(f"the sources in {container.image} cannot be read ({said}): see engine.container.python")
    if not (tree / "vllm" / "engine" / "arg_utils.py").is_file():
        raise KnobsError(f"{container.python} in {container.image} has no vLLM: correct engine.container.image")
    return tree / "vllm"


def _run(line: list[str]) -> tuple[int, str]:
    """Exit code, and the last line that it said."""
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=COPY_S, cwd=os.sep)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    said = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    return done.returncode, said[-1][:160] if said else ""
