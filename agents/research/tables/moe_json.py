"""vLLM's JSON tables of fused-MoE tiles, and the lookup in them as vLLM 0.30.0 to 0.33.0 does it
(model_executor/layers/fused_moe/fused_moe.py), re-implemented from what it does.

A file is named by experts, width, device, arithmetic; VLLM_TUNED_CONFIG_FOLDER is searched first, then vLLM's own.
Inside, the batch size whose key is nearest to the tokens of the step is taken, however far it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.research.tables.quant_scheme import Scheme
from agents.research.tables.table_file import JsonTable, files_in, is_folder, read_json, read_source, shown
from contracts import Frozen

ASKS = "model_executor/layers/fused_moe/fused_moe.py"
NAMES_FILES = "get_config_file_name"
USUAL = "model_executor/layers/fused_moe/configs"
_NAME = re.compile(
    r"E=(?P<e>[0-9]{1,9}),N=(?P<n>[0-9]{1,9}),device_name=(?P<device>[^,]+?)(?:,dtype=(?P<dtype>[^,]+?))?"
    r"(?:,block_shape=\[(?P<block>[0-9, ]{1,40})\])?(?:,backend=(?P<backend>[^,]+?))?\.json"
)
# The word for the arithmetic in a file's name; "" for 16 bits. mxfp4: vLLM asks for none (_get_config_dtype_str).
DTYPE_WORDS: dict[Scheme, str] = {
    "bf16": "",
    "fp8_block": "fp8_w8a8",
    "fp8_token": "fp8_w8a8",
    "int4": "int4_w4a16",
    "int8": "int8_w8a16",
}
# Bits of an element of the activations and of the weights as they lie in LDS, by the same word.
BITS = {"": (16, 16), "fp8_w8a8": (8, 8), "int4_w4a16": (16, 4), "int8_w8a16": (16, 8)}
FARTHEST = 1 << 62  # tokens; a damaged table may name more than a float holds
MFMA_ONLY = ("matrix_instr_nonkdim", "kpack")  # what they say means something to matrix cores only


class MoeName(Frozen):
    """What a table's file name says."""

    experts: int
    width: int  # of one expert, on one rank
    device: str
    dtype: str = ""
    block: tuple[int, ...] = ()
    backend: str = ""

    @property
    def file(self) -> str:
        return file_name(self.experts, self.width, self.device, self.dtype, self.block, self.backend)


class Device(Frozen):
    """What the engine may call the card. sure: no other name comes up, since vLLM's own map of device ids has it or all
    cards of this kind are called so."""

    names: tuple[str, ...]
    sure: bool
    source: str


def file_name(
    experts: int, width: int, device: str, dtype: str = "", block: Sequence[int] = (), backend: str = ""
) -> str:
    """As get_config_file_name spells it: no spaces, absent parts left out."""
    shape = f",block_shape=[{','.join(map(str, block))}]" if block and all(block) else ""
    kind = f",dtype={dtype}" if dtype else ""
    return f"E={experts},N={width},device_name={device}{kind}{shape}{f',backend={backend}' if backend else ''}.json"


def parse_name(name: str) -> MoeName | None:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return MoeName(
        experts=int(found["e"]),
        width=int(found["n"]),
        device=found["device"],
        dtype=found["dtype"] or "",
        block=tuple(int(v) for v in (found["block"] or "").split(",") if v.strip()),
        backend=found["backend"] or "",
    )


def devices(vllm: Path, card: str) -> Device:
    """The names under which the engine may look for tables of a card that people call `card`. vLLM takes the name of
    its map where the device id is known to it, else the driver's market name, blanks and slashes turned to "_"; the
    driver writes some cards as "MI355X" and others as "MI355 OAM". NVIDIA's cards have the driver's name too; all of
    the H200 family are "NVIDIA_H200" (get_config_file_name)."""
    if card.startswith("NVIDIA"):
        plain = re.sub(r"[\s/]+", "_", card.strip())
        one = "NVIDIA_H200" if "H200" in plain.split("_") else plain
        return Device(names=(one,), sure=True, source="the card's name")
    text = read_source(vllm / "platforms/rocm.py")
    at = text.find("_ROCM_DEVICE_ID_NAME_MAP")
    known = set(re.findall(r'"0x[0-9a-fA-F]+":\s*"([^"]+)"', text[at : at + 4000])) if at >= 0 else set()
    line = text.count("\n", 0, at) + 1 if at >= 0 else 0
    plain = re.sub(r"[\s/]+", "_", card.strip())
    if not plain.startswith("AMD"):
        plain = f"AMD_Instinct_{plain}" if re.match(r"MI\d", plain) else f"AMD_{plain}"
    source = f"vllm/platforms/rocm.py:{line}" if line else "the card's name"
    if plain in known:
        return Device(names=(plain,), sure=True, source=source)
    other = re.sub(r"(MI\d+)X$", r"\1_OAM", plain) if plain.endswith("X") else re.sub(r"(MI\d+)_OAM$", r"\1X", plain)
    names = tuple(dict.fromkeys((plain, other)))
    family = _family(vllm, plain)
    if family is not None:
        return family
    return Device(names=names, sure=False, source=source)


def _family(vllm: Path, name: str) -> Device | None:
    """A fork may call all cards of one kind the same:

    if any(s in device_name for s in ["Instinct_MI50", "Radeon_VII"]):
        device_name = "AMD_GFX906"
    """
    text = read_source(vllm / ASKS)
    at = text.find(f"def {NAMES_FILES}(")
    if at < 0:
        return None
    end = text.find("\n\n\n", at)
    try:
        function = ast.parse(text[at : end if end > 0 else len(text)]).body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lists = {
        node.targets[0].id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in (n for n in ast.walk(function) if isinstance(n, ast.If)):
        said = _sets_name(node)
        asked = _any_of(node.test, lists)
        if said and any(part in name for part in asked):
            line = text.count("\n", 0, at) + node.lineno
            return Device(names=(said,), sure=True, source=f"vllm/{ASKS}:{line}")
    return None


def _sets_name(node: ast.If) -> str:
    """AMD_GFX906 of `device_name = "AMD_GFX906"` as the one statement."""
    line = node.body[0]
    if len(node.body) != 1 or not isinstance(line, ast.Assign) or not isinstance(line.value, ast.Constant):
        return ""
    target = line.targets[0]
    return str(line.value.value) if isinstance(target, ast.Name) and target.id == "device_name" else ""


def _any_of(test: ast.expr, lists: Mapping[str, ast.expr]) -> list[str]:
    """The texts of `any(s in device_name for s in texts)`."""
    if not (isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "any" and test.args):
        return []
    loop = test.args[0]
    if not (isinstance(loop, ast.GeneratorExp) and ast.unparse(loop.elt).endswith(" in device_name")):
        return []
    over = loop.generators[0].iter
    over = lists.get(over.id, over) if isinstance(over, ast.Name) else over
    held = over.elts if isinstance(over, ast.List | ast.Tuple | ast.Set) else []
    return [e.value for e in held if isinstance(e, ast.Constant) and isinstance(e.value, str)]


def shipped_folder(vllm: Path) -> Path | None:
    """vLLM's own tables: the usual folder, or else the first "configs" below model_executor that has such a file."""
    usual = vllm / USUAL
    if is_folder(usual):
        return usual
    try:
        found = sorted((vllm / "model_executor").glob("*/*/configs")) + sorted(
            (vllm / "model_executor").glob("*/configs")
        )
    except OSError:
        return None
    return next((f for f in found if any(parse_name(p.name) for p in files_in(f, ".json"))), None)


def names_in(folder: Path) -> list[MoeName]:
    """Every table of a folder, by its name."""
    return [named for path in files_in(folder, ".json") if (named := parse_name(path.name)) is not None]


def read_table(path: Path) -> dict[int, dict[str, Any]] | str:
    """Batch size -> tile, in the file's order; or in one line why vLLM could not use it."""
    held = read_json(path)
    if not isinstance(held, JsonTable):
        return held
    found: dict[int, dict[str, Any]] = {}
    for key, entry in held.value.items():
        if key == "triton_version":
            continue
        try:
            size = int(key)
        except ValueError:
            return f"the key {key!r} is no batch size"
        if not isinstance(entry, dict):
            return f"the entry {key} holds no tile"
        found[size] = entry
    return found or "it holds no entry"


def nearest(sizes: Mapping[int, Any], m: int) -> int:
    """The key that vLLM takes for m tokens: the least |key - m|, the earlier one in the file of two as near."""
    return min(sizes, key=lambda size: abs(size - m))


def distance(size: int, m: int) -> float:
    """How far the key is from the step, as a ratio of at least 1."""
    return min(max(size, m), FARTHEST) / max(1, min(size, m))


def shown_table(path: Path, vllm: Path) -> str:
    """As findings name it; a file outside of vLLM by its folder's and its own name only."""
    inside = shown(path, vllm)
    return inside if "/" in inside else f"{path.parent.name}/{path.name}"
