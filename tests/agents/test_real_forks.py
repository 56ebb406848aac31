"""Two real forks of vLLM for gfx906, as an audit reads them. They are on no package index, so these tests skip unless
NIGHTGATE_REAL_TREES (tests/real_trees.py) names a folder with checkouts called vllm-gfx906-mobydick
(ai-infos/vllm-gfx906-mobydick at ff063e44e) and vllm-gfx906-nlzy (nlzy/vllm-gfx906 at 6dcb94a87)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.dossier import Dossier
from agents.research.gates.files import read_files
from agents.research.gates.survey import survey
from agents.research.model_shape import model_shape
from agents.research.readers import arch_gates, attention_backends, dtype, known_priors, moe_tables, prior
from agents.research.vllm_source import knobs_from_source
from cards.sheet import read_sheet
from tests.agents.examples import dossier, spec, workload
from tests.real_trees import FOLDER

PRIORS = Path(__file__).resolve().parents[2] / "configs/priors/gfx906.yaml"
DENSE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}  # fmt: skip
EXPERTS = DENSE | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8,
}  # fmt: skip


def package(name: str) -> Path:
    found = FOLDER / f"vllm-gfx906-{name}" / "vllm"
    if not (found / "engine").is_dir():
        pytest.skip(f"no checkout vllm-gfx906-{name} here")
    return found


def about(name: str, config: dict[str, Any] = DENSE) -> Dossier:
    sheet = read_sheet("gfx906")
    return dossier(
        card=sheet.card(), sheet=sheet, knobs=knobs_from_source(package(name)), model_config_json=config,
        model=model_shape(config), priors=(str(PRIORS),), spec=spec(flags={"dtype": "float16"}),
        workload=workload(concurrency=1, input_tokens=(2000, 6000)),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["mobydick", "nlzy"])
def test_each_place_that_asks_for_this_card_is_answered_yes(name: str) -> None:
    found = survey(read_files(package(name), "gfx906"), "gfx906")
    assert {gate.answer for gate in found.gates["on_gfx906"]} == {True}
    assert not [f.title for f in arch_gates.look(about(name)) if "on_gfx906 says no" in f.title]


def test_mobydick_lets_fp8_in_by_name_and_asks_for_no_aiter() -> None:
    found = {f.title.split(" by name")[0]: f.kind for f in arch_gates.look(about("mobydick"))}
    assert found["supports_fp8 says yes for gfx906"] == "fact"
    assert not any("no AITER kernel" in title for title in found)


def test_the_order_of_each() -> None:
    (own,) = [f for f in attention_backends.look(about("mobydick")) if "tries" in f.title]
    assert "tries 4 attention back ends on gfx906; the first that is valid wins: TRITON_ATTN" in own.title
    (older,) = [f for f in attention_backends.look(about("nlzy")) if "takes one" in f.title]
    assert older.title.endswith("for all layers on gfx906: TRITON_ATTN for heads of 128")


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("mobydick", ["VLLM_TRITON_ATTN_NUM_PAR_SOFTMAX_SEGMENTS"] * 2 + ["VLLM_TORCH_SDPA_PREFILL"]),
        ("nlzy", []),
    ],
)
def test_a_forks_own_variables_are_tried_on_it_alone(name: str, keys: list[str]) -> None:
    assert [h.change.key for h in prior.read(about(name))] == keys
    assert not [f for f in known_priors.look(about(name)) if f.kind == "opportunity" and f.change is None]


def test_nlzy_takes_no_bf16_and_mobydick_does() -> None:
    asked_for = {name: about(name).model_copy(update={"spec": spec()}) for name in ("mobydick", "nlzy")}
    assert {name: dtype.look(subject)[0].kind for name, subject in asked_for.items()} == {
        "mobydick": "opportunity",
        "nlzy": "fact",
    }


@pytest.mark.parametrize("name", ["mobydick", "nlzy"])
def test_tables_of_experts_are_named_as_the_fork_asks(name: str) -> None:
    asked = [e.detail for f in moe_tables.look(about(name, EXPERTS)) for e in f.evidence if "asked for" in e.detail]
    assert asked and all("device_name=AMD_GFX906" in detail for detail in asked)
