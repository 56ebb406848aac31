"""Reads a GGUF file held in memory: its metadata, and its tensors as float32.

Only what the packaged model uses is supported (format version 3, tensor types F32, Q4_1 and Q8_0); anything else is
refused. It exists so that the conversion needs numpy and nothing from the engine, which is never modified.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_BLOCK = 32  # values in one quantised block, for both Q4_1 and Q8_0
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK_BYTES = {_Q4_1: 20, _Q8_0: 34}


class GgufError(ValueError):
    """The bytes are not a GGUF file that this reader supports; the text says which part."""


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies; shape is in numpy's order (GGUF stores it reversed)."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int


@dataclass(frozen=True)
class GgufFile:
    data: bytes
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]

    def floats(self, name: str) -> Floats:
        """The tensor dequantised to float32. Raises KeyError for an unknown name, GgufError for an unsupported type."""
        info = self.tensors[name]
        count = int(np.prod(info.shape))
        if info.kind == _F32:
            return np.frombuffer(self.data, np.float32, count, info.start).reshape(info.shape)
        if info.kind not in _BLOCK_BYTES:
            raise GgufError(f"tensor {name} has GGUF type {info.kind}; only F32, Q4_1 and Q8_0 are supported")
        size = _BLOCK_BYTES[info.kind]
        blocks = np.frombuffer(self.data, np.uint8, count // _BLOCK * size, info.start).reshape(-1, size)
        values = _q4_1(blocks) if info.kind == _Q4_1 else _q8_0(blocks)
        return values.reshape(info.shape)


def _half(columns: npt.NDArray[np.uint8]) -> Floats:
    return np.ascontiguousarray(columns).view(np.float16).astype(np.float32)


def _q4_1(blocks: npt.NDArray[np.uint8]) -> Floats:
    """Scale (fp16), minimum (fp16), then 16 bytes: low nibbles are values 0..15, high nibbles 16..31."""
    packed = blocks[:, 4:]
    levels = np.concatenate([packed & 0xF, packed >> 4], axis=1).astype(np.float32)
    return _half(blocks[:, 0:2]) * levels + _half(blocks[:, 2:4])


def _q8_0(blocks: npt.NDArray[np.uint8]) -> Floats:
    """Scale (fp16), then 32 signed bytes."""
    return _half(blocks[:, 0:2]) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def scalar(self, form: str) -> Any:
        try:
            (value,) = struct.unpack_from(form, self.data, self.at)
        except struct.error as cause:
            raise GgufError("the GGUF file ends in the middle of its header") from cause
        self.at += struct.calcsize(form)
        return value

    def string(self) -> str:
        length = self.scalar("<Q")
        raw = self.data[self.at : self.at + length]
        self.at += length
        return raw.decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, count = self.scalar("<I"), self.scalar("<Q")
            return [self.value(inner) for _ in range(count)]
        if kind not in _SCALARS:
            raise GgufError(f"GGUF metadata type {kind} is unknown")
        return self.scalar(_SCALARS[kind])


def read_gguf(data: bytes) -> GgufFile:
    """Parse a whole GGUF file. Raises GgufError when it is not one, is cut short, or is of another version."""
    if data[:4] != b"GGUF":
        raise GgufError("the file does not begin with the bytes GGUF")
    cursor = _Cursor(data)
    cursor.at = 4
    version = cursor.scalar("<I")
    if version != 3:
        raise GgufError(f"GGUF version {version} is not supported, only 3")
    tensor_count, key_count = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("<I"))
    listed = []
    for _ in range(tensor_count):
        name = cursor.string()
        reversed_shape = [cursor.scalar("<Q") for _ in range(cursor.scalar("<I"))]
        listed.append((name, tuple(reversed(reversed_shape)), cursor.scalar("<I"), cursor.scalar("<Q")))
    align = metadata.get("general.alignment", 32)
    base = -(-cursor.at // align) * align
    tensors = {name: TensorInfo(name, shape, kind, base + offset) for name, shape, kind, offset in listed}
    return GgufFile(data, metadata, tensors)
