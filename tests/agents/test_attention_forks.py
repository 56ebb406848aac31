"""The attention back ends of trees that are not upstream's newest: a fork's own order for its card, and vLLM up to
0.12, which keeps the registry elsewhere and chooses without an order. Small trees of these shapes, written here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.attention_backends import BackendsError, registered
from agents.research.attention_order import order
from agents.research.finding import Finding
from agents.research.gates.ask import answer_of
from agents.research.gates.evaluate import UNKNOWN
from agents.research.knobs import UNTOLD, Knob
from agents.research.rank import research
from agents.research.readers.attention_backends import look
from agents.tuning.probes import probe_for
from cards.sheet import read_sheet
from contracts import Change, Lever, TryItem
from tests.agents.examples import KNOBS, dossier, spec
from tests.agents.test_attention_backends import model

REGISTRY = """
class AttentionBackendEnum(Enum, metaclass=Meta):
    TRITON_ATTN = "vllm.v1.attention.backends.triton_attn.TritonBackend"
    ROCM_ATTN = "vllm.v1.attention.backends.rocm_attn.RocmBackend"
    ROCM_AITER_FA = "vllm.v1.attention.backends.aiter_fa.AiterBackend"
"""
BACKENDS = {
    "triton_attn": "class TritonBackend(AttentionBackend):\n    pass\n",
    "rocm_attn": """
class RocmBackend(AttentionBackend):
    @classmethod
    def get_supported_head_sizes(cls): return [64, 128]
""",
    "aiter_fa": """
class AiterBackend(AttentionBackend):
    def forward(self):
        from aiter.ops import attention
""",
}
CARD = """
_ON_GFX9 = any(arch in _GCN_ARCH for arch in ["gfx90a", "gfx942"])
_ON_GFX906 = "gfx906" in _GCN_ARCH

def on_gfx9():
    return _ON_GFX9

def on_gfx906():
    return _ON_GFX906

def use_rocm_custom_paged_attention(head_size):
    if _ON_GFX9:
        return head_size in (64, 128)
    return False
"""
FORK = (
    CARD
    + """
def _get_backend_priorities(use_mla, use_sparse, use_kv_connector=False):
    backends = []
    if not use_kv_connector:
        backends.append(AttentionBackendEnum.ROCM_ATTN)
    if is_aiter_found_and_supported():
        backends.append(AttentionBackendEnum.ROCM_AITER_FA)
    backends.append(AttentionBackendEnum.TRITON_ATTN)

    if on_gfx906():
        backends.remove(AttentionBackendEnum.TRITON_ATTN)
        backends.insert(0, AttentionBackendEnum.TRITON_ATTN)

    return backends
"""
)
FORK_OPS = """
def is_aiter_found_and_supported():
    if not current_platform.is_rocm():
        return False
    from vllm.platforms.rocm import on_gfx9, on_gfx906
    if IS_AITER_FOUND or on_gfx906():
        return on_gfx9() or on_gfx906()
    return False
"""
OLDER = (
    CARD
    + """
class RocmPlatform(Platform):
    @classmethod
    def get_attn_backend_cls(cls, selected_backend, head_size, use_mla, use_sparse):
        if use_mla:
            return AttentionBackendEnum.TRITON_MLA.get_path()

        if selected_backend == AttentionBackendEnum.TRITON_ATTN:
            return AttentionBackendEnum.TRITON_ATTN.get_path()

        if selected_backend == AttentionBackendEnum.ROCM_AITER_FA:
            if on_gfx9():
                return AttentionBackendEnum.ROCM_AITER_FA.get_path()
            else:
                raise ValueError("not here")

        if selected_backend is None:
            if envs.VLLM_ROCM_USE_AITER and on_gfx9():
                return AttentionBackendEnum.ROCM_AITER_FA.get_path()

            if envs.VLLM_USE_SPLIT:
                return AttentionBackendEnum.ROCM_ATTN.get_path()

            return AttentionBackendEnum.TRITON_ATTN.get_path()

        raise RuntimeError("unknown")
"""
)
SWITCHES = {
    "VLLM_ATTENTION_BACKEND": Knob(name="VLLM_ATTENTION_BACKEND", kind="str", optional=True),
    "VLLM_ROCM_USE_AITER": Knob(name="VLLM_ROCM_USE_AITER", kind="bool", default=False, default_known=True),
    "VLLM_USE_SPLIT": Knob(name="VLLM_USE_SPLIT", kind="bool", default=False, default_known=True),
}


def plant(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "vllm"
    backends = {f"v1/attention/backends/{name}.py": text for name, text in BACKENDS.items()}
    for name, text in (files | backends).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    files = {"v1/attention/backends/registry.py": REGISTRY, "platforms/rocm.py": FORK, "_aiter_ops.py": FORK_OPS}
    return plant(tmp_path, files)


@pytest.fixture
def older(tmp_path: Path) -> Path:
    return plant(tmp_path, {"attention/backends/registry.py": REGISTRY, "platforms/rocm.py": OLDER})


def found(tree: Path, sizes: tuple[int, ...] = (128,), arch: str = "gfx906", **more: Any) -> list[Finding]:
    sheet = read_sheet(arch)
    knobs = KNOBS.model_copy(update={"path": str(tree), "version": UNTOLD})
    held: dict[str, Any] = {"knobs": knobs, "model": model(*sizes), "sheet": sheet, "card": sheet.card()}
    return look(dossier(**{**held, "spec": spec(), **more}))


def older_knobs(tree: Path) -> Any:
    flags = {name: knob for name, knob in KNOBS.flags.items() if name != "attention-backend"}
    return KNOBS.model_copy(update={"path": str(tree), "version": UNTOLD, "flags": flags, "env": SWITCHES})


# --- a fork that puts one first for its card ---


def test_what_a_fork_takes_out_and_puts_first_is_there_once(fork: Path) -> None:
    title = next(f for f in found(fork) if "tries" in f.title)
    assert title.title == (
        "this vLLM tries 3 attention back ends on gfx906; the first that is valid wins: TRITON_ATTN for heads of 128"
    )
    assert [e.detail for e in title.evidence] == [
        "TRITON_ATTN: if on_gfx906() (holds)",
        "ROCM_ATTN: if not use_kv_connector (holds)",
        "ROCM_AITER_FA: if is_aiter_found_and_supported() (holds)",  # as this fork answers, not as upstream does
    ]


def test_another_than_the_one_put_first_by_name_is_less_likely_to_win(fork: Path) -> None:
    (proposed,) = [f for f in found(fork) if f.kind == "opportunity"]
    assert proposed.terms is not None and proposed.terms.probability == 0.1
    assert any(
        e.detail == "this tree puts TRITON_ATTN first for gfx906 by name: on_gfx906()" for e in proposed.evidence
    )
    (elsewhere,) = [f for f in found(fork, arch="gfx90a") if f.change and f.change.after == "TRITON_ATTN"]
    assert elsewhere.terms is not None and elsewhere.terms.probability == 0.15


def test_on_another_card_the_fork_has_upstreams_order(fork: Path) -> None:
    names = [t.name for t in order(fork, {"on_gfx906()": False, "use_kv_connector": False}) if t.holds is not False]
    assert names == ["ROCM_ATTN", "ROCM_AITER_FA", "TRITON_ATTN"]


def test_which_kernel_decodes_is_said_by_the_trees_own_question(fork: Path) -> None:
    barred = next(f for f in found(fork) if "cannot serve" in f.title)
    assert barred.title.endswith("on gfx906: ROCM_AITER_FA")
    assert [e.detail for e in barred.evidence] == [
        "ROCM_AITER_FA: it imports AITER, whose kernels are for CDNA3 on",
        "ROCM_ATTN is not barred, but its own decode kernel is compiled for gfx90a, gfx942 and gfx950 only (matrix "
        "instructions, which gfx906 has not); use_rocm_custom_paged_attention() says no to gfx906, so a Triton kernel "
        "decodes",
    ]


def test_where_the_question_may_be_answered_yes_it_says_so(tmp_path: Path) -> None:
    text = FORK.replace('["gfx90a", "gfx942"]', '["gfx9"]')
    files = {"v1/attention/backends/registry.py": REGISTRY, "platforms/rocm.py": text, "_aiter_ops.py": FORK_OPS}
    barred = next(f for f in found(plant(tmp_path, files)) if "cannot serve" in f.title)
    assert "may be true of gfx906 too" in barred.evidence[-1].detail


@pytest.mark.parametrize(("arch", "answer"), [("gfx906", True), ("gfx90a", UNKNOWN), ("gfx1201", False)])
def test_what_one_function_of_a_tree_answers(fork: Path, arch: str, answer: object) -> None:
    said = answer_of(fork, "_aiter_ops.py", "is_aiter_found_and_supported", arch, IS_AITER_FOUND=UNKNOWN)
    assert said is answer
    assert answer_of(fork, "_aiter_ops.py", "no_such_function", arch) is UNKNOWN
    assert answer_of(fork, "nothing.py", "no_such_file", arch) is UNKNOWN


# --- vLLM up to 0.12 ---


def test_the_older_registry_is_read_where_it_is(older: Path) -> None:
    assert [e.where for e in registered(older)][0] == "vllm/attention/backends/registry.py:3"
    (older / "attention/backends/registry.py").unlink()
    with pytest.raises(BackendsError, match=r"^v1/attention/backends/registry\.py is not there"):
        registered(older)


def test_an_older_vllm_chooses_without_an_order(older: Path) -> None:
    seen = found(older, knobs=older_knobs(older))
    chosen = next(f for f in seen if "takes one" in f.title)
    assert chosen.title == (
        "this vLLM takes one attention back end for all layers on gfx906: TRITON_ATTN for heads of 128"
    )
    assert [e.detail for e in chosen.evidence] == [
        "ROCM_AITER_FA: if envs.VLLM_ROCM_USE_AITER and on_gfx9() (does not hold)",
        "ROCM_ATTN: if envs.VLLM_USE_SPLIT (does not hold)",
        "TRITON_ATTN: always",
    ]
    assert "environment: VLLM_ATTENTION_BACKEND=NAME" in chosen.fix
    assert "NIGHTGATE_ATTENTION_PRIORITY" not in chosen.fix


def test_there_a_variable_is_proposed_and_its_line_known(older: Path) -> None:
    proposed = next(f for f in found(older, knobs=older_knobs(older)) if f.kind == "opportunity")
    assert proposed.change == Change(
        lever=Lever.ENVIRONMENT, key="VLLM_ATTENTION_BACKEND", before=None, after="ROCM_ATTN"
    )
    assert proposed.title.endswith("by an environment variable")
    assert proposed.fix == "VLLM_ATTENTION_BACKEND=ROCM_ATTN"
    probe = probe_for(proposed.change, older_knobs(older))
    assert (probe.kind, probe.pattern, probe.under_load) == ("log_line", "Using Rocm Attention backend", False)


def test_a_switch_that_is_set_there_counts(older: Path) -> None:
    seen = found(older, knobs=older_knobs(older), spec=spec(env={"VLLM_USE_SPLIT": "1"}))
    assert "ROCM_ATTN for heads of 128" in next(f for f in seen if "takes one" in f.title).title


def test_what_the_variable_asks_for_is_what_is_set(older: Path) -> None:
    seen = found(older, knobs=older_knobs(older), spec=spec(env={"VLLM_ATTENTION_BACKEND": "ROCM_ATTN"}))
    assert any(f.title.startswith("All attention layers are given ROCM_ATTN") for f in seen)
    again = next(f for f in seen if f.change)
    assert again.change is not None
    assert (again.change.before, again.change.after) == ("ROCM_ATTN", "TRITON_ATTN")


def test_there_layers_of_two_kinds_get_no_order(older: Path) -> None:
    assert not [f for f in found(older, (128, 256), knobs=older_knobs(older)) if f.kind == "opportunity"]


# --- source that nobody wrote for a reader ---


def test_a_rule_that_stumbles_over_the_source_speaks_against_nothing(tmp_path: Path) -> None:
    """The reader says that it failed; a change that a prior or a person proposes is tried, and no night ends."""
    text = FORK.replace("insert(0,", f"insert({10**30},").replace("on_gfx906():\n        b", "True:\n        b")
    files = {"v1/attention/backends/registry.py": REGISTRY, "platforms/rocm.py": text, "_aiter_ops.py": FORK_OPS}
    knobs = KNOBS.model_copy(update={"path": str(plant(tmp_path, files)), "version": UNTOLD})
    sheet = read_sheet("gfx906")
    by_hand = TryItem(lever=Lever.ENGINE_FLAG, key="attention-backend", after="ROCM_ATTN", why="by hand")
    subject = dossier(knobs=knobs, model=model(128), sheet=sheet, card=sheet.card(), spec=spec(), try_first=(by_hand,))
    said = research(subject, ["attention_backends"])
    assert [h.change.after for h in said.hypotheses] == ["ROCM_ATTN"]
    assert any("reader attention_backends failed" in line for line in said.dropped)
