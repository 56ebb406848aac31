"""Which entry of a tile table serves a call, when that is another regime's, and what is proposed."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.research.conditions import When, unmet
from agents.research.dossier import Dossier, PhaseProfile
from agents.research.readers.attention_tables import look
from agents.research.tables import attention_source
from agents.research.tables.attention import (
    Call,
    Section,
    candidates,
    lookup,
    misplaced,
    never_served,
    read_sections,
    slots_of,
)
from agents.research.tables.attention_entry import Limits, check, propose
from tests.agents import attention_trees as trees
from tests.agents.examples import GFX950, KNOBS, dossier, spec, workload

CHECKOUT = Path(__file__).resolve().parents[2]
STOCK = CHECKOUT.parent / "shared/data/aiter_configs/unified_attention_gfx950_DEFAULT__aiter-110cefd8.json"
WIDE = Call(head_size=512, rows=10_000, window=False, q_tag="fp8", kv_tag="fp8", queries_per_kv=8, page=64)
CARD = Limits(lds_bytes=160 * 1024, vgprs=512, wavefront=64)


def section(raw: dict[str, Any] = trees.TABLE, name: str = "attn_2d") -> Section:
    return read_sections(raw)[0][name]


def stock() -> dict[str, Any]:
    if not STOCK.exists():
        pytest.skip("no ../shared/data/aiter_configs here: the stock table is not part of this repository")
    raw: dict[str, Any] = json.loads(STOCK.read_text())
    return raw


def night(
    tmp_path: Path, table: Any = trees.TABLE, flags: dict[str, Any] | None = None, env: dict[str, str] | None = None
) -> Dossier:
    """64 sequences, prompts of 10,000 tokens, two draft tokens, fp8 KV cache, gfx950; prefill is 43 % attention."""
    base = {"kv-cache-dtype": "fp8", "speculative-config": {"num_speculative_tokens": 2}}
    return dossier(
        card=GFX950,
        spec=spec(flags={**base, **(flags or {})}, env=env or {}),
        knobs=KNOBS.model_copy(update={"path": trees.vllm(tmp_path)}),
        workload=workload(concurrency=64, input_tokens=(10_000, 10_000)),
        model=trees.model(),
        sheet=trees.sheet(),
        aiter=trees.aiter(tmp_path, table),
        phases=(PhaseProfile(phase="prefill", weight=0.6, shares={"attention": 0.43}, source="profile.json"),),
    )


# --- the lookup ---


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, "D_GEQ_512.DT_fp8_fp8"),  # the head outranks the rows
        ({"rows": 1}, "D_GEQ_512.Q_LEQ_1"),  # and the rows the dtypes
        ({"q_tag": "bf16"}, "D_GEQ_256"),  # no such dtypes at 512: the next lower bound of the head
        ({"head_size": 256}, "D_GEQ_256"),
        ({"head_size": 192}, "Q_GEQ_256"),
        ({"head_size": 128}, "D_LEQ_128.Q_GEQ_256.DT_fp8_fp8"),
        ({"head_size": 128, "rows": 255}, "any"),
    ],
)
def test_the_leftmost_axis_wins_outright(changes: dict[str, Any], key: str) -> None:
    hit = lookup(section(), replace(WIDE, **changes))
    assert hit is not None and hit.key == key


def test_a_tile_is_the_page_within_the_entrys_bounds_and_never_smaller_than_the_heads_of_a_group() -> None:
    table = {"schema": {"s": ["D"]}, "s": {"any": {"BLOCK_M": 16, "TILE_SIZE_MIN": 32, "TILE_SIZE_MAX": 64}}}
    hit = lookup(section(table, "s"), WIDE)
    assert hit is not None
    assert [hit.tile(page) for page in (16, 48, 256)] == [32, 64, 64]
    assert [hit.block_m(heads) for heads in (1, 16, 20)] == [16, 16, 32]


@pytest.mark.parametrize("name", ["attn_2d", "attn_3d", "reduce", "kv_split"])
def test_on_the_stock_table_the_lookup_is_the_first_hit_of_the_product(name: str) -> None:
    held = section(stock(), name)
    index = {slots_of(key, held.axes): key for key in held.entries}
    grid = itertools.product((64, 128, 200, 256, 300, 512, 576), (1, 3, 256), (False, True), ("fp8", "bf16"), ("fp8",))
    for head, rows, window, q_tag, kv_tag in grid:
        call = Call(head, rows, window, q_tag, kv_tag)
        product = itertools.product(*(candidates(held, axis, call.value(axis)) for axis in held.axes))
        hit = lookup(held, call)
        assert hit is not None and hit.key == next(index[slots] for slots in product if slots in index)


def test_entries_that_no_call_can_reach() -> None:
    narrow: dict[str, dict[str, Any]] = {
        "D_GEQ_256.Q_GEQ_16": {},
        "D_GEQ_256": {},
        "Q_LEQ_0": {},
        "D_EQ_64": {},
        "Q_GEQ_1": {},
        "any": {},
    }
    assert never_served(Section("s", ("D", "Q"), narrow)) == ["Q_LEQ_0", "D_EQ_64", "any"]
    assert never_served(section()) == []


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"schema": {"s": ["D", "Z"]}, "s": {}}, "s: the schema names axes that the lookup does not know: ['D', 'Z']"),
        (
            {"schema": {"s": ["D"]}, "s": {"SW": {}}},
            "s: SW names axis SW, which the schema does not have: the lookup raises",
        ),
        ({"schema": {"s": ["D"]}, "s": {"D_LEQ_x": {}}}, "s: D_LEQ_x has a bound that is no number: the lookup raises"),
        ({"schema": {"s": ["D"]}, "s": {"any": 3}}, "s: any holds no entry but 3"),
    ],
)
def test_tables_that_the_lookup_fails_on(table: Any, said: str) -> None:
    assert read_sections(table) == ({}, [said])


# --- another regime's entry ---


@pytest.mark.parametrize(
    ("changes", "ratio"),
    [
        ({}, 8.0),
        ({"head_size": 256, "window": True}, 8.0),
        ({"rows": 255}, None),  # not long by the table's own line
        ({"rows": 3}, None),
        ({"head_size": 128}, None),  # has an entry for long queries
        ({"queries_per_kv": 128}, None),  # the heads alone fill 128 rows
    ],
)
def test_a_long_call_served_by_an_entry_for_any_rows(changes: dict[str, Any], ratio: float | None) -> None:
    found = misplaced(section(), replace(WIDE, **changes))
    assert (found and found.ratio) == ratio


def test_the_proposed_entry_is_the_neighbours_within_the_cards_limits() -> None:
    found = misplaced(section(), WIDE)
    assert found is not None
    made = propose(found, section(), CARD)
    assert made is not None and made.key == "D_GEQ_512.Q_GEQ_256.DT_fp8_fp8"
    # NARROW_PATH is left out: today's entry for this head has no such key. 128 rows of 512 are 256 registers a lane.
    assert made.entry == entry_of(128, 64, waves=1)
    small = propose(found, section(), replace(CARD, lds_bytes=64 * 1024))
    assert small is not None and small.entry == entry_of(32, 32, waves=2)  # (32 + 2 * 32) * 512 bytes
    assert propose(found, section(), replace(CARD, lds_bytes=16 * 1024)) is None


def entry_of(rows: int, tile: int, waves: int) -> dict[str, Any]:
    return trees.entry(rows, tile, waves_per_eu=waves)


def test_a_proposal_is_checked_on_the_changed_table() -> None:
    found = misplaced(section(), WIDE)
    made = propose(found, section(), CARD) if found else None
    assert made is not None
    calls = [WIDE, replace(WIDE, rows=3), replace(WIDE, head_size=256)]
    assert check(section(), made, [WIDE], calls).good
    stray = check(section(), replace(made, key="D_GEQ_256"), [WIDE], calls)
    assert not stray.good
    wide = check(section(), replace(made, key="D_GEQ_512.Q_GEQ_2"), [WIDE], calls)
    assert wide.stray == (replace(WIDE, rows=3),)


def test_rows_between_the_line_and_a_later_bound_are_misplaced_alone() -> None:
    held = section().with_entry("D_GEQ_512.Q_GEQ_1024.DT_fp8_fp8", trees.entry(64, 32))
    short = replace(WIDE, rows=512)
    assert misplaced(held, WIDE) is None
    found = misplaced(held, short)
    made = propose(found, held, CARD) if found else None
    assert made is not None and made.key == "D_GEQ_512.Q_GEQ_256.DT_fp8_fp8"
    assert check(held, made, [short], [WIDE, short]).unmoved == 1


def test_the_stock_gfx950_table_gives_wide_heads_16_rows_and_narrow_ones_128() -> None:
    held = section(stock())
    for head, window, rows, key in (
        (512, False, 16, "D_GEQ_512.DT_fp8_fp8"),
        (256, True, 16, "D_GEQ_256"),
        (128, False, 128, "D_LEQ_128.Q_GEQ_256.DT_fp8_fp8"),
    ):
        hit = lookup(held, replace(WIDE, head_size=head, window=window))
        assert hit is not None and (hit.key, hit.block_m(8)) == (key, rows)
    assert [never_served(s) for s in read_sections(stock())[0].values()] == [[], [], [], []]


# --- the reader ---


def test_wide_heads_get_an_opportunity_each_split_by_their_work(tmp_path: Path) -> None:
    found = look(night(tmp_path, flags={"attention-backend": "WHOLE"}))
    wide, near, *facts = [f for f in found if "another guess" not in f.title]
    assert wide.title == (
        "Prompts of 10,000 rows at head size 512 (full attention) get tiles of 16 rows from D_GEQ_512.DT_fp8_fp8, an "
        "entry for any number of rows; head size 128 gets 128"
    )
    assert wide.evidence[0].source == f"aiter/{trees.FOLDER}/DEFAULT.json#attn_2d.D_GEQ_512.DT_fp8_fp8"
    assert '"D_GEQ_512.Q_GEQ_256.DT_fp8_fp8"' in wide.fix and '"D_GEQ_256.Q_GEQ_256.SW.DT_fp8_fp8"' in near.fix
    said = [e.detail for e in wide.evidence]
    assert "lookup with it in the table: it serves head 512, 10,000 rows, fp8/fp8; 5 other calls keep theirs" in said
    assert wide.terms is not None and near.terms is not None
    assert wide.terms.share + near.terms.share == pytest.approx(0.43 * 0.6)
    full, window = 10_000**2 / 2 * 512 * 10, (1024 * 10_000 - 1024**2 / 2) * 256 * 50
    assert wide.terms.share == pytest.approx(0.43 * 0.6 * full / (full + window))
    assert wide.terms.speedup == pytest.approx(2.71) and wide.terms.probability == 0.6
    assert [f.title for f in facts] == [
        "A decode step of 3 rows (2 draft tokens) at head size 512 is served by D_GEQ_512.DT_fp8_fp8; the entry for "
        "decode, D_GEQ_512.Q_LEQ_1, serves one row only"
    ]


def test_fewer_rows_promise_less(tmp_path: Path) -> None:
    small = trees.sheet().model_copy(update={"lds_bytes": trees.sheet().lds_bytes.model_copy(update={"value": 65536})})
    found = look(night(tmp_path).model_copy(update={"sheet": small}))[0]
    assert found.terms is not None
    assert found.terms.speedup == pytest.approx(2.71 ** (math.log(2) / math.log(8)))  # 16 -> 32 rows
    assert found.terms.probability == 0.4  # no back end is named


def test_an_unknown_share_is_said(tmp_path: Path) -> None:
    found = look(night(tmp_path).model_copy(update={"phases": ()}))[0]
    assert found.terms is not None and found.terms.share_from.startswith("unknown; 5% of all time judged")


def test_prompts_are_cut_at_the_budget_of_a_step(tmp_path: Path) -> None:
    assert "Prompts of 8,192 rows" in look(night(tmp_path, flags={"max-num-batched-tokens": 8192}))[0].title


@pytest.mark.parametrize("backend", ["PART", "other"])
def test_tables_of_a_kernel_that_prompts_do_not_run_on(tmp_path: Path, backend: str) -> None:
    (found,) = look(night(tmp_path, flags={"attention-backend": backend}))
    assert found.kind == "fact"
    assert found.title == (
        f"Unified attention's tiles do not matter to prompts: those run on {backend.upper()}, not on WHOLE"
    )


def test_a_table_in_order_is_a_fact(tmp_path: Path) -> None:
    table = {
        "schema": {"attn_2d": ["D", "Q"]},
        "attn_2d": {"Q_GEQ_256": trees.entry(128, 64), "any": trees.entry(16, 64)},
    }
    (found,) = look(night(tmp_path, table))
    assert found.title == "No entry of another regime serves one of the 6 attention calls of this model"


def test_opt_in_entries_count_only_with_their_variable(tmp_path: Path) -> None:
    long = {"D_GEQ_512.Q_GEQ_256": trees.entry(64, 32), "D_GEQ_256.Q_GEQ_256": trees.entry(64, 32)}
    table = {**trees.TABLE, "attn_2d.OPT_IN": long}
    trees.aiter(tmp_path, loader=trees.LOADER)
    *_, found = look(night(tmp_path, table))
    assert found.title == (
        "attn_2d.OPT_IN applies only with AITER_OWN_SWITCH=1 in the engine's environment; 2 of 6 calls of this model "
        "would get another entry"
    )
    assert found.evidence[-1].source == "aiter/ops/triton/utils/unified_attention_utils.py:1"
    admitted = look(night(tmp_path, table, env={"AITER_OWN_SWITCH": "1"}))
    assert {f.kind for f in admitted} == {"fact"}


@pytest.mark.parametrize(
    ("table", "words"),
    [("{", "is not valid JSON"), (" " * (5 << 20), "more than the 4194304 that are read")],
)
def test_a_broken_table_is_a_trap(tmp_path: Path, table: str, words: str) -> None:
    (found,) = look(night(tmp_path, table))
    assert found.kind == "trap" and words in found.title


def test_a_link_to_itself_is_a_trap(tmp_path: Path) -> None:
    tonight = night(tmp_path)
    table = Path(tonight.aiter) / trees.FOLDER / "DEFAULT.json"
    table.unlink()
    table.symlink_to(table)
    (found,) = look(tonight)
    assert found.kind == "trap" and "a link to nowhere" in found.title


def test_a_table_of_another_layout_is_a_fact(tmp_path: Path) -> None:
    (found,) = look(night(tmp_path, {"attn_2d": {"decode": {}}}))
    assert found.kind == "fact" and "no schema" in found.title


def test_tables_that_the_engine_never_reads_on_this_card(tmp_path: Path) -> None:
    subject = night(tmp_path)
    platform = tmp_path / "vllm/platforms/rocm.py"
    platform.parent.mkdir()
    platform.write_text("def get_cdna_version():\n    if on_gfx942():\n        return 3\n    return 0\n")
    (only,) = look(subject)
    assert only.kind == "fact"
    assert only.title == f"vLLM {KNOBS.version} never calls AITER on gfx950: its attention tiles do not matter"
    assert only.evidence[0].detail == "get_cdna_version() answers 0; AITER is used from 3 on"


def test_nothing_is_said_without_an_amd_card_a_model_or_an_aiter(tmp_path: Path) -> None:
    good = night(tmp_path)
    assert look(dossier(model=good.model, aiter=good.aiter)) == []  # a CPU
    assert look(good.model_copy(update={"model": None})) == []
    assert look(good.model_copy(update={"aiter": ""})) == []


# --- a prior's question to the tree ---


def test_a_prior_of_larger_tiles_asks_the_tree_whether_they_are_there(tmp_path: Path) -> None:
    when = When(prompt_tile_rows_below=128)
    assert unmet(when, night(tmp_path)) is None  # 16 rows: it would be new
    good = {**trees.TABLE, "attn_2d": {"any": trees.entry(128, 64)}}
    assert unmet(when, night(tmp_path, good)) == (
        "prompts get tiles of 128 rows here already (128 at head size 512, 128 at head size 256: "
        f"aiter/{trees.FOLDER}/DEFAULT.json#attn_2d.any)"
    )
    half = {**trees.TABLE, "attn_2d": {"D_GEQ_512": trees.entry(16, 64), "any": trees.entry(128, 64)}}
    assert unmet(when, night(tmp_path, half)) is None
    other = night(tmp_path, good, flags={"attention-backend": "OTHER"})
    assert unmet(when, other) == "prompts run on OTHER, which has another kernel for them"


def test_a_tree_that_says_nothing_does_not_speak_against_a_prior(tmp_path: Path) -> None:
    when = When(prompt_tile_rows_below=128)
    assert unmet(when, night(tmp_path).model_copy(update={"aiter": ""})) is None
    assert unmet(when, night(tmp_path, "{")) is None
    strange = trees.FUNCTION.replace("if not all_decode", "if measured(head_size)")
    trees.aiter(tmp_path / "strange", function=strange)
    subject = night(tmp_path / "strange", None)
    assert unmet(when, subject) is None


def test_python_tiles_answer_too(tmp_path: Path) -> None:
    trees.aiter(tmp_path, function=trees.FUNCTION.replace("head_size >= 512", "head_size >= 1024"))
    said = unmet(When(prompt_tile_rows_below=128), night(tmp_path, None))
    assert said is not None and said.endswith("head size 256: aiter/ops/triton/attention/unified_attention.py:14)")


# --- older AITER: tiles in Python ---


def test_python_tiles_are_followed_without_running_them(tmp_path: Path) -> None:
    trees.aiter(tmp_path, function=trees.FUNCTION)
    wide, near = look(night(tmp_path, None))
    assert wide.title == (
        "Prompts of 10,000 rows at head size 512 (full attention) get tiles of 16 rows, whatever their length; "
        "head size 128 gets 128"
    )
    where = "aiter/ops/triton/attention/unified_attention.py"
    assert [e.source for e in wide.evidence[:3]] == [f"{where}:11", f"{where}:7", f"{where}:14"]
    assert (wide.kind, near.kind) == ("opportunity", "fact")


def test_python_that_cannot_be_followed_is_said(tmp_path: Path) -> None:
    trees.aiter(tmp_path, function=trees.FUNCTION.replace("if not all_decode", "if measured(head_size)"))
    found = look(night(tmp_path, None))
    assert [f.evidence[0].detail for f in found] == ["not understood: measured(head_size)"] * 2
    assert attention_source.find_function("def (") is None


def test_a_table_of_four_hundred_keys_is_searched_whole_too() -> None:
    """Every bound and its neighbours, with every dtype and flag, would be 95,000 points; 462 of them differ."""
    keys: dict[str, dict[str, Any]] = {f"D_GEQ_{d}.Q_GEQ_{q}": {} for d in range(16, 176, 8) for q in range(2, 22)}
    axes = ("D", "Q", "SW", "SKLT", "SHUF", "DT")
    assert never_served(Section("attn_2d", axes, keys)) == []
    # Heads of 300 and more: up to 9 rows the upper bound comes first, from 10 on the lower one.
    wide: dict[str, dict[str, Any]] = {"D_GEQ_300": {}, "D_GEQ_300.Q_LEQ_9": {}}
    assert never_served(Section("attn_2d", axes, {**keys, **wide})) == []
    assert never_served(Section("attn_2d", axes, {**keys, **wide, "D_GEQ_300.Q_GEQ_2": {}})) == ["D_GEQ_300"]


def test_sections_by_the_dozen_are_not_all_searched(tmp_path: Path) -> None:
    more = {f"s{n:04}": {"any": trees.entry(16, 16), "D_GEQ_1": trees.entry(16, 16)} for n in range(60)}
    schema = {**trees.TABLE["schema"], **dict.fromkeys(more, ["D"])}
    found = look(night(tmp_path, {**trees.TABLE, **more, "schema": schema}))
    assert 15 < sum("can never serve a call" in f.title for f in found) <= 20
