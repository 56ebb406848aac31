"""Decode steps against the sizes that graphs are captured for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.dossier import Dossier, PhaseProfile
from agents.research.graph_sizes import UnknownError, covers, default_rule, extend, usable
from agents.research.rank import research
from agents.research.readers.graph_coverage import look
from contracts import Change, Lever
from tests.agents.examples import CPU, GFX950, KNOBS, dossier, spec, workload

# The part of a configuration module that matters, in our own words.
SOURCE = """\
class VllmConfig:
    def _set_cudagraph_sizes(self):
        top = 1024 if platform.is_device_capability_family(100) else 512
        width = self.uniform_decode_query_len
        largest = min(self.scheduler.max_num_seqs * self.uniform_decode_query_len * 2, top)
        more = {n * width for n in request_counts(largest)}
        sizes = [1, 2, 4, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16), *more]
"""
DRAFTS = {"speculative-config": {"num_speculative_tokens": 2}}
OWN = list(range(1, 65))


def night(tmp_path: Path, compilation: dict[str, Any], source: str = SOURCE, **changes: Any) -> Dossier:
    """64 sequences of 1 + 2 tokens; 57.7 ms a decode step, of which 21.3 ms in kernels, decode 40 % of all time."""
    (tmp_path / "vllm/config").mkdir(parents=True)
    (tmp_path / "vllm/config/vllm.py").write_text(source)
    base: dict[str, Any] = {
        "card": GFX950,
        "spec": spec(flags={"max-num-seqs": 64, **DRAFTS}, compilation=compilation),
        "knobs": KNOBS.model_copy(update={"path": str(tmp_path / "vllm")}),
        "workload": workload(concurrency=64),
        "phases": (PhaseProfile(phase="decode", weight=0.4, step_ms=57.7, kernel_ms=21.3, source="profile.json"),),
    }
    return dossier(**{**base, **changes})


def test_without_a_vllm_it_says_so_and_names_no_file(tmp_path: Path) -> None:
    (found,) = look(night(tmp_path, {}, knobs=KNOBS.model_copy(update={"path": ""})))
    assert found.title.endswith("is not known: vLLM's default list: no vLLM was given")
    assert "config/vllm.py" not in str(found.evidence)


def test_a_list_set_by_hand_that_draft_tokens_outgrow_goes_back_to_the_default(tmp_path: Path) -> None:
    (found,) = look(night(tmp_path, {"cudagraph_capture_sizes": OWN}))
    assert found.title == (
        "A decode step of 192 tokens (64 sequences x 3) runs without a graph: the largest captured size is 64, which "
        "holds 21 sequences"
    )
    assert found.change == Change(lever=Lever.COMPILATION, key="cudagraph_capture_sizes", before=OWN, after=None)
    assert found.fix.startswith("remove cudagraph_capture_sizes: vLLM's default goes to 384. The engine's log says")
    assert found.evidence[-1].source == "vllm/config/vllm.py:5"
    assert found.terms is not None
    assert found.terms.share == pytest.approx(0.4 * (1 - 21.3 / 57.7))
    assert (found.terms.speedup, found.terms.probability) == (5.0, 0.7)
    hypothesis = found.hypothesis()
    assert hypothesis is not None and hypothesis.predicted_gain == pytest.approx(1.253, abs=0.001)


def test_a_night_tries_it_and_believes_no_more_than_a_profile_allows(tmp_path: Path) -> None:
    subject = night(tmp_path, {"cudagraph_capture_sizes": OWN})
    (tried,) = research(subject, ["graph_coverage"]).hypotheses
    assert (tried.change.key, tried.change.after, tried.proposer) == ("cudagraph_capture_sizes", None, "graph_coverage")
    assert tried.bound == pytest.approx(1 / (1 - 0.4 * (1 - 21.3 / 57.7)))
    (tried,) = research(subject.model_copy(update={"phases": ()}), ["graph_coverage"]).hypotheses
    assert tried.bound is None  # without a profile the share is a guess
    counted = subject.model_copy(update={"phases": (), "profile": {"card_busy_percent_mean": 20.65}})
    (tried,) = research(counted, ["graph_coverage"]).hypotheses
    assert tried.predicted_gain == pytest.approx(1 / (0.2065 + 0.7935 / 5)) and tried.bound is None
    assert [(e.source, e.detail) for e in tried.evidence[-2:]] == [  # how the prediction came about
        ("share of the time", "79%: the card was busy 21% of the measured time (the driver's counter)"),
        ("speed-up of that share", "5x: judged: a replayed graph leaves a fifth of the time in which no kernel ran"),
    ]


def test_the_default_that_covers_is_a_fact(tmp_path: Path) -> None:
    (found,) = look(night(tmp_path, {}))
    assert found.kind == "fact"
    assert found.title == (
        "Graphs already cover a decode step of 192 tokens (64 sequences x 3): vLLM's default list goes to 384; "
        "proposing a wider one would waste a night"
    )


def test_beyond_the_defaults_cap_the_list_is_extended(tmp_path: Path) -> None:
    flags = {"max-num-seqs": 256, **DRAFTS}
    (found,) = look(night(tmp_path, {}, spec=spec(flags=flags), workload=workload(concurrency=400)))
    assert "768 tokens (256 sequences x 3)" in found.title and "512, which holds 168 sequences" in found.title
    assert found.change is not None and isinstance(found.change.after, list)
    assert found.change.after[-6:] == [552, 600, 648, 696, 744, 768]


@pytest.mark.parametrize(
    ("flags", "compilation", "change"),
    [
        ({"cudagraph-capture-sizes": [1, 2]}, {}, (Lever.ENGINE_FLAG, "cudagraph-capture-sizes", None)),
        ({"compilation-config": '{"cudagraph_capture_sizes": [1, 2]}'}, {}, None),  # JSON in a flag: told, not applied
        ({}, {"max_cudagraph_capture_size": 32}, (Lever.COMPILATION, "max_cudagraph_capture_size", None)),
        ({}, {"max_cudagraph_capture_size": 2, "cudagraph_capture_sizes": [1, 2]}, None),  # two keys would have to move
    ],
)
def test_whose_setting_it_is(tmp_path: Path, flags: dict[str, Any], compilation: dict[str, Any], change: Any) -> None:
    (found,) = look(night(tmp_path, {}, spec=spec(flags={**DRAFTS, **flags}, compilation=compilation)))
    assert found.kind == "opportunity" and found.fix.startswith("remove ")
    held = found.change and (found.change.lever, found.change.key, found.change.after)
    assert held == change


def test_the_last_compilation_config_counts(tmp_path: Path) -> None:
    flags = {"compilation-config": {"cudagraph_capture_sizes": [1, 2]}, **DRAFTS}
    (found,) = look(night(tmp_path, {}, spec=spec(flags=flags, compilation={"cudagraph_capture_sizes": [192]})))
    assert found.kind == "fact" and "the list set by hand goes to 192" in found.title


@pytest.mark.parametrize(
    ("flags", "compilation"),
    [({"enforce-eager": True}, {}), ({"optimization-level": 0}, {}), ({}, {"cudagraph_mode": "none"})],
)
def test_without_graphs_nothing_is_proposed_here(tmp_path: Path, flags: Any, compilation: Any) -> None:
    (found,) = look(night(tmp_path, {}, spec=spec(flags=flags, compilation=compilation)))
    assert found.kind == "fact" and found.title.startswith("No graphs are captured at all")


def test_a_cpu_captures_nothing(tmp_path: Path) -> None:
    assert look(night(tmp_path, {"cudagraph_capture_sizes": OWN}, card=CPU)) == []


def test_a_source_that_is_not_understood_is_said_and_a_hand_written_list_is_lengthened(tmp_path: Path) -> None:
    odd = SOURCE.replace("* 2", "** 2")
    (found,) = look(night(tmp_path, {"cudagraph_capture_sizes": [1, 63]}, source=odd))
    assert found.change is not None and found.change.after == [1, 63, 111, 159, 192]
    (found,) = look(night(tmp_path / "again", {}, source=odd))
    assert found.title.startswith("Whether graphs cover a decode step of 192 tokens is not known")


def test_the_engines_own_word_comes_first(tmp_path: Path) -> None:
    realised: dict[str, Any] = {"compilation.cudagraph_capture_sizes": [1, 2, 192]}
    (found,) = look(night(tmp_path, {"cudagraph_capture_sizes": OWN}, realised=realised))
    assert found.kind == "fact" and found.evidence[0].source == "realised configuration"


def test_an_open_loop_needs_a_counter(tmp_path: Path) -> None:
    load = workload(concurrency=None, rate_per_s=2.0)
    own: dict[str, Any] = {"cudagraph_capture_sizes": [1, 2, 3]}
    assert look(night(tmp_path, own, workload=load)) == []
    (found,) = look(night(tmp_path / "seen", own, workload=load, profile={"running_peak": 20}))
    assert "60 tokens (20 sequences x 3)" in found.title


def test_whole_requests() -> None:
    assert usable([1, 2, 8, 16], 3) == [3, 9]  # 16 would become 18, more than was captured
    assert covers(range(1, 65), 3) == 21
    assert covers([], 3) == 0
    assert extend([1, 64], 64, 1) == [1, 64]


def test_the_default_rule_of_a_source() -> None:
    rule = default_rule(SOURCE, "gfx950")
    assert (rule.factor, rule.per_request, rule.cap, rule.line) == (2, True, 512, 5)
    assert default_rule(SOURCE, "sm_103").cap == 1024
    assert default_rule(SOURCE, "sm_120").cap == 512
    assert rule.largest(64, 3) == 384
    assert rule.sizes(64, 3, 100)[-3:] == [88, 96, 100]  # a whole budget is captured too
    assert rule.sizes(5, 3, None) == [1, 2, 3, 4, 6, 8, 12, 15, 16, 24]  # the least of 30 and 512; 5 requests are 15
    for wrong in ("", "def (", "def _set_cudagraph_sizes(): pass"):
        with pytest.raises(UnknownError):
            default_rule(wrong, "gfx950")
