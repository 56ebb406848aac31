"""An audit on the screen: what is shown at which width, what is folded, and what was not given."""

from __future__ import annotations

import pytest
from rich.console import Console

from agents.audit_missing import missing
from agents.audit_words import details, print_audit
from agents.research.audit import Audit, order
from agents.research.finding import Finding, Terms, plural
from agents.research.readers import READERS
from cards.sheet import read_sheet
from contracts import Change, Evidence, Lever
from tests.agents.examples import CPU, GFX950, dossier

ROOFLINE = "estimated: roofline of gfx950 (AMD Instinct MI355X)"
CHANGE = Change(lever=Lever.ENGINE_FLAG, key="kv-cache-dtype", before="fp8", after="auto")
HERE = (Evidence(source="vllm/x.py:7", detail="what stands there"),)


def finding(kind: str, title: str, reader: str = "r", **more: object) -> Finding:
    return Finding.model_validate({"reader": reader, "kind": kind, "title": title, "evidence": HERE, **more})


def found() -> Audit:
    share_from = f"attention is 4% of prefill ({ROOFLINE}), prefill 73% of the time ({ROOFLINE})"
    terms = Terms(phase="all", share=0.5, share_from=share_from, speedup=2, speedup_from="judged", probability=0.5,
                  cost_s=360)  # fmt: skip
    return Audit(
        findings=order(
            [
                finding("opportunity", "smaller cache", terms=terms, change=CHANGE),
                finding("trap", "a trap of this tree"),
                finding("fact", "a fact of this tree"),
                finding("trap", "a habit that ruins nights", reader="known_priors"),
            ]
        ),
        notes=("configs/priors/a.yaml#x (prior): it is for gfx906, this card is gfx950", "a table cannot be read"),
    )


def screen(width: int, everything: bool = False) -> str:
    console = Console(width=width)
    with console.capture() as told:
        print_audit(found(), dossier(card=GFX950), 1.0, 5, console, ("no model",), everything)
    return told.get()


def test_places_that_are_not_shown_are_counted_those_that_the_finding_leaves_out_too() -> None:
    def shown(**more: object) -> str:
        console = Console(width=100)
        with console.capture() as told:
            console.print(details(finding("trap", "rows are wrong", **more), "- "))
        return told.get()

    assert "more place" not in shown(evidence=HERE * 4)
    assert "... and 4 more places" in shown(evidence=HERE * 8)
    assert "... and 18 more places" in shown(evidence=HERE * 8, unnamed=14)


def test_below_100_columns_a_finding_is_two_lines() -> None:
    lines = screen(80).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("1. [flag] kv-cache-dtype: fp8 -> auto"))
    assert lines[first + 1].strip() == ("gain 1.33x, share 50%, speed-up 2.00x, bound 2.00x, p 50%, 6 min, score 1.44")
    row = next(line.split() for line in screen(120).splitlines() if "1.44" in line)
    assert row[-9:] == ["flag", "1.33x", "50%", "2.00x", "2.00x", "50%", "6", "min", "1.44"]


def test_the_roofline_is_explained_once() -> None:
    told = screen(120)
    assert told.count("roofline of gfx950 (AMD Instinct MI355X)") == 1
    assert "attention is 4% of prefill (roofline), prefill 73% of the time (roofline)" in told


def test_what_is_known_from_elsewhere_is_a_count_unless_all_is_asked_for() -> None:
    told, everything = screen(120), screen(120, everything=True)
    assert "a trap of this tree" in told and "a table cannot be read" in told
    assert "1 known from elsewhere only (known_priors)" in told and "1 about other cards" in told
    assert "a habit that ruins nights" not in told and "it is for gfx906" not in told
    assert "a habit that ruins nights" in everything and "it is for gfx906" in everything


def test_facts_are_titles_unless_all_is_asked_for() -> None:
    told, everything = screen(120), screen(120, everything=True)
    assert "Facts (1; --all shows where each stands)\n- [r] a fact of this tree\n" in told
    assert "- [r] a fact of this tree\n   vllm/x.py:7: what stands there" in everything


def test_a_load_that_nobody_told_is_said_to_be_assumed() -> None:
    amd = dossier(card=GFX950, sheet=read_sheet("gfx950"), aiter="/aiter")
    assert missing(amd, ["defaults"], assumed=True)[-1].endswith("--output-tokens): batch work's is assumed")


def test_what_was_not_given_and_who_is_silent_then() -> None:
    card, model, *_ = missing(dossier(card=CPU), list(READERS))
    assert "no card in this machine" in card and "roofline" in card.split("silent: ")[1]
    assert model == "no model (--model config.json)"  # whoever is silent without a model is so without a card
    amd = dossier(card=GFX950, sheet=read_sheet("gfx950"), aiter="/aiter")
    (line,) = missing(amd, ["roofline", "defaults"])
    assert line == "no model (--model config.json); silent: roofline"


@pytest.mark.parametrize(("count", "told"), [(0, "0 findings"), (1, "1 finding"), (2, "2 findings")])
def test_plural(count: int, told: str) -> None:
    assert plural(count, "finding") == told
