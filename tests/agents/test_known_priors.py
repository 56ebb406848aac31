"""What is known from elsewhere, as an audit says it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from agents.research.dossier import PhaseProfile
from agents.research.finding import Finding
from agents.research.knobs import Knobs
from agents.research.priors import FOLDER, Prior, all_priors
from agents.research.rank import merge
from agents.research.readers import known_priors, prior
from agents.research.shares import share, within
from cards.sheet import read_sheet
from contracts import Change, Lever, Objective
from tests.agents.examples import GFX950, dossier, spec, workload
from tests.agents.test_roofline_reader import MODEL

CHECKOUT = Path(__file__).resolve().parents[2]
NIGHT = CHECKOUT.parent / "shared" / "data" / "mi355x_night"
ENTRY: dict[str, Any] = {
    "id": "graphs",
    "lever": "engine_flag",
    "key": "enforce_eager",
    "value": None,
    "outcome": "helps",
    "improves": ["throughput", "tpot"],
    "gain": 1.15,
    "why": "graphs take the launches away",
    "provenance": {"where": "card X", "who": "me", "version": "vLLM 0.32.0", "date": "2026", "numbers": "100 to 115"},
    "source": "configs/priors/x.yaml#graphs",
}
EAGER = spec(flags={"enforce-eager": True})


def said(entry: dict[str, Any], **fields: Any) -> Finding:
    [found] = known_priors.findings([Prior.model_validate({**ENTRY, **entry})], dossier(**{"spec": EAGER, **fields}))
    assert found.evidence[0].source == "configs/priors/x.yaml#graphs"
    return found


def test_what_helped_and_a_lever_can_apply() -> None:
    found = said({})
    assert found.title == (
        "enforce_eager left to the engine made throughput and tpot 1.15 times as good on card X (vLLM 0.32.0): "
        "graphs take the launches away"
    )
    assert found.change == Change(lever=Lever.ENGINE_FLAG, key="enforce-eager", before=True, after=None)
    assert found.terms is not None
    assert (found.terms.phase, found.terms.share) == ("all", 1.0)
    assert found.terms.gain == pytest.approx(1.15)
    assert found.terms.share_from == "measured as a whole there"
    assert found.terms.speedup_from == "measured on card X (vLLM 0.32.0): 100 to 115"
    assert found.evidence[0].detail == "100 to 115; card X, vLLM 0.32.0, 2026, me"


def test_a_night_and_an_audit_say_the_same_change_with_the_same_numbers() -> None:
    d = dossier(spec=EAGER, priors=(str(FOLDER / "vllm_cpu.yaml"),))
    [a], [b] = prior.read(d), [f for f in known_priors.look(d) if f.kind == "opportunity"]
    h = b.hypothesis()
    assert h is not None and h.id == a.id and b.change == a.change
    assert h.predicted_gain == pytest.approx(a.predicted_gain)
    assert (h.probability, h.cost_s, h.risk) == (a.probability, a.cost_s, a.risk)
    [one] = merge([a, h])  # where somebody asks both, it is still one hypothesis, and the prior is told once
    assert one.evidence == h.evidence and one.evidence.count(*a.evidence) == 1


@pytest.mark.parametrize(
    ("entry", "fields", "ends"),
    [
        ({}, {"workload": workload(objective=Objective(metric="ttft_ms_p50"))}, "ttft_ms_p50, which it does not help"),
        ({}, {"spec": spec()}, "the engine already has enforce-eager at its default"),
        ({"key": "no-such-flag", "value": 1}, {}, "not to be tried here: vLLM 0.32.0 has no flag no-such-flag"),
        (
            {},
            {"refused_before": (Change(lever=Lever.ENGINE_FLAG, key="enforce-eager", before=True, after=None).id,)},
            "not to be tried here: it was refused before on this stack",
        ),
        ({"lever": "none", "gain": None}, {}, "helps: graphs take the launches away (100 to 115)"),
    ],
)
def test_what_helped_elsewhere_and_is_not_to_be_tried_here(
    entry: dict[str, Any], fields: dict[str, Any], ends: str
) -> None:
    found = said(entry, **fields)
    assert (found.kind, found.change, found.terms) == ("fact", None, None)
    assert found.title.endswith(ends)


def test_an_audit_without_a_vllm_to_read() -> None:
    nothing_read = Knobs(version="", path="")
    assert said({"key": "no-such-flag", "value": 1}, knobs=nothing_read).kind == "opportunity"
    assert said({}, knobs=nothing_read, spec=spec()).title.endswith("the engine has it already")


def test_what_helps_by_hand_has_no_change_and_says_how() -> None:
    found = said({"lever": "none", "what": "a wider tile", "fix": "one more row in the table"})
    assert (found.kind, found.change, found.fix) == ("opportunity", None, "one more row in the table")
    assert found.title.startswith("a wider tile made throughput and tpot 1.15 times as good on card X")
    assert found.terms is not None and found.terms.share == 1.0
    assert found.hypothesis() is None


def test_a_gain_of_one_part_counts_by_the_parts_share() -> None:
    part = {"lever": "none", "gain": 2.0, "phase": "decode", "part": "gemm"}
    shares = {"attention": 0.3, "gemm": 0.5}
    seen = PhaseProfile(phase="decode", weight=0.8, step_ms=10.0, kernel_ms=5.0, shares=shares, source="trace.json")
    terms = said(part, phases=(seen,)).terms
    assert terms is not None
    assert terms.share == pytest.approx(0.8 * 0.5 * 0.5)  # of the time, of a step in kernels, of the kernels
    assert terms.gain == pytest.approx(1 / (1 - 0.2 + 0.2 / 2))
    assert terms.share_from == "gemm is 25% of decode (trace.json), decode 80% of the time (trace.json)"
    whole = said({**part, "part": None}, phases=(seen,)).terms
    assert whole is not None and (whole.share, whole.share_from) == (0.8, "decode 80% of the time (trace.json)")


def test_an_unknown_share_is_judged_and_says_so() -> None:
    part = said({"lever": "none", "phase": "decode", "part": "gemm"}).terms
    assert part is not None and part.share == known_priors.JUDGED_PART
    assert part.share_from == "the share of gemm of decode is not known; 20% is judged, cautiously"
    phase = said({"lever": "none", "phase": "prefill"}).terms
    assert phase is not None and phase.share_from == "the share of prefill is not known; 40% is judged, cautiously"


def test_a_share_far_from_the_one_there_is_told_unless_a_profile_decides() -> None:
    part = {"lever": "none", "gain": 2.4, "phase": "prefill", "part": "attention", "part_share": 0.43}
    sheet = read_sheet("gfx950")
    here: dict[str, Any] = {"card": sheet.card(), "sheet": sheet, "model": MODEL}
    found = said(part, **here)
    expected = share(dossier(spec=EAGER, **here), "prefill", "attention")
    assert found.terms is not None and expected is not None
    assert found.terms.share == expected.value and found.terms.gain < found.terms.bound == 1 / (1 - expected.value)
    [_, apart] = found.evidence
    assert apart.detail.startswith("attention took 43% of prefill there, here attention is ")
    assert apart.detail.endswith("your own shares decide here: --profile")
    profile = PhaseProfile(phase="prefill", shares={"attention": 0.05}, source="trace.json")
    assert len(said(part, **here, phases=(profile,)).evidence) == 1
    near = within(dossier(spec=EAGER, **here), "prefill", "attention")
    assert near is not None and len(said({**part, "part_share": near.value * 1.9}, **here).evidence) == 1


@pytest.mark.parametrize(
    ("entry", "kind", "title", "after"),
    [
        ({"outcome": "hurts", "value": False}, "trap", "Do not try enforce_eager = false: graphs take", False),
        ({"outcome": "hurts", "value": True}, "trap", "This engine should not have enforce_eager = true: ", None),
        ({"outcome": "no_effect", "value": False}, "fact", "Do not try, no gain from enforce_eager = false: ", False),
        ({"outcome": "no_effect", "value": True}, "fact", "This engine has, for nothing, enforce_eager = true", None),
        ({"outcome": "hurts", "lever": "none", "what": "a tile of 128"}, "trap", "Avoid a tile of 128: graphs", None),
        ({"outcome": "hurts"}, "trap", "Do not try enforce_eager: graphs", None),  # without a value: no one change
        ({"outcome": "unclear"}, "fact", "Not known whether enforce_eager helps: graphs take the launches away", None),
    ],
)
def test_negative_results_are_said_too(entry: dict[str, Any], kind: str, title: str, after: Any) -> None:
    found = said(entry)
    assert found.kind == kind and found.title.startswith(title) and found.title.endswith("(100 to 115)")
    assert found.terms is None and found.hypothesis() is None
    assert (found.change.after if found.change else None) == after
    assert len(found.evidence) == (2 if title.startswith("This engine") else 1)  # and what the engine holds


def test_conditions_that_do_not_hold_are_not_said() -> None:
    other = Prior.model_validate({**ENTRY, "when": {"arch": ["gfx906"]}})
    assert known_priors.findings([other], dossier(card=GFX950)) == []


def test_the_priors_are_those_of_the_dossier_or_all() -> None:
    some = dossier(priors=("/nowhere/x.yaml",))
    assert known_priors.with_priors(some) is some
    assert known_priors.look(some) == []  # `prior.dropped` says that the file is not there
    assert {Path(p).name for p in known_priors.with_priors(dossier()).priors} >= {"gfx906.yaml", "gfx950.yaml"}


def test_what_is_known_of_two_cards() -> None:
    """By arch, layers and quantisation: nothing of one card is said of the other."""
    model = {"hidden_size": 5120, "num_hidden_layers": 8, "num_attention_heads": 40, "vocab_size": 1000,
             "head_dim": 256, "full_attention_interval": 4, "quantization_config": {"quant_method": "awq"}}  # fmt: skip
    found: dict[str, set[str]] = {}
    for arch in ("gfx906", "gfx950"):
        card = GFX950.model_copy(update={"arch": arch})
        d = known_priors.with_priors(dossier(card=card, model_config_json=model, spec=EAGER))
        found[arch] = {f.evidence[0].source.rpartition("#")[2] for f in known_priors.look(d)}
    assert {"waves-per-eu-above-1-gfx906", "split-k-gfx906", "attention-block-128-gfx906", "fp8-kv-cache-gfx906",
            "linear-attention-kernels-gfx906", "wave64-w4a16-gfx906"} <= found["gfx906"]  # fmt: skip
    assert {"aiter-attention-prefill-tiles", "max-num-seqs-128", "aiter-csv-rewrites-its-sources"} <= found["gfx950"]
    assert not any("gfx906" in id_ for id_ in found["gfx950"])
    assert "custom-all-reduce-gfx906" not in found["gfx906"]  # one card
    assert {"same-prompts-twice", "lds-overflow-is-no-compile-error"} <= found["gfx906"] & found["gfx950"]


# Each experiment of that night, and the entry that keeps what came out of it. An entry may hold several.
TRIALS = {
    "ua1": ("aiter-attention-prefill-tiles", "helps"),
    "gemm1": ("aiter-gemm-rows-for-the-model", "helps"),
    "ua2": ("short-query-tile-for-wide-heads", "no_effect"),
    "fuse1": ("fused-activation-and-mxfp4-quantisation", "helps"),
    "cg1": ("capture-list-shorter-than-the-batch", "helps"),
    "cg2": ("fused-activation-and-mxfp4-quantisation", "helps"),
    "cg3": ("split-kv-attention-for-drafted-steps", "helps"),
    "mtp3": ("third-drafted-token", "helps"),  # the time per token; that night looked at the load
    "qkf1": ("qk-norm-rope-fusion-pass", "no_effect"),
    "qkf2": ("qk-norm-rope-kvcache-fusion-with-partition", "no_effect"),
    "nat1": ("both-norms-native", "no_effect"),
    "nat2": ("native-rms-norm", "helps"),
    "pw1": ("capture-to-16k-tokens", "no_effect"),
    "b8k": ("token-budget-8192", "helps"),
    "s128": ("max-num-seqs-128", "hurts"),
    "hipblaslt": ("triton-or-hipblaslt-mxfp4-gemm", "hurts"),
}


@pytest.mark.skipif(not NIGHT.is_dir(), reason="the recorded MI355X night lies beside the checkout (../shared/data)")
def test_no_trial_of_the_recorded_night_is_forgotten() -> None:
    with (NIGHT / "gemma4_trials.csv").open() as file:
        trials = {row["tag"]: row for row in csv.DictReader(file)}
    known = {p.id: p for p in all_priors()}
    assert set(trials) - {"base"} == set(TRIALS)
    for tag, (id_, outcome) in TRIALS.items():
        assert known[id_].outcome == outcome, tag
    for tag in ("qkf1", "qkf2", "nat1", "nat2", "pw1", "b8k"):  # the figures are the recorded ones
        assert trials[tag]["prefill_req_per_s_run2"] in known[TRIALS[tag][0]].provenance.numbers, tag


@pytest.mark.skipif(not NIGHT.is_dir(), reason="the recorded MI355X night lies beside the checkout (../shared/data)")
def test_the_gains_are_those_of_the_recorded_stages() -> None:
    with (NIGHT / "gemma4_ablation.csv").open() as file:
        stages = {row["stage"]: row for row in csv.DictReader(file)}

    def ratio(column: str, after: str) -> float:
        before = chr(ord(after) - 1)
        return float(stages[after][column]) / float(stages[before][column])

    known = {p.id: p for p in all_priors()}
    gain = {id_: p.gain for id_, p in known.items()}
    prefill, loop = "prefill_tok_per_s", "closed_loop_req_per_s"
    tiles = known["aiter-attention-prefill-tiles"]  # of attention; the night counted all of prefill
    assert tiles.gain is not None and tiles.part_share is not None
    assert 1 / (1 - tiles.part_share + tiles.part_share / tiles.gain) == pytest.approx(ratio(prefill, "B"), abs=0.01)
    assert gain["aiter-gemm-rows-for-the-model"] == pytest.approx(ratio(prefill, "C"), abs=0.005)
    assert gain["capture-list-shorter-than-the-batch"] == pytest.approx(ratio(loop, "D"), abs=0.005)
    assert gain["fused-activation-and-mxfp4-quantisation"] == pytest.approx(ratio(loop, "E"), abs=0.005)
    assert gain["split-kv-attention-for-drafted-steps"] == pytest.approx(ratio(loop, "F"), abs=0.005)
