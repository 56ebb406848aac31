"""A run's request list: the same for the same seed, exact in length, with no block that another run's cache holds."""

from __future__ import annotations

import math
import statistics
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import Workload
from engine.corpus import corpus_text
from engine.prompts import BLOCK, MAX_REQUESTS, fill_requests, plan

# A stand-in for a tokeniser: every word its own ID. The digits of a prompt's number need 1024 distinct pairs.
_WORDS: dict[str, int] = {}
CORPUS = [_WORDS.setdefault(word, len(_WORDS)) for text in corpus_text(300) for word in text.split()]
EXAMPLES = settings(max_examples=50, deadline=None)
SEEDS = st.integers(0, 2**64 - 1)


def workload(**changes: object) -> Workload:
    return Workload.model_validate(
        {
            "name": "t",
            "concurrency": 4,
            "requests": 20,
            "warmup_requests": 4,
            "input_tokens": (16, 40),
            "output_tokens": (8, 12),
        }
        | changes
    )


@EXAMPLES
@given(SEEDS)
def test_same_seed_same_list(seed: int) -> None:
    assert plan(workload(), seed, CORPUS) == plan(workload(), seed, list(CORPUS))


@EXAMPLES
@given(SEEDS, SEEDS)
def test_no_two_prompts_share_a_first_block(one: int, other: int) -> None:
    seeds = {one, other}
    first = [r.prompt[:BLOCK] for seed in seeds for r in plan(workload(), seed, CORPUS)]
    assert len(set(first)) == len(first)


def test_neighbouring_seeds_do_not_share_either() -> None:
    """What a night does: seeds one after the other."""
    first = [r.prompt[:BLOCK] for seed in range(200) for r in plan(workload(), seed, CORPUS)]
    assert len(set(first)) == len(first)


@EXAMPLES
@given(SEEDS, st.integers(1, 64), st.integers(0, 64), st.integers(1, 64), st.integers(0, 16))
def test_lengths_are_exact(seed: int, low: int, more: int, out: int, prefix: int) -> None:
    w = workload(input_tokens=(low, low + more), output_tokens=(out, out), shared_prefix_tokens=prefix)
    for request in plan(w, seed, CORPUS):
        assert prefix + low <= len(request.prompt) <= prefix + low + more
        assert request.output_tokens == out


def test_lengths_are_even_over_their_range() -> None:
    """25 lengths are possible and there are 400 requests: each length 16 times."""
    lengths = Counter(len(r.prompt) for r in plan(workload(requests=400), 1, CORPUS) if r.phase == "measured")
    assert lengths == dict.fromkeys(range(16, 41), 16)


@EXAMPLES
@given(SEEDS, SEEDS)
def test_every_seed_gives_the_same_amount_of_work_in_another_order(one: int, other: int) -> None:
    def work(seed: int) -> tuple[list[int], list[int]]:
        measured = [r for r in plan(workload(), seed, CORPUS) if r.phase == "measured"]
        return sorted(len(r.prompt) for r in measured), sorted(r.output_tokens for r in measured)

    assert work(one) == work(other)
    assert [len(r.prompt) for r in plan(workload(), 1, CORPUS)] != [len(r.prompt) for r in plan(workload(), 2, CORPUS)]


def test_a_shared_prefix_is_common_within_a_run_and_fresh_between_runs() -> None:
    w = workload(shared_prefix_tokens=64)
    prefixes = {seed: {r.prompt[:64] for r in plan(w, seed, CORPUS)} for seed in (1, 2)}
    assert all(len(found) == 1 for found in prefixes.values())
    first_blocks = {next(iter(found))[:BLOCK] for found in prefixes.values()}
    assert len(first_blocks) == 2
    after = [r.prompt[64 : 64 + BLOCK] for r in plan(w, 1, CORPUS)]
    assert len(set(after)) == len(after)


def test_phases_follow_each_other() -> None:
    w = workload()
    phases = [r.phase for r in plan(w, 3, CORPUS)]
    assert phases == ["warmup"] * 4 + ["measured"] * 20 + ["fill"] * fill_requests(w)


def test_arrivals_are_poisson() -> None:
    """Gaps of an exponential law: mean and standard deviation 1 / rate, and 1/e of them longer than the mean."""
    w = workload(concurrency=None, rate_per_s=5.0, requests=4000)
    times = [r.at_s for r in plan(w, 9, CORPUS)]
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False) if a is not None and b is not None]
    assert min(gaps) > 0
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.08)
    assert sum(gap > 0.2 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.03)


def test_a_closed_loop_has_no_times() -> None:
    assert {r.at_s for r in plan(workload(), 9, CORPUS)} == {None}


@pytest.mark.parametrize(
    ("changes", "seed", "corpus", "words"),
    [
        ({}, -1, CORPUS, "modulo"),
        ({}, 2**64, CORPUS, "modulo"),
        ({"requests": MAX_REQUESTS}, 1, CORPUS, "lower requests"),
        ({}, 1, CORPUS[:500], "longer text"),
        ({}, 1, [], "longer text"),
    ],
)
def test_what_cannot_be_planned_says_what_to_do(
    changes: dict[str, object], seed: int, corpus: list[int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plan(workload(**changes), seed, corpus)


def test_the_text_is_the_same_every_time_and_reads_as_sentences() -> None:
    text = corpus_text(50)
    assert text == corpus_text(50)
    assert len(set(text)) == 50
    assert all(paragraph[0] in '"ABCDEFGHIJKLMNOPQRSTUVWXYZ' and paragraph[-1] in ".?" for paragraph in text)
