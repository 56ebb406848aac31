"""What is run for one EngineSpec: the command line and the environment. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from cards.visible import ALSO_HIDE
from contracts import EngineSpec
from engine.caches import cache_environment
from engine.own_plugins import FOLDERS as OWN_PLUGINS
from engine.own_plugins import LISTED, SWITCH, with_ours
from engine.placement import NOTHING, Placement
from engine.ports import LOOPBACK
from engine.rocprof import rocprof_command

OWN_FLAGS = ("host", "port", "served-model-name", "compilation-config")  # set here, never by EngineSpec.flags

# Inherited variables that decide what an engine runs. A spec says all that decides, so these come from spec.env or not
# at all. What finds the card and its libraries (HIP_, HSA_, ROCR_, CUDA_, LD_LIBRARY_PATH) stays.
DROPPED_PREFIXES = (
    "PYTHON", "VIRTUAL_ENV", "CONDA", "VLLM_", "AITER_", "TORCH_COMPILE", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TRITON_",
    "OMP_", "KMP_", "GOMP_", "MKL_", "STANDIN_", "NIGHTGATE_",
)  # fmt: skip


def flag(name: str, value: JsonValue) -> list[str]:
    """One flag as vLLM's command line takes it. null: not given, the engine's own default."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, dict | list):
        return [f"--{name}", json.dumps(value, sort_keys=True)]
    return [f"--{name}", str(value)]


def command_line(spec: EngineSpec, port: int, served_name: str) -> list[str]:
    """`vllm serve` by way of the spec's interpreter, under rocprofv3 where the spec says so (engine/rocprof.py). Raises
    ValueError for a flag that is the launch's own."""
    if own := sorted(set(spec.flags) & set(OWN_FLAGS)):
        fix = "engine.port and engine.compilation set them" if own != ["served-model-name"] else "each launch sets it"
        raise ValueError(f"engine.flags must not hold {', '.join(own)}: {fix}")
    line = [spec.python, "-m", "vllm.entrypoints.cli.main", "serve", spec.model]
    for name in sorted(spec.flags):
        line += flag(name, spec.flags[name])
    if spec.compilation:
        line += flag("compilation-config", spec.compilation)
    line += ["--host", LOOPBACK, "--port", str(port), "--served-model-name", served_name]
    return rocprof_command(line, spec.env)


def dropped(spec: EngineSpec, inherited: Mapping[str, str]) -> tuple[str, ...]:
    """Names of inherited variables that the engine does not get."""
    return tuple(sorted(name for name in inherited if name.startswith(DROPPED_PREFIXES) and name not in spec.env))


def environment(
    spec: EngineSpec,
    cache_dir: Path,
    inherited: Mapping[str, str],
    shims: tuple[Path, ...] = (),
    placement: Placement = NOTHING,
    card_env: Mapping[str, str] = {},
) -> dict[str, str]:
    """The environment of an engine on the host. spec.env wins over all but the placement, which takes a variable of
    spec's over only where it carries on what that named.

    `cache_dir` holds this spec's compile caches and no other's. `shims` are folders that the engine's distribution
    needs on its path (engine/interpreter.py). `placement` is what spec.overlay became. `card_env` makes it see its card
    alone (cards/visible.py), whatever the shell that started the night hides.
    """
    gone = {*dropped(spec, inherited), *(ALSO_HIDE if card_env else ())}
    env = {name: value for name, value in inherited.items() if name not in gone}
    loop_bin = os.path.join(inherited.get("VIRTUAL_ENV", "/nowhere"), "bin")
    path = [part for part in inherited.get("PATH", os.defpath).split(":") if part and part != loop_bin]
    own_bin = os.path.dirname(spec.python)  # where the engine's ninja and compilers are, if it has its own
    env["PATH"] = ":".join(path if own_bin in path else [own_bin, *path])
    return env | dict(card_env) | own_environment(spec, cache_dir, shims, placement)


def own_environment(
    spec: EngineSpec,
    cache_dir: Path,
    shims: tuple[Path, ...] = (),
    placement: Placement = NOTHING,
    of_image: Mapping[str, str] = {},
) -> dict[str, str]:
    """What is set for the engine, nothing inherited: all that a container gets. The same arguments as environment().
    `of_image` is what the container's image sets itself, as far as it matters here: VLLM_PLUGINS, to which our plugins
    are added as to the night file's."""
    env = cache_environment(spec, cache_dir) | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # /server_info is the only place where vLLM 0.32 tells the scheduler's realised limits. It opens other
        # development endpoints too; the server listens on loopback only.
        "VLLM_SERVER_DEV_MODE": "1",
    }
    path = [*placement.python_path, *map(str, shims), *spec.plugin_paths, *map(str, OWN_PLUGINS)]
    env["PYTHONPATH"] = ":".join(path)
    env |= SWITCH | spec.env | placement.env
    listed = env.get(LISTED, of_image.get(LISTED))
    if listed is not None:
        env[LISTED] = with_ours(listed, (*placement.python_path, *OWN_PLUGINS))  # engine.plugin_paths are the user's
    return env
