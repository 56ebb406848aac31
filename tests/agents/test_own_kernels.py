"""Nightgate's own kernel for 4-bit weights: proposed where it was made for, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.finding import Finding
from agents.research.rank import research
from agents.research.readers.own_kernels import look
from cards.sheet import read_sheet
from contracts import Change, Lever
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.test_roofline_reader import MODEL

VLLM = Path(__file__).parent / "made_up_vllm"  # what must stand there for the kernel to serve
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
PACKED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "symmetric": True}}},
}


def night(arch: str = "gfx906", quantization: dict[str, Any] | None = None, users: int = 4, **fields: Any) -> Any:
    config = AWQ if quantization is None else quantization
    sheet = read_sheet(arch)
    held: dict[str, Any] = {
        "model": MODEL.model_copy(update={"quantization": config.get("quant_method"), "quantization_config": config}),
        "sheet": sheet,
        "card": sheet.card(),
        "spec": spec(flags={"dtype": "float16"}),
        "knobs": KNOBS.model_copy(update={"path": str(VLLM)}),
        "workload": workload(concurrency=users, input_tokens=(1000, 1000), output_tokens=(200, 200)),
    }
    return dossier(**{**held, **fields})


def test_a_card_without_matrix_units_is_offered_the_kernel_that_is_made_for_it() -> None:
    (found,) = look(night())
    assert found.change == Change(lever=Lever.KERNEL_TABLE, key="w4a16_linear#dispatch", before=None, after=True)
    assert found.title.endswith("gfx906 has none, and nightgate's kernel reads each weight once a decode step")
    assert found.terms is not None and (found.terms.speedup, found.terms.probability) == (1.2, 0.3)
    assert found.terms.gain == pytest.approx(1.0195, abs=1e-4) and not found.terms.share_measured
    (tried,) = research(night(), ["own_kernels"]).hypotheses
    assert tried.change == found.change and "never timed there" in tried.evidence[-1].detail


def test_a_vllm_without_the_place_to_serve_is_offered_nothing() -> None:
    assert look(night(knobs=KNOBS.model_copy(update={"path": str(VLLM / "model_executor")}))) == []


def test_more_sequences_read_the_weights_again() -> None:
    (found,) = look(night(users=24))
    assert "reads each weight 3 times a decode step" in found.title
    assert found.terms is not None and found.terms.probability == 0.1


@pytest.mark.parametrize(
    "fields",
    [
        {"arch": "gfx950"},
        {"arch": "gfx942"},
        {"users": 65},
        {"quantization": {}},
        {"quantization": AWQ | {"bits": 8}},
        {"quantization": AWQ | {"quant_method": "gptq", "desc_act": True}},
        {"quantization": PACKED | {"config_groups": {}}},
        {"spec": spec(flags={"dtype": "float32"})},
        {"spec": spec(overlay={"kernel_table": {"w4a16_linear#dispatch": True}})},
    ],
    ids=str,
)
def test_where_it_is_not_for(fields: dict[str, Any]) -> None:
    assert look(night(**fields)) == []


@pytest.mark.parametrize("config", [PACKED, AWQ | {"quant_method": "gptq", "desc_act": False}], ids=str)
def test_other_formats_of_the_same_weights(config: dict[str, Any]) -> None:
    found: list[Finding] = look(night(quantization=config))
    assert len(found) == 1
