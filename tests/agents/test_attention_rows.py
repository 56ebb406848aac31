"""Entries of unified attention's table that the reader proposes to a night."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from agents.research.rank import research
from agents.research.readers import READERS
from agents.research.readers.attention_tables import look
from agents.research.tables.attention import lookup
from agents.research.tables.attention_entry import corrected
from agents.tuning.apply import apply
from agents.tuning.static_check import static_check
from contracts import Lever
from tests.agents import attention_trees as trees
from tests.agents.test_attention_tables import CARD, WIDE, night, section


def test_each_entry_is_a_change_and_other_tiles_are_guesses_of_their_own(tmp_path: Path) -> None:
    here = night(tmp_path, flags={"attention-backend": "WHOLE"})
    found = [f for f in look(here) if f.change]
    wide = [f for f in found if "head size 512" in f.title]
    file = "gfx950/triton/attention/unified_attention/DEFAULT.json"
    changes = [f.change for f in wide if f.change]
    assert {(c.lever, c.key) for c in changes} == {(Lever.AITER_JSON, f"{file}#attn_2d/D_GEQ_512.Q_GEQ_256.DT_fp8_fp8")}
    # 128 rows and the neighbour's tile; half the rows; 128 rows and half the keys.
    tiles = [(c.after["BLOCK_M"], c.after["TILE_SIZE_MAX"]) for c in changes if isinstance(c.after, dict)]
    assert tiles == [(128, 64), (64, 64), (128, 32)]
    assert [f.terms.probability for f in wide if f.terms] == [0.6, 0.3, 0.3]
    assert all(static_check(c, here.spec, here.knobs) is None for c in changes)
    assert READERS["attention_tables"].for_nights
    hypotheses = research(here, ["attention_tables"]).hypotheses
    assert len(hypotheses) == len(found)
    # Kept, the row is not proposed again, and the other guesses start from it.
    kept = here.model_copy(update={"spec": apply(here.spec, changes[0])})
    again = [h.change for h in research(kept, ["attention_tables"]).hypotheses if h.change.key == changes[0].key]
    assert sorted(map(str, (c.after for c in again))) == sorted(map(str, (c.after for c in changes[1:])))
    assert all(c.before == changes[0].after for c in again)


def test_a_tile_of_keys_that_does_not_fit_or_is_less_than_a_page_is_corrected() -> None:
    call = replace(WIDE, head_size=128)
    hit = lookup(section(), call)
    assert hit is not None and corrected(hit, call, CARD) is None  # (128 + 2 * 64) * 128 bytes, a page of 64
    made = corrected(hit, replace(call, page=128), CARD)
    assert made is not None and made.key == hit.key and made.entry["TILE_SIZE_MAX"] == 128
    assert made.words[0] == "64 keys are less than a page of 128"
    made = corrected(hit, call, replace(CARD, lds_bytes=30_000))
    assert made is not None and made.entry == {**hit.entry, "TILE_SIZE_MIN": 32, "TILE_SIZE_MAX": 32}
    assert made.words[0] == "64 keys need 32,768 bytes of LDS of 30,000 (estimated)"
    assert corrected(hit, call, replace(CARD, lds_bytes=16_000)) is None  # the query alone does not fit


def test_a_corrected_tile_is_one_row_that_a_night_can_try(tmp_path: Path) -> None:
    here = night(tmp_path, {**trees.TABLE, "attn_2d": {"any": trees.entry(128, 64)}}, flags={"block-size": 128})
    small = trees.sheet().model_copy(update={"lds_bytes": trees.sheet().lds_bytes.model_copy(update={"value": 98304})})
    found = [f for f in look(here.model_copy(update={"sheet": small})) if f.change]
    [wide] = [f for f in found if "head size 512" in f.title]
    assert wide.change is not None and wide.change.key.endswith("#attn_2d/any") and wide.change.before is None
    assert wide.change.after == trees.entry(128, 16)  # (128 + 2 * 16) * 512 bytes; with 32 keys it just fills the LDS
    assert wide.terms is not None and wide.terms.speedup == pytest.approx(1.1 ** (math.log(2.71) / math.log(8)))
