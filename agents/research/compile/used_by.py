"""Which kernels of a tree cannot run for a model: those of other models' own code, of a kind of layer that it has not,
of weights or caches that are not so quantised, and of images. Judged by names of files and kernels, so what carries no
such name stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from agents.research.attention_backends import calls_aiter
from agents.research.compile.storms import Storm
from agents.research.dossier import Dossier
from agents.research.regular_file import read_regular
from agents.research.served import kv_dtype
from agents.research.step_work import latent_of
from agents.research.tables.quant_scheme import dense_scheme, expert_scheme
from agents.research.walk import python_files
from contracts import Frozen

REGISTRY = "model_executor/models/registry.py"
MOST_BYTES = 2_000_000
# Who calls merge_attn_states: vLLM 0.30.0, 0.33.0 and mobydick ff063e44e; FlashInfer's back end too, which is NVIDIA's.
MERGED = "attention in parts (latent, FLASH_ATTN's, AITER's)"
# What a name says that a kernel is for. The first that fits counts.
KINDS = (
    ("images", re.compile(r"(?<![a-z])(?:deep)?(?:encoder|vision|vit|clip|siglip|images?)(?![a-z])")),
    ("sparse attention", re.compile(r"sparse_mla|mla_sparse|mqa_logits|index_topk|(?<![a-z])indexer(?![a-z])")),
    ("latent attention", re.compile(r"(?<![a-z])mla(?![a-z])")),
    (MERGED, re.compile(r"merge_attn_states")),
    ("lightning attention", re.compile(r"lightning")),
    ("linear attention", re.compile(r"conv1d|gated_delta|linear_attn|(?<![a-z])(?:fla|kda|gdn)(?![a-z])")),
    ("state spaces", re.compile(r"mamba|(?<![a-z])ss[dm](?![a-z])")),
    ("hyper-connections", re.compile(r"(?<![a-z])mhc(?![a-z])")),
    ("experts", re.compile(r"(?<![a-z])moe(?![a-z])|(?<![a-z])experts?(?![a-z])")),
    ("another KV cache", re.compile(r"turboquant|(?<![a-z])tq(?![a-z])|ultraquant|(?<![a-z])octave(?![a-z])")),
    ("4-bit floats", re.compile(r"fp4")),
    ("MX 8-bit floats", re.compile(r"mxfp8")),
    ("8-bit weights", re.compile(r"a8_?w8|a16_?w8|w8_?a8")),
)
_MODEL_CODE = re.compile(r"/models/(\w+?)(?:/|\.py)")


class Uses(Frozen):
    """What a model's kernels may be for."""

    architecture: str
    code: Mapping[str, str] = {}  # names of its modules in vLLM -> their text; empty: not known
    kinds: tuple[str, ...] = ()  # of KINDS


def uses(dossier: Dossier) -> Uses | None:
    """None without a model."""
    model, config = dossier.model, dossier.model_config_json
    if model is None:
        return None
    schemes = {dense_scheme(model), *([expert_scheme(model)] if model.experts else [])}
    unsure = "other" in schemes
    cache = kv_dtype(model, dossier.spec.flags)
    linear = model.linear_attention_layers > 0
    held = {
        "sparse attention": bool(config.get("index_topk")),
        "latent attention": latent_of(config) is not None,
        MERGED: latent_of(config) is not None or _merges(dossier),
        "lightning attention": linear and model.delta_net is None,
        "linear attention": linear,
        "state spaces": linear and model.delta_net is None,
        "hyper-connections": config.get("hc_mult") is not None,
        "experts": model.experts is not None,
        "another KV cache": cache.startswith(("turboquant", "ultraquant", "octave")),
        "4-bit floats": unsure or "mxfp4" in schemes,
        "MX 8-bit floats": unsure,
        "8-bit weights": unsure or any(s.startswith(("fp8", "int8")) for s in schemes),
    }
    kinds = tuple(kind for kind, has in held.items() if has)
    return Uses(architecture=model.architecture, code=_code(Path(dossier.knobs.path), model.architecture), kinds=kinds)


def _merges(dossier: Dossier) -> bool:
    """May a back end that is not for latent attention join the parts of one? On AMD cards AITER's do, and FLASH_ATTN,
    which serves there only by a flag."""
    amd = dossier.card.kind == "amd"
    flag = str(dossier.spec.flags.get("attention-backend", "")).upper()
    return not amd or flag == "FLASH_ATTN" or calls_aiter(Path(dossier.knobs.path), dossier.card.arch)


def other_models(storm: Storm, mine: Uses) -> str:
    """What a kernel, or the call of it, is for that `mine` has not; "" where it may run."""
    for place in (f"{storm.kernel_at}/{storm.kernel}".lower(), storm.call_at.lower()):
        own = _MODEL_CODE.search(f"/{place}")
        if own is not None and mine.code:
            name = own.group(1)
            if name not in mine.code and not any(re.search(rf"\b{name}\b", text) for text in mine.code.values()):
                return name
            continue
        kind = next((kind for kind, named in KINDS if named.search(place)), "")
        if kind and kind not in mine.kinds:
            return kind
    return ""


def _code(package: Path, architecture: str) -> dict[str, str]:
    """Names and text of the modules that vLLM's registry gives for an architecture, without running it."""
    registry = _read(package / REGISTRY)
    found = re.search(rf'"{re.escape(architecture)}":\s*\(\s*"(\w+(?:\.\w+)*)"', registry)
    if found is None:
        return {}
    name = found.group(1)
    path = package.parent / Path(*name.split(".")) if "." in name else (package / REGISTRY).with_name(name)
    files = list(map(Path, python_files(path))) if path.is_dir() else [path.with_suffix(".py")]
    return {name.rpartition(".")[2]: "\n".join(_read(file) for file in files)}


def _read(path: Path) -> str:
    try:
        return read_regular(path, MOST_BYTES).decode("utf-8")
    except (OSError, ValueError):
        return ""
