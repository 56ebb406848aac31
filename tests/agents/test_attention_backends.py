"""The attention back ends of a vLLM, read from a tree that is written here, our own text in its shape."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from agents.research import attention_backends, attention_order
from agents.research.finding import Finding
from agents.research.model_backends import chosen, model_facts
from agents.research.model_shape import AttentionKind, ModelShape
from agents.research.readers.attention_backends import dropped, look
from agents.research.tables.attention_calls import named_backend
from agents.research.three_valued import truth
from cards.sheet import read_sheet
from contracts import Change, Lever
from engine.own_plugins import PRIORITY
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

# A class that sets a back end for layers of several head sizes, one that goes on from it, and one that leaves it alone.
CONFIG = """
class MixedHeadsConfig(VerifyAndUpdateConfig):
    @staticmethod
    def verify_and_update_config(vllm_config):
        if len(set(head_dims.values())) <= 1:
            return
        if is_fa_version_supported(4) and max_head_dim <= 512:
            vllm_config.attention_config.flash_attn_version = 4
        elif current_platform.is_xpu():
            logger.info("left")
        elif vllm_config.attention_config.backend is None:
            vllm_config.attention_config.backend = AttentionBackendEnum.PLAIN

class HeirConfig(MixedHeadsConfig):
    @staticmethod
    def verify_and_update_config(vllm_config):
        MixedHeadsConfig.verify_and_update_config(vllm_config)
        attn_config = vllm_config.attention_config
        if attn_config.backend is None:
            attn_config.backend = AttentionBackendEnum.VENDOR

class UnsureConfig(VerifyAndUpdateConfig):
    @staticmethod
    def verify_and_update_config(vllm_config):
        if somebody_knows():
            vllm_config.attention_config.backend = AttentionBackendEnum.PLAIN

class QuietConfig(VerifyAndUpdateConfig):
    @staticmethod
    def verify_and_update_config(vllm_config):
        vllm_config.cache_config.block_size = 64

MODELS_CONFIG_MAP: dict[str, type] = {
    "Small": MixedHeadsConfig, "Heir": HeirConfig, "Unsure": UnsureConfig, "Quiet": QuietConfig
}
"""


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
    tried = attention_order.order(tree, known)
    assert [t.name for t in tried if t.holds] == names


def test_what_is_not_known_stays_in_the_list(tree: Path) -> None:
    """Nobody said whether AITER is installed."""
    facts = attention_backends.arch_facts("gfx942", 3, None)
    facts |= {"use_mla": False, "use_sparse": False, "use_kv_connector": False}
    vendor = next(t for t in attention_order.order(tree, facts) if t.name == "VENDOR")
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


def test_an_order_where_the_flag_would_end_the_start(tree: Path) -> None:
    assert ordered(found(tree, "gfx942", model(256, 512))) == []  # VENDOR is first for 256 anyway, PLAIN takes both
    (tree / "platforms/rocm.py").write_text(PLATFORM.replace("    if is_aiter_found_and_supported():", "    if no():"))
    (first,) = ordered(found(tree, "gfx942", model(256, 512)))
    assert "by the order of priorities: it takes none of 512" in first.title
    assert first.change == Change(lever=Lever.ENVIRONMENT, key=PRIORITY, after="VENDOR")
    told, patch = first.fix.split("\n", 1)
    assert told == f"{PRIORITY}=VENDOR, which is this patch:"
    assert patch.startswith("--- a/vllm/platforms/rocm.py")
    assert "+    backends.insert(0, AttentionBackendEnum.VENDOR)" in patch


def test_what_stands_in_the_order_already_stays_behind_the_new_one(tree: Path) -> None:
    (tree / "platforms/rocm.py").write_text(PLATFORM.replace("    if is_aiter_found_and_supported():", "    if no():"))
    engine = spec(env={PRIORITY: "PLAIN"})
    (first,) = ordered(found(tree, "gfx942", model(256, 512), spec=engine))
    assert first.change == Change(lever=Lever.ENVIRONMENT, key=PRIORITY, before="PLAIN", after="VENDOR,PLAIN")


def ordered(findings: list[Finding]) -> list[Finding]:
    """Proposals of another order of priorities."""
    return [f for f in findings if f.change and f.change.key == PRIORITY]


def with_classes(tree: Path) -> Path:
    (tree / "model_executor/models").mkdir(parents=True)
    (tree / "model_executor/models/config.py").write_text(CONFIG, encoding="utf-8")
    return tree


@pytest.mark.parametrize(
    ("architecture", "sizes", "expected"),
    [
        ("Small", (256, 512), ("PLAIN", True)),
        ("Small", (256,), None),
        ("Heir", (256, 512), ("PLAIN", True)),  # set already when the heir asks
        ("Heir", (256,), ("VENDOR", True)),
        ("Unsure", (256,), ("PLAIN", None)),
        ("Quiet", (256, 512), None),
        ("Unheard", (256, 512), None),
    ],
)
def test_a_models_own_class_may_set_one(tree: Path, architecture: str, sizes: Any, expected: Any) -> None:
    held = chosen(with_classes(tree), architecture, model_facts(sizes))
    assert (held and (held.name, held.holds)) == expected


def test_what_the_models_class_sets_is_said_and_neither_proposed_nor_patched(tree: Path) -> None:
    """VENDOR takes 256 only and PLAIN both: without the class a patch for VENDOR, or the flag for PLAIN."""
    tree_with = with_classes(tree)
    (tree / "platforms/rocm.py").write_text(PLATFORM.replace("    if is_aiter_found_and_supported():", "    if no():"))
    findings = found(tree_with, "gfx942", model(256, 512))
    assert findings[0].title == (
        "All attention layers are given PLAIN: vLLM 0.32.0 sets it for this model by itself, and the platform's order "
        "of priorities is not asked"
    )
    assert findings[0].evidence[0].source == "vllm/model_executor/models/config.py:12"
    assert [f for f in findings if f.kind == "opportunity"] == []


def test_what_the_models_class_sets_is_what_the_tables_are_read_for(tree: Path) -> None:
    subject = dossier(knobs=KNOBS.model_copy(update={"path": str(with_classes(tree))}), model=model(256, 512))
    assert named_backend(subject) == "PLAIN"
    assert named_backend(subject.model_copy(update={"spec": spec(flags={"attention-backend": "vendor"})})) == "VENDOR"
    inside = spec(flags={"attention-config": {"backend": "vendor"}})
    assert named_backend(subject.model_copy(update={"spec": inside})) == "VENDOR"
    assert named_backend(subject.model_copy(update={"spec": spec(flags={"attention-backend": "auto"})})) == "PLAIN"


def test_where_the_models_class_sets_one_a_flag_for_another_still_counts(tree: Path) -> None:
    text = CONFIG.replace("AttentionBackendEnum.PLAIN", "AttentionBackendEnum.VENDOR")
    (with_classes(tree) / "model_executor/models/config.py").write_text(text, encoding="utf-8")
    findings = found(tree, "gfx942", model(256, 512))
    assert [(f.change.before, f.change.after) for f in findings if f.change] == [(None, "PLAIN")]


def test_a_back_end_that_was_asked_for_leaves_no_order_and_no_patch(tree: Path) -> None:
    (tree / "platforms/rocm.py").write_text(PLATFORM.replace("    if is_aiter_found_and_supported():", "    if no():"))
    for flags in ({"attention-backend": "PLAIN"}, {"attention-config": {"backend": "plain"}}):
        findings = found(tree, "gfx942", model(256, 512), flags)
        assert findings[0].title.startswith("All attention layers are given PLAIN: the engine's flags set it")
        assert not any("valid wins" in f.title or "order of priorities:" in f.title for f in findings)
    automatic = found(tree, "gfx942", model(256, 512), {"attention-backend": "auto"})
    assert "the first that is valid wins" in automatic[0].title


def test_a_class_whose_condition_is_not_known_is_told_beside_the_order(tree: Path) -> None:
    unsure = model(256).model_copy(update={"architecture": "Unsure"})
    order = found(with_classes(tree), "gfx942", unsure)[0]
    assert "the first that is valid wins" in order.title
    assert order.evidence[-1].detail == "may set PLAIN for this model before: a condition is not known"


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
