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
from tests.agents.tables_examples import write
from tests.agents.test_roofline_reader import MODEL

VLLM = Path(__file__).parent / "made_up_vllm"  # what must stand there for the kernel to serve
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
PACKED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "symmetric": True}}},
}


def packed(weights: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    (group,) = PACKED["config_groups"].values()
    return PACKED | {"config_groups": {"group_0": {"weights": group["weights"] | (weights or {}), **more}}}


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
    assert found.title.endswith("gfx906 has none; nightgate's reads each weight once a decode step")
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


GPTQ = AWQ | {"quant_method": "gptq", "desc_act": False}
ASKS = "kernel = choose_mp_linear_kernel(config)\n"
LIST = "_POSSIBLE_KERNELS: dict = {}\n"


def tree(at: Path, files: dict[str, str]) -> dict[str, Any]:
    for file, text in files.items():
        write(at / "vllm/model_executor" / file, text)
    return {"knobs": KNOBS.model_copy(update={"path": str(at / "vllm")})}


@pytest.mark.parametrize(
    ("config", "named", "files"),
    [
        (AWQ, "layers/quantization/awq.py:2", {"layers/quantization/awq.py": "\nif on_gfx906(): ...\n"}),
        (GPTQ, "kernels/linear/__init__.py:3", {"kernels/linear/__init__.py": LIST + "\nif on_gfx906(): ...\n"}),
        (PACKED, "kernels/linear/mixed_precision/exllama.py:1",
         {"kernels/linear/mixed_precision/exllama.py": "def on_gfx906(): ...\n"}),
    ],
)  # fmt: skip
def test_a_fork_with_kernels_of_its_own_for_the_card_leaves_less_to_win(
    config: dict[str, Any], named: str, files: dict[str, str], tmp_path: Path
) -> None:
    """Two forks for gfx906 (ai-infos/vllm-gfx906-mobydick, nlzy/vllm-gfx906) have one; these are made up."""
    held = {"kernels/linear/__init__.py": LIST, "layers/quantization/auto_gptq.py": ASKS}
    (found,) = look(night(quantization=config, **tree(tmp_path, held | files)))
    assert "by kernels that this vLLM has for gfx906; nightgate's reads" in found.title
    assert found.evidence[0].source == f"vllm/model_executor/{named}"
    assert found.terms is not None and (found.terms.speedup, found.terms.probability) == (1.1, 0.05)
    assert found.terms.speedup_from.startswith("judged")


def test_the_list_of_kernels_stood_elsewhere_before(tmp_path: Path) -> None:
    old = tree(tmp_path, {"layers/quantization/kernels/mixed_precision/__init__.py": LIST})
    assert len(look(night(**old))) == len(look(night(quantization=PACKED, **old))) == 1
    assert look(night(quantization=GPTQ, **old)) == []  # whose layers asked no list then


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
        {"quantization": packed(weights={"type": "float", "group_size": 16})},  # NVFP4
        {"quantization": packed(input_activations={"num_bits": 8, "type": "int", "dynamic": True})},  # W4A8
        {"quantization": AWQ | {"zero_point": False}},
        {"spec": spec(flags={"dtype": "float32"})},
        {"spec": spec(overlay={"kernel_table": {"w4a16_linear#dispatch": True}})},
    ],
    ids=str,
)
def test_where_it_is_not_for(fields: dict[str, Any]) -> None:
    assert look(night(**fields)) == []


@pytest.mark.parametrize("config", [PACKED, GPTQ], ids=str)
def test_other_formats_of_the_same_weights(config: dict[str, Any], tmp_path: Path) -> None:
    now = tree(tmp_path, {"kernels/linear/__init__.py": LIST, "layers/quantization/auto_gptq.py": ASKS})
    found: list[Finding] = look(night(quantization=config, **now))
    assert len(found) == 1
