"""Which settings of tonight's engine are away from what the installed version does by itself?

Half of the gains that tuning nights report only undo somebody's flag: the MI355X night's "graphs to 256 tokens" (+19 %)
undid a capture list of its own launcher, and the default would have covered it. So going back is always worth a try.
"""

from __future__ import annotations

from pydantic import JsonValue

from agents.research.dossier import Dossier, holds
from agents.research.knobs import Knob
from agents.tuning.apply import same
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Hypothesis, Lever

NAME = "defaults"

# Set so that the engine fits this machine or these requests. The default might not start, or starve other programs:
# nothing that a faster run could justify.
SIZED_TO_FIT = {
    "max-model-len",
    "gpu-memory-utilization",
    "kv-cache-memory-bytes",
    "cpu-offload-gb",
    "swap-space",
    "num-gpu-blocks-override",
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "distributed-executor-backend",
    "api-server-count",
    "quantization",
    "max-logprobs",
    "seed",
    "VLLM_CPU_KVCACHE_SPACE",
}

# On/off variables of this beginning that are off by default: each reaches kernels of AITER, and whoever switched one on
# wanted those. What other readers find in AITER's tables rests on it.
SWITCHES = "VLLM_ROCM_USE_AITER"

# No measurement stands behind these two: they say "worth one try when nothing better is known". A reader that knows the
# flag (execution_mode, batch_limits, prior) brings its own numbers, and the better-founded ones win in rank.merge().
GAIN, PROBABILITY = 1.03, 0.25


def read(dossier: Dossier) -> list[Hypothesis]:
    found = []
    for lever, key, value, knob in _settings(dossier):
        if _deliberate(value, knob) or (knob.default_known and same(_plain(value, knob), knob.default)):
            continue
        if key == "dtype" and value == _own_dtype(dossier):
            continue  # "auto" takes the model's own
        default = knob.default_text or "decided when the engine starts"
        found.append(
            Hypothesis(
                change=Change(lever=lever, key=key, before=value, after=None),
                proposer=NAME,
                why=f"{key} was set to {value!r} by hand; {dossier.knobs.named} by itself: {default}",
                evidence=(
                    holds(dossier, key, value),
                    Evidence(source=f"vllm/{knob.source}", detail=f"default: {default}"),
                ),
                predicted_gain=GAIN,
                probability=PROBABILITY,
                cost_s=dossier.cost_s(),
                risk="medium",
            )
        )
    return found


def dropped(dossier: Dossier) -> list[str]:
    return [
        f"{lever}: {key}: {value!r} -> default (defaults): {why}"
        for lever, key, value, knob in _settings(dossier)
        if (why := _deliberate(value, knob))
    ]


def _deliberate(value: JsonValue, knob: Knob) -> str:
    """Why a setting is not undone, "" where it may be."""
    if knob.name in SIZED_TO_FIT:
        return "it was set so that the engine fits this machine"
    if knob.name.startswith(SWITCHES) and knob.default is False and _plain(value, knob) is True:
        return "it was switched on to reach AITER's kernels, and what is found in their tables rests on it"
    return ""


def _settings(dossier: Dossier) -> list[tuple[Lever, str, JsonValue, Knob]]:
    """Everything that the spec sets and the installed version knows and a night may touch."""
    found: list[tuple[Lever, str, JsonValue, Knob]] = []
    for lever, actions in LEVERS.items():
        known = dossier.knobs.of(lever)
        for key in actions.keys(dossier.spec):
            knob = known.get(key.partition(".")[0])
            if knob is not None and actions.validate(key, None, dossier.knobs) is None:
                inner = Knob(name=key, source=knob.source)  # of a key inside a JSON flag no default is known
                found.append((lever, key, actions.read(dossier.spec, key), knob if knob.name == key else inner))
    return found


def _own_dtype(dossier: Dossier) -> JsonValue:
    config = dossier.model_config_json
    return config.get("dtype") or config.get("torch_dtype")


def _plain(value: JsonValue, knob: Knob) -> JsonValue:
    """An environment variable's text as the type that vLLM makes of it, for comparing with the default."""
    if not isinstance(value, str):
        return value
    if knob.kind == "bool" and value.lower() in ("0", "1", "true", "false"):
        return value.lower() in ("1", "true")
    if knob.kind == "int" and value.lstrip("-").isdigit():
        return int(value)
    return value
