"""The attention back ends of a vLLM, read from a tree that is written here, our own text in its shape."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from agents.research import attention_backends
from agents.research.finding import Finding
from agents.research.model_shape import AttentionKind, ModelShape
from agents.research.readers.attention_backends import dropped, look
from agents.research.three_valued import truth
from cards.sheet import read_sheet
from contracts import Lever
from tests.agents.examples import KNOBS, dossier, spec

REGISTRY = """
class AttentionBackendEnum(Enum, metaclass=Meta):
    PLAIN = "vllm.v1.attention.backends.plain.PlainBackend"
    VENDOR = (
        "vllm.v1.attention.backends.vendor."
        "VendorBackend"
    )
    ROCM_OLD = "vllm.v1.attention.backends.old.OldBackend"
    PACKED = "vllm.v1.attention.backends.packed.PackedBackend"
    OTHERS = "vllm.v1.attention.backends.others.OthersBackend"
    CUSTOM = None

    def get_path(self): ...
"""
PLATFORM = """
def get_cdna_version() -> int:
    if on_gfx90a():
        return 2
    if on_gfx942():
        return 3
    return 0

def _get_backend_priorities(use_mla, use_sparse, use_kv_connector=False):
    if use_sparse:
        return [AttentionBackendEnum.SPARSE]
    if use_mla:
        if rocm_aiter_ops.is_mla_enabled():
            return [AttentionBackendEnum.VENDOR_MLA]
        else:
            return [AttentionBackendEnum.PLAIN_MLA]
    backends = []
    if not use_kv_connector:
        backends.append(AttentionBackendEnum.ROCM_OLD)
    if is_aiter_found_and_supported():
        backends.append(AttentionBackendEnum.VENDOR)
    elif rocm_aiter_ops.is_rdna_aiter_enabled():
        backends.insert(0, AttentionBackendEnum.VENDOR)
    backends.append(AttentionBackendEnum.PLAIN)
    backends.append(AttentionBackendEnum.PACKED)
    return backends
"""
BACKENDS = {
    "plain": """
class PlainBackend(AttentionBackend):
    supported_kv_cache_dtypes: ClassVar[list] = ["auto", "fp8", "int8_per_token_head"]

    @classmethod
    def supports_head_size(cls, head_size): return head_size >= 32

    @classmethod
    def supports_sliding_window(cls): return True
""",
    "old": """
class OldBackend(AttentionBackend):
    supported_kv_cache_dtypes: ClassVar[list] = ["auto", "fp8"]

    @classmethod
    def get_supported_head_sizes(cls): return [64, 128]

    @classmethod
    def supports_sliding_window(cls): return True
""",
    "vendor": """
from vllm.v1.attention.backends.old import OldBackend

class VendorBackend(OldBackend):
    @classmethod
    def get_supported_head_sizes(cls): return [64, 128, 256]

    def forward(self):
        from aiter.ops import attention
""",
    "packed": """
class PackedBackend(AttentionBackend):
    supported_kv_cache_dtypes: ClassVar[list] = ["packed_4bit"]

    @classmethod
    def supports_compute_capability(cls, capability): return get_cdna_version() == 3
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "vllm"
    files = {"v1/attention/backends/registry.py": REGISTRY, "platforms/rocm.py": PLATFORM}
    files |= {f"v1/attention/backends/{name}.py": text for name, text in BACKENDS.items()}
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


def model(*sizes: int, window: int | None = None) -> ModelShape:
    kinds = tuple(AttentionKind(layers=2, heads=8, kv_heads=2, head_size=s, window=window) for s in sizes)
    return ModelShape(
        architecture="Small",
        hidden=64,
        layers=2,
        vocabulary=100,
        attention=kinds,
        intermediate=128,
        dense_layers=2,
    )


def found(tree: Path, arch: str, shape: ModelShape, flags: dict[str, Any] | None = None, **more: Any) -> list[Finding]:
    sheet = read_sheet(arch)
    knobs = KNOBS.model_copy(update={"path": str(tree)})
    held = {"knobs": knobs, "model": shape, "sheet": sheet, "card": sheet.card(), "spec": spec(flags=flags or {})}
    return look(dossier(**{**held, "aiter": "/nowhere/aiter", **more}))


# --- what can be worked out without running anything ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("version() > 2", True),
        ("version() > 2 and other()", None),
        ("version() < 2 and other()", False),
        ("version() > 2 or other()", True),
        ("not use_mla", True),
        ("size in [64, 128]", True),
        ("size in sizes()", None),
        ("'a' < 3", None),
        ("cls.thing[0]", None),
    ],
)
def test_conditions_with_three_answers(text: str, value: bool | None) -> None:
    facts = {"version()": 3, "use_mla": False, "size": 64}
    assert truth(ast.parse(text, mode="eval").body, facts) is value


def test_the_registry(tree: Path) -> None:
    entries = attention_backends.registered(tree)
    assert [e.name for e in entries] == ["PLAIN", "VENDOR", "ROCM_OLD", "PACKED", "OTHERS", "CUSTOM"]
    assert entries[1].path == "vllm.v1.attention.backends.vendor.VendorBackend"
    assert entries[0].where == "vllm/v1/attention/backends/registry.py:3"
    assert entries[-1].path == ""


@pytest.mark.parametrize(
    ("arch", "facts", "names"),
    [
        ("gfx942", {}, ["ROCM_OLD", "VENDOR", "PLAIN", "PACKED"]),
        ("gfx942", {"use_kv_connector": True}, ["VENDOR", "PLAIN", "PACKED"]),
        ("gfx906", {}, ["ROCM_OLD", "PLAIN", "PACKED"]),
        ("gfx942", {"use_mla": True, "rocm_aiter_ops.is_mla_enabled()": False}, ["PLAIN_MLA"]),
        ("gfx942", {"use_sparse": True}, ["SPARSE"]),
    ],
)
def test_the_order_in_which_they_are_tried(tree: Path, arch: str, facts: dict[str, Any], names: list[str]) -> None:
    generation = attention_backends.generations(tree).get(arch, 0)
    base = {"use_mla": False, "use_sparse": False, "use_kv_connector": False}
    known = attention_backends.arch_facts(arch, generation, True) | base | facts
    tried = attention_backends.order(tree, known)
    assert [t.name for t in tried if t.holds] == names


def test_what_is_not_known_stays_in_the_list(tree: Path) -> None:
    """Nobody said whether AITER is installed."""
    facts = attention_backends.arch_facts("gfx942", 3, None)
    facts |= {"use_mla": False, "use_sparse": False, "use_kv_connector": False}
    vendor = next(t for t in attention_backends.order(tree, facts) if t.name == "VENDOR")
    assert (vendor.holds, vendor.condition) == (None, "is_aiter_found_and_supported()")


# --- the reader ---


def test_a_flag_where_one_back_end_takes_every_layer(tree: Path) -> None:
    findings = found(tree, "gfx942", model(128, 256))
    first = findings[0]
    assert first.kind == "fact"
    assert first.title.endswith("the first that is valid wins: ROCM_OLD for heads of 128, VENDOR for heads of 256")
    assert any(e.detail == "VENDOR: if is_aiter_found_and_supported() (holds)" for e in first.evidence)
    chances = [f for f in findings if f.kind == "opportunity"]
    assert [f.change.after for f in chances if f.change] == ["PLAIN", "VENDOR"]
    assert chances[1].change is not None and chances[1].change.lever == Lever.ENGINE_FLAG
    assert chances[1].terms is not None and chances[1].terms.probability == 0.3
    assert "estimated: roofline of gfx942" in chances[1].terms.share_from


def test_a_patch_where_the_flag_would_end_the_start(tree: Path) -> None:
    patched = [f for f in found(tree, "gfx942", model(256, 512)) if f.kind == "opportunity" and f.change is None]
    assert patched == []  # VENDOR is first for 256 anyway, PLAIN takes both
    (tree / "platforms/rocm.py").write_text(PLATFORM.replace("    if is_aiter_found_and_supported():", "    if no():"))
    patched = [f for f in found(tree, "gfx942", model(256, 512)) if f.kind == "opportunity" and f.change is None]
    assert len(patched) == 1
    assert "by a patch of the priority: it takes none of 512" in patched[0].title
    assert "+    backends.insert(0, AttentionBackendEnum.VENDOR)" in patched[0].fix
    assert patched[0].fix.startswith("--- a/vllm/platforms/rocm.py")


def test_what_an_old_card_cannot_use(tree: Path) -> None:
    findings = found(tree, "gfx906", model(128))
    barred = findings[1]
    assert barred.title.startswith(
        "2 attention back ends of vLLM 0.32.0 cannot serve this model, as it is set up, on gfx906"
    )
    told = {e.detail for e in barred.evidence}
    assert "VENDOR: it imports AITER, which vLLM uses from CDNA3 on" in told
    assert "PACKED: its class does not take this card: get_cdna_version() == 3" in told
    assert [f.change.after for f in findings if f.change] == ["PLAIN"]


def test_a_choice_that_cannot_work_is_a_trap(tree: Path) -> None:
    findings = found(tree, "gfx942", model(512), {"attention-backend": "VENDOR"})
    trap = next(f for f in findings if f.kind == "trap")
    assert trap.title == "--attention-backend VENDOR cannot work on gfx942: it takes no heads of 512"
    assert not any(f.kind == "trap" for f in found(tree, "gfx942", model(128), {"attention-backend": "VENDOR"}))


def test_the_cache_format_decides_too(tree: Path) -> None:
    findings = found(tree, "gfx942", model(128), {"kv-cache-dtype": "int8_per_token_head"})
    assert findings[0].title.endswith("PLAIN for heads of 128")


def test_a_tree_that_cannot_be_read_is_told(tree: Path) -> None:
    (tree / "v1/attention/backends/registry.py").write_text("class (", encoding="utf-8")
    findings = found(tree, "gfx942", model(128))
    assert [f.kind for f in findings] == ["fact"]
    assert "could not be read" in findings[0].title


def test_other_cards_are_left_out() -> None:
    assert look(dossier()) == []
    assert dropped(dossier()) == ["attention_backends: only AMD's back ends are read, the card is x86_64"]
