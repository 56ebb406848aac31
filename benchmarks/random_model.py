"""A Qwen3 model with random weights, written to disk: what random_experts_model.py and random_awq_model.py share.

For nights and tests on a machine that reaches no model hub. Such a model's texts mean nothing: token IDs and drift can
judge it, sums cannot.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.arguments import count, lacking

TOKENIZER = Path(__file__).resolve().parents[1] / "accuracy_gate" / "arithmetic_model"
DEVIATION = 0.02  # of a weight: what Qwen and Llama configurations call initializer_range


def configuration(layers: int, width: int, **more: Any) -> dict[str, Any]:
    """config.json: what both kinds say, and `more`. Heads are of 128, the vocabulary is the arithmetic model's."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "head_dim": 128,
        "vocab_size": json.loads((TOKENIZER / "config.json").read_text())["vocab_size"],
        "max_position_embeddings": 8192,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def asked(name: str, about: str, **sizes: int) -> argparse.Namespace:
    """FOLDER, --device, --seed and each of `sizes` with its default. Ends with 2 and one line where something is wrong
    with them, or with this interpreter."""
    ask = argparse.ArgumentParser(prog=name, description=about)
    ask.add_argument("folder", type=Path)
    for size, usual in sizes.items():
        ask.add_argument(f"--{size.replace('_', '-')}", type=count, default=usual)
    ask.add_argument("--device", default="cpu")
    ask.add_argument("--seed", type=int, default=0)
    given = ask.parse_args()
    if why := lacking("torch", "safetensors"):
        ask.exit(2, f"{name}: {why}: run it with the engine's interpreter\n")
    return given


def write(folder: Path, config: dict[str, Any], parts: Iterable[dict[str, Any]]) -> float:
    """A checkpoint of one file a part: first what is no layer's, then a part for each layer, names to tensors. Returns
    its size in GiB."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    where: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05d}-of-{config['num_hidden_layers'] + 1:05d}.safetensors"
        save_file(part, folder / name, metadata={"format": "pt"})
        where |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}, indent=1))
    return sum(path.stat().st_size for path in folder.iterdir()) / 2**30
