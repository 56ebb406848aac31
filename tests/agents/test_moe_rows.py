"""Rows and tables of fused-MoE tiles that the reader proposes: from whom, for which card, and not twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.dossier import Dossier
from agents.research.finding import Finding
from agents.research.knobs import Knob
from agents.research.model_shape import ModelShape
from agents.research.rank import research
from agents.research.readers import READERS, moe_tables
from agents.research.tables.moe_default import SOURCE, default_tile
from agents.research.tables.moe_json import MoeName
from agents.stages.opening import settled
from agents.state import Progress
from agents.tuning.apply import apply
from agents.tuning.static_check import static_check
from cards.sheet import CardSheet, read_sheet
from contracts import Change, Container
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.tables_examples import HUGE, INT4, TILE, sheet, with_experts, write
from tests.agents.test_moe_tables import MINE, MOE_TILE, VARIABLE, tree

MATRIX = {**MOE_TILE, "matrix_instr_nonkdim": 16, "kpack": 2}
# The same kinds of statements as in vLLM's function; the numbers are the test's own.
RULE = """
def get_default_config(
    M: int,
    E: int,
    dtype: str | None,
    block_shape: list[int] | None = None,
) -> dict[str, int]:
    if envs.VLLM_BATCH_INVARIANT:
        return {"BLOCK_SIZE_M": 1}
    stages_rocm = 2
    if dtype == "fp8_w8a8" and block_shape is not None:
        config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": block_shape[0], "BLOCK_SIZE_K": block_shape[1]}
    elif dtype in ["int4_w4a16"] and block_shape is not None:
        config = {"BLOCK_SIZE_M": should_moe_wna16_use_cuda(M)}
    else:
        if current_platform.is_rocm():
            stages = stages_rocm
        else:
            stages = 3
        config = {
            "BLOCK_SIZE_M": 32 if M <= 96 else 128,
            "BLOCK_SIZE_N": 64,
            "BLOCK_SIZE_K": 64,
            "GROUP_SIZE_M": 16 if M // max(E, 1) > 128 else 1,
            "num_stages": stages,
        }
    return config
"""


def subject(root: Path, model: ModelShape | None = None, held: CardSheet | None = None, **more: Any) -> Dossier:
    """64 sequences, prompts of 1024 tokens; a card by its sheet."""
    held = held or sheet()
    given = {"spec": spec(), **more}
    knobs = KNOBS.model_copy(update={"path": str(root / "vllm"), "env": {**KNOBS.env, VARIABLE: Knob(name=VARIABLE)}})
    return dossier(
        card=held.card(),
        sheet=held,
        model=model or with_experts(),
        knobs=knobs,
        workload=workload(concurrency=64, input_tokens=(1024, 1024)),
        **given,
    )


def tried(found: list[Finding]) -> list[Change]:
    return [f.change for f in found if f.change is not None]


def rows(changes: list[Change]) -> list[Any]:
    return [c.after for c in changes]


def test_a_far_row_has_up_to_three_candidates_the_likeliest_first(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    near, tuned = {**MOE_TILE, "num_warps": 1}, {**MOE_TILE, "num_warps": 8}
    # For 1024 tokens vLLM takes the row of 8, |8 - 1024| being less than |2100 - 1024|; 2100 is nearer as a ratio.
    write(folder / MINE, {"64": MOE_TILE, "2100": near})
    write(folder / MINE.replace("MI355X", "MI355_OAM"), {"64": MOE_TILE, "2100": near})
    write(folder / MINE.replace("MI355X", "MI350X"), {"1024": tuned})
    write(tmp_path / "vllm" / SOURCE, RULE)
    found = [f for f in moe_tables.look(subject(tmp_path)) if f.change]
    assert {c.key for c in tried(found)} == {f"{MINE}#1024"}
    ruled = {**{k: MOE_TILE[k] for k in ("BLOCK_SIZE_N", "BLOCK_SIZE_K")}, "BLOCK_SIZE_M": 128}
    assert rows(tried(found)) == [tuned, near, {**ruled, "GROUP_SIZE_M": 1, "num_stages": 2}]
    assert [f.title.rsplit("; ", 1)[1] for f in found] == [
        "the row of 1024 tokens in the table of AMD_Instinct_MI350X can be tried there (1 of 3)",
        "the row of 2100 tokens, the nearest one as a ratio can be tried there (2 of 3)",
        "vLLM's own rule for a size without a table can be tried there (3 of 3)",
    ]
    likely = [f.terms.probability for f in found if f.terms]
    assert likely == sorted(likely, reverse=True) and found[0].terms is not None and found[0].terms.phase == "prefill"


def test_vllms_own_rule_is_followed_without_running_it(tmp_path: Path) -> None:
    write(tmp_path / "vllm" / SOURCE, RULE)
    asked = MoeName(experts=8, width=768, device="X")
    here, vllm = subject(tmp_path), tmp_path / "vllm"
    got = default_tile(here, vllm, asked, 96)
    assert got is not None and got.tile["BLOCK_SIZE_M"] == 32 and got.tile["num_stages"] == 2
    nvidia = here.model_copy(update={"card": read_sheet("sm_90").card()})
    got = default_tile(nvidia, vllm, asked, 1040)
    assert got is not None and (got.tile["GROUP_SIZE_M"], got.tile["num_stages"]) == (16, 3)
    block = asked.model_copy(update={"dtype": "fp8_w8a8", "block": (128, 64)})
    got = default_tile(here, vllm, block, 1)
    assert got is not None and got.tile["BLOCK_SIZE_N"] == 128
    # What is decided elsewhere, and what is no plain statement, is not known.
    assert default_tile(here, vllm, asked.model_copy(update={"dtype": "int4_w4a16", "block": (0, 32)}), 1) is None
    write(vllm / SOURCE, RULE.replace("    return config", "    config.update(more())\n    return config"))
    assert default_tile(here, vllm, asked, 96) is None


def test_a_card_without_matrix_cores_borrows_without_their_settings(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    write(folder / MINE.replace("MI355X", "MI300X"), {"64": MATRIX})
    write(folder / MINE.replace("MI355X", "MI325X"), {"64": HUGE | {"GROUP_SIZE_M": 1}})  # above 64 KiB of LDS
    old = sheet("gfx906", lds=64 << 10, mfma=False)
    [found] = [f for f in moe_tables.look(subject(tmp_path, held=old)) if f.change]
    assert rows(tried([found])) == [{"64": MOE_TILE}] and "without kpack and matrix_instr_nonkdim" in found.title


def test_a_tile_narrower_than_its_matrix_instruction_is_not_borrowed(tmp_path: Path) -> None:
    thin = {**MATRIX, "BLOCK_SIZE_M": 16, "matrix_instr_nonkdim": 32}
    write(tree(tmp_path) / MINE.replace("MI355X", "MI300X"), {"64": thin})
    assert tried(moe_tables.look(subject(tmp_path))) == []


def test_experts_of_nearly_this_width_lend_their_table_the_nearest_first(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    for width, warps in ((1024, 1), (1600, 2), (2048, 4), (384, 8)):
        name = MINE.replace("N=768", f"N={width}").replace("MI355X", "MI300X")
        write(folder / name, {"64": {**MOE_TILE, "num_warps": warps}})
    found = [f for f in moe_tables.look(subject(tmp_path)) if f.change]
    assert [row["64"]["num_warps"] for row in rows(tried(found))] == [
        1,
        8,
        1,
    ]  # 1.33 times as wide; half as wide; then the best under the other name
    assert "experts of width 1024" in found[0].title


def test_an_h200_asks_the_same_tables_and_borrows_from_nvidia_only(tmp_path: Path) -> None:
    folder, h200 = tree(tmp_path), read_sheet("sm_90")
    mine = MINE.replace("AMD_Instinct_MI355X", "NVIDIA_H200")
    write(folder / MINE, {"64": MOE_TILE})
    write(folder / mine.replace("H200", "H100_80GB_HBM3"), {"64": {**MOE_TILE, "num_stages": 4}})
    write(folder / mine.replace("H200", "B200"), {"64": {**MOE_TILE, "num_stages": 3}})
    found = [f for f in moe_tables.look(subject(tmp_path, held=h200)) if f.change]
    assert [c.key for c in tried(found)] == [f"{mine}#*"] * 2
    assert [row["64"]["num_stages"] for row in rows(tried(found))] == [4, 3]  # the same arch first
    write(folder / mine, {"64": HUGE | {"GROUP_SIZE_M": 1}, "1024": MOE_TILE})
    traps = [f.title for f in moe_tables.look(subject(tmp_path, held=h200)) if f.kind == "trap"]
    assert traps == ["1 fused-MoE entries of this card need more LDS than its 232448 bytes (estimate)"]


def test_the_engines_own_log_says_what_the_card_is_called(tmp_path: Path) -> None:
    write(tree(tmp_path) / MINE.replace("MI355X", "MI300X"), {"64": MOE_TILE})
    said = MINE.replace("MI355X", "MI355_OAM")
    log = f"INFO started\nWARNING Using default MoE config. Config file not found at /x/{said}, /y/configs/{said}\n"
    given = (str(write(tmp_path / "engine.log", log)),)
    found = [f for f in moe_tables.look(subject(tmp_path, engine_logs=given)) if f.change]
    assert [c.key for c in tried(found)] == [f"{said}#*"]
    assert found[0].evidence[1].source == "engine.log:2"
    # A log that names no table at all: another kernel may serve the experts.
    silent = (str(write(tmp_path / "silent.log", "INFO started\n")),)
    found = [f for f in moe_tables.look(subject(tmp_path, engine_logs=silent)) if f.change]
    assert found[0].terms is not None and found[0].terms.probability == pytest.approx(0.3 * 0.7 * 0.3)
    assert found[0].evidence[2].source == "silent.log"


def test_what_was_tried_or_refused_is_not_proposed_again_and_alternatives_start_from_what_was_kept(
    tmp_path: Path,
) -> None:
    folder = tree(tmp_path)
    for device, warps in (("MI350X", 1), ("MI300X", 2)):
        write(folder / MINE.replace("MI355X", device), {"64": {**MOE_TILE, "num_warps": warps}})
    assert READERS["moe_tables"].for_nights
    before = subject(tmp_path)
    first, second, _ = (h.change for h in research(before, ["moe_tables"]).hypotheses)
    assert all(static_check(c, before.spec, before.knobs) is None for c in (first, second))
    kept = before.model_copy(update={"spec": apply(before.spec, first)})
    again = [h.change for h in research(kept, ["moe_tables"]).hypotheses]
    assert first.after not in [c.after for c in again if c.key == first.key]
    [other] = [c for c in again if c.after == second.after]
    assert other.before == first.after  # against what was kept, not against the default
    assert static_check(other, kept.spec, kept.knobs) is None
    night = Progress(base=before.spec, incumbent=kept.spec, tried=(first, second))
    assert settled(second, night) == settled(other, night) == "tried tonight"
    refused = before.model_copy(update={"refused_before": (second.id,)})
    assert second not in [h.change for h in research(refused, ["moe_tables"]).hypotheses]


def test_an_image_gets_the_advice_and_no_change(tmp_path: Path) -> None:
    write(tree(tmp_path) / MINE.replace("MI355X", "MI300X"), {"64": MOE_TILE})
    inside = subject(tmp_path, spec=spec(container=Container(image="rocm/vllm:x")))
    found = moe_tables.look(inside)
    assert tried(found) == [] and any("AMD_Instinct_MI300X can be tried" in f.title for f in found)


@pytest.mark.parametrize("model", [with_experts(quantization_config=INT4)])
def test_a_table_of_other_arithmetic_is_not_lent(tmp_path: Path, model: ModelShape) -> None:
    write(tree(tmp_path) / MINE.replace("MI355X", "MI300X"), {"64": TILE | {"GROUP_SIZE_M": 1}})
    assert tried(moe_tables.look(subject(tmp_path, model))) == []


def test_a_damaged_row_costs_itself_and_not_what_the_reader_finds_beside_it(tmp_path: Path) -> None:
    """A size of 400 digits is more than a float holds; a word of a million letters is no evidence."""
    folder, far, tuned = tree(tmp_path), "9" * 400, {**MOE_TILE, "num_warps": 8}
    write(folder / MINE.replace("MI355X", "MI350X"), {"1024": tuned})
    write(folder / MINE, {"8": {**MOE_TILE, "odd": "y" * 1_000_000}, far: MOE_TILE})
    found = [f for f in moe_tables.look(subject(tmp_path)) if f.change]
    assert rows(tried(found))[0] == tuned
    assert all(len(e.detail) < 1000 for f in found for e in f.evidence)
    write(folder / MINE, {far: MOE_TILE})
    both = [c for c in tried(moe_tables.look(subject(tmp_path))) if c.after == tuned]
    assert [c.key for c in both] == [f"{MINE}#64", f"{MINE}#1024"]
