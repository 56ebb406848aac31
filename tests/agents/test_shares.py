"""What takes how much of the time: a profile where there is one, the roofline for what it leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from agents.research.dossier import Dossier, PhaseProfile
from agents.research.roofline import estimate
from agents.research.shares import phase_share, share
from agents.research.traces.categories import KERNEL_CATEGORIES
from cards.sheet import read_sheet
from tests.agents.examples import dossier, workload
from tests.agents.test_roofline_reader import MODEL


def about(*phases: dict[str, Any]) -> Dossier:
    """64 streams, 2000 tokens in, 300 out, on a gfx950; what a profile of it said."""
    sheet = read_sheet("gfx950")
    return dossier(
        card=sheet.card(),
        sheet=sheet,
        model=MODEL,
        workload=workload(concurrency=64, input_tokens=(2000, 2000), output_tokens=(300, 300)),
        phases=tuple(PhaseProfile(**{"source": "known.yaml", **phase}) for phase in phases),
    )


def weight(subject: Dossier, phase: Any) -> float:
    found = phase_share(subject, phase)
    assert found is not None
    return found.value


@pytest.mark.parametrize(
    "phases",
    [
        [],
        [{"phase": "prefill", "shares": {"attention": 0.43}}],
        [{"phase": "prefill", "shares": {"attention": 0.43}}, {"phase": "decode", "step_ms": 57.7, "kernel_ms": 21.3}],
        [{"phase": "decode", "weight": 0.7, "step_ms": 10.0, "kernel_ms": 9.0, "shares": {"gemm": 0.9}}],
        [{"phase": "decode", "shares": {"attention": 0.5, "other": 0.5}}],  # all of it is named
    ],
)
def test_parts_of_a_phase_never_exceed_the_phase(phases: list[dict[str, Any]]) -> None:
    subject = about(*phases)
    for phase in ("prefill", "decode"):
        parts = [share(subject, phase, name) for name in (*KERNEL_CATEGORIES, "idle")]  # type: ignore[arg-type]
        assert 0 < sum(part.value for part in parts if part) <= weight(subject, phase) + 1e-9
    assert weight(subject, "prefill") + weight(subject, "decode") == pytest.approx(1)


def test_what_a_profile_leaves_is_split_as_the_roofline_splits_it() -> None:
    subject = about({"phase": "prefill", "weight": 0.5, "shares": {"attention": 0.43}})
    gemm, norm, guess = share(subject, "prefill", "gemm"), share(subject, "prefill", "norm"), estimate(subject)
    assert gemm is not None and norm is not None and guess is not None
    assert gemm.value / norm.value == pytest.approx(guess.prefill.shares["gemm"] / guess.prefill.shares["norm"])
    assert "what known.yaml leaves, split as estimated: roofline of gfx950" in gemm.words


def test_a_timed_step_moves_the_weights() -> None:
    """300 tokens of each of 64 sequences in a step: 4.7 steps of 10 ms are a request's decode."""
    plain, timed = about(), about({"phase": "decode", "step_ms": 10.0})
    guess = estimate(plain)
    assert guess is not None
    prefill_s, decode_s = guess.prefill.seconds, 300 / 64 * 0.010
    assert weight(plain, "decode") == pytest.approx(guess.decode.seconds / (prefill_s + guess.decode.seconds))
    assert weight(timed, "decode") == pytest.approx(decode_s / (prefill_s + decode_s))
    said = phase_share(timed, "decode")
    assert said is not None and said.words.startswith("decode ")
    assert "derived: prefill" in said.words and "decode 0.0469 s, 4.69 steps of 10 ms (300 tokens, 64 seq" in said.words
    both = about({"phase": "decode", "step_ms": 10.0}, {"phase": "prefill", "step_ms": 200.0})  # 8 prompts a step
    assert weight(both, "prefill") == pytest.approx(0.200 / 8 / (0.200 / 8 + decode_s))


def test_a_weight_that_is_given_wins() -> None:
    subject = about({"phase": "decode", "weight": 0.25, "step_ms": 10.0})
    assert (weight(subject, "decode"), weight(subject, "prefill")) == (0.25, 0.75)
    said = phase_share(subject, "prefill")
    assert said is not None and said.words == "prefill 75% of the time (known.yaml)"


def test_a_share_above_the_rooflines_makes_the_phase_longer() -> None:
    """Its other categories cannot be shorter than their bound, so they and what the profile names are both there."""
    plain, named = about(), about({"phase": "prefill", "shares": {"attention": 0.5}})
    guess = estimate(plain)
    assert guess is not None
    least = guess.prefill.seconds * (1 - guess.prefill.shares["attention"]) / 0.5
    assert weight(named, "prefill") == pytest.approx(least / (least + guess.decode.seconds))
    small = about({"phase": "prefill", "shares": {"attention": 0.0}})
    assert weight(small, "prefill") == weight(plain, "prefill")
