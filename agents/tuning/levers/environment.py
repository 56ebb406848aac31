"""Lever: one environment variable of the engine's process. Values are text, exactly as the process sees them."""

from __future__ import annotations

import re

from pydantic import JsonValue

from agents.research.knobs import Knobs, near
from cards.visible import ALSO_HIDE
from contracts import EngineSpec
from engine.caches import OF_BUILD, OF_PATCHED, OF_SPEC
from engine.own_plugins import CODE, FILES, SWITCH, VARIABLES

_CODE = "it decides which code runs, so the two arms would not be one engine with one change"
_FILES = "it decides which model files or caches are found; the launch sets it"
_PLACE = "it is the launch's own, chosen afresh for each engine"
_CARD = "the night has chosen its card by identity; another one is another night"
_LOG = "the engine's log is the night's evidence"
_OURS = "nightgate sets it: with it a change is seen to be in use"
_SECRET = "it is a secret, and a ledger keeps what it is told"
NOT_OURS = {
    **dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONSAFEPATH", "PATH", "VIRTUAL_ENV",
                     "VLLM_PLUGINS", "VLLM_TARGET_DEVICE", "VLLM_MODEL_REDIRECT_PATH"), _CODE),
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT",
                     "VLLM_USE_MODELSCOPE", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "XDG_CACHE_HOME",
                     "XDG_CONFIG_HOME", *OF_SPEC, *OF_BUILD, *OF_PATCHED), _FILES),
    **dict.fromkeys((*SWITCH, FILES, CODE), _OURS),
    **dict.fromkeys(("VLLM_PORT", "VLLM_HOST_IP", "VLLM_RPC_BASE_PATH", "VLLM_DP_MASTER_PORT", "MASTER_PORT",
                     "MASTER_ADDR", "HOME", "TMPDIR", "VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK",
                     "VLLM_SERVER_DEV_MODE"), _PLACE),
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", *ALSO_HIDE,
                     "HCU_VISIBLE_DEVICES", "VHCU_VISIBLE_DEVICES", "MIG_VISIBLE_DEVICES"), _CARD),
    **dict.fromkeys(("VLLM_CONFIGURE_LOGGING", "VLLM_LOGGING_LEVEL", "VLLM_LOGGING_CONFIG_PATH",
                     "VLLM_LOGGING_STREAM"), _LOG),
    **dict.fromkeys(("HF_TOKEN", "VLLM_API_KEY", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"), _SECRET),
}  # fmt: skip


def normalise(key: str) -> str:
    """Environment names are what they are: case counts."""
    return key.strip()


def keys(spec: EngineSpec) -> tuple[str, ...]:
    return tuple(spec.env)


def read(spec: EngineSpec, key: str) -> JsonValue:
    return spec.env.get(normalise(key))


def write(spec: EngineSpec, key: str, value: JsonValue) -> EngineSpec:
    """Raises TypeError for a value that is not text: 1 and "1" must not become two changes."""
    rest = {k: v for k, v in spec.env.items() if k != normalise(key)}
    if value is None:
        return spec.model_copy(update={"env": rest})
    if not isinstance(value, str):
        raise TypeError(f'environment variable {key} takes text; write it in quotes: "{value}"')
    return spec.model_copy(update={"env": rest | {normalise(key): value}})


def validate(key: str, value: JsonValue, knobs: Knobs) -> str | None:
    key = normalise(key)
    if key in NOT_OURS:
        return f"environment variable {key} cannot be tuned: {NOT_OURS[key]}"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        return f"{key!r} is not a name that an environment variable can have"
    if value is not None and not isinstance(value, str):
        return f'environment variable {key} takes text; write it in quotes: "{value}"'
    if value is not None and "\0" in value:
        return f"environment variable {key} cannot hold a NUL character"
    knob = knobs.env.get(key)
    if knob is None:
        return _unknown(key, knobs)
    if value and knob.kind in ("int", "float"):
        try:
            float(value)
        except ValueError:
            return f"environment variable {key} takes a number, not {value!r}"
    return None


def _unknown(key: str, knobs: Knobs) -> str | None:
    """vLLM ignores a VLLM_ variable that it does not know (it only warns): a change that cannot do anything. A variable
    of another name may belong to a library or a plugin, so it passes; path evidence has to show what it does. Ours are
    known: a slip in one of their names is told, and their values are checked where the tree is
    (attention_backend.py)."""
    meant = near(key, VARIABLES) if key.upper().startswith("NIGHTGATE_") and key not in VARIABLES else None
    if meant:
        return f"nightgate has no environment variable {key}; did you mean {meant}?"
    if not key.upper().startswith("VLLM_") or not knobs.env:
        return None
    meant = near(key, knobs.env)
    hint = f"; did you mean {meant}?" if meant else "; it would be ignored without an error"
    return f"{knobs.named} has no environment variable {key}{hint}"
