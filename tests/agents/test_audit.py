"""How an audit ranks what its readers say, and what it does with a reader that fails."""

from __future__ import annotations

import os
import signal

import pytest

from agents.research import audit as audit_module
from agents.research.audit import as_finding, audit, merge, order, score
from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms
from agents.research.readers import Reader
from contracts import Change, Evidence, Hypothesis, Lever
from tests.agents.examples import dossier

HERE = (Evidence(source="vllm/x.py:7", detail="what stands there"),)


def terms(share: float = 0.43, speedup: float = 2.7, probability: float = 0.8, cost_s: float = 360.0) -> Terms:
    return Terms(
        phase="prefill",
        share=share,
        share_from="profile.json",
        speedup=speedup,
        speedup_from="measured elsewhere",
        probability=probability,
        cost_s=cost_s,
    )


def opportunity(title: str, **more: object) -> Finding:
    plain = Finding(reader="r", kind="opportunity", title=title, evidence=HERE, terms=terms())
    return plain.model_copy(update=more)


def change(after: int = 8) -> Change:
    return Change(lever=Lever.ENGINE_FLAG, key="max-num-seqs", before=4, after=after)


def test_the_terms_by_hand() -> None:
    found = terms()
    assert found.gain == pytest.approx(1 / (0.57 + 0.43 / 2.7))  # 1.371
    assert found.bound == pytest.approx(1 / 0.57)
    assert found.score == pytest.approx(0.8 * 0.3158 / 0.1, rel=1e-3)  # ln(1.371) = 0.3158, a tenth of an hour


def test_what_buys_most_for_an_hour_of_the_card_comes_first() -> None:
    cheap, dear, unlikely = (
        opportunity("cheap", terms=terms(cost_s=60.0)),
        opportunity("dear", terms=terms(cost_s=3600.0)),
        opportunity("unlikely", terms=terms(cost_s=60.0, probability=0.01)),
    )
    trap = Finding(reader="r", kind="trap", title="a trap", evidence=HERE)
    fact = Finding(reader="r", kind="fact", title="a fact", evidence=HERE)
    assert [f.title for f in order([fact, unlikely, trap, dear, cheap])] == [
        "cheap", "dear", "unlikely", "a trap", "a fact",
    ]  # fmt: skip


def test_a_tie_is_explained_and_broken_by_risk() -> None:
    first, second = order([opportunity("b", risk="high"), opportunity("c", risk="low")])
    assert (first.title, second.title) == (
        "c", "b (same score as the one before: listed by risk, reader and title)",
    )  # fmt: skip


def test_one_change_that_two_readers_propose_is_one_finding() -> None:
    weak = opportunity("weak", change=change(), terms=terms(probability=0.1))
    strong = opportunity("strong", change=change(), reader="other")
    (joined,) = merge([weak, strong])
    assert (joined.title, joined.reader) == ("strong; also r: weak", "r + other")
    assert joined.terms == strong.terms and joined.evidence == HERE
    assert len(merge([weak, opportunity("weak", change=change(16))])) == 2


def test_what_is_called_the_same_is_one_finding_of_its_parts() -> None:
    """Two layer kinds of one fault, read here, and a prior of the whole: tried at once, told once."""
    wide, near = (
        opportunity(name, fix=f"entry {name}", same_as="tiles", terms=terms(share, 3.0, 0.4).model_copy(update=words))
        for name, share, words in (
            ("wide", 0.2, {"share_from": "43% of prefill; 66% of it here"}),
            ("near", 0.1, {"share_from": "43% of prefill; 34% of it there"}),
        )
    )
    prior = opportunity("a prior", reader="known_priors", fix="by hand", same_as="tiles", terms=terms(0.3, 2.4, 0.7))
    (joined,) = merge([prior, wide, near])
    assert (joined.title, joined.reader) == ("wide; also near", "known_priors + r")  # the prior is evidence
    assert joined.fix == "entry wide\nentry near"  # both entries; the prior's words give way to what was read
    assert joined.terms is not None
    assert joined.terms.share == pytest.approx(0.3) and joined.terms.speedup == 2.4 and joined.terms.probability == 0.4
    assert joined.terms.share_from == "43% of prefill; 66% of it here and 34% of it there"
    assert joined.terms.speedup_from == "measured elsewhere"
    (alone,) = merge([wide, near])
    assert alone.terms is not None
    assert alone.terms.gain == pytest.approx(1 / (1 - 0.3 + 0.2 / 3 + 0.1 / 3))
    assert merge([prior]) == [prior]
    assert len(merge([prior, wide.model_copy(update={"kind": "fact", "terms": None})])) == 2


def test_what_is_known_of_the_whole_is_evidence_of_the_best_part_that_a_lever_can_apply() -> None:
    """Each row of a table is a change of its own, so the parts stay apart; a prior of them all is told once."""
    wide = opportunity("wide", change=change(8), same_as="tiles", terms=terms(0.2, 3.0, 0.4))
    near = opportunity("near", change=change(16), same_as="tiles", terms=terms(0.1, 3.0, 0.4))
    prior = opportunity("a prior", reader="known_priors", fix="by hand", same_as="tiles", terms=terms(0.3, 2.4, 0.7))
    first, second = merge([prior, near, wide])
    assert (second.title, second.change, second.reader) == ("wide", change(8), "r + known_priors")
    assert second.terms == wide.terms
    assert first == near


@pytest.mark.parametrize(("gain", "bound"), [(1.75, 4.0), (1.15, None), (1.0, 2.0), (1.03, 1.03)])
def test_a_nights_hypothesis_keeps_its_gain_and_its_bound(gain: float, bound: float | None) -> None:
    h = Hypothesis(
        change=change(), proposer="p", why="w", predicted_gain=gain, bound=bound, probability=0.5, cost_s=100
    )  # fmt: skip
    found = as_finding(h)
    assert found.terms is not None and found.terms.gain == pytest.approx(gain)
    if bound is not None:
        assert found.terms.bound == pytest.approx(bound)


def test_a_finding_becomes_a_hypothesis_only_where_a_lever_can_apply_it() -> None:
    assert opportunity("a table entry, by hand").hypothesis() is None
    h = opportunity("a flag", change=change()).hypothesis()
    assert h is not None and h.predicted_gain == pytest.approx(1.371, abs=1e-3)


def test_only_a_measured_share_bounds_what_a_night_believes() -> None:
    """A judged share may be several times too small: a real gain would be called mismeasured."""
    judged = opportunity("a flag", change=change())
    assert judged.terms is not None and judged.terms.bound == pytest.approx(1 / 0.57)  # shown to a person
    told = judged.hypothesis()
    assert told is not None and told.bound is None
    measured = judged.model_copy(update={"terms": judged.terms.model_copy(update={"share_measured": True})})
    told = measured.hypothesis()
    assert told is not None and told.bound == pytest.approx(1 / 0.57)


def test_a_reader_that_fails_costs_its_own_findings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Dossier) -> list[Finding]:
        raise RecursionError("a table that includes itself")

    def good(_: Dossier) -> list[Finding]:
        return [opportunity("good")]

    def nothing(_: Dossier) -> list[object]:
        return []

    readers = {n: Reader(n, nothing, look, nothing) for n, look in (("a", broken), ("b", good))}  # type: ignore[arg-type]
    monkeypatch.setattr(audit_module, "READERS", readers)
    monkeypatch.setattr(audit_module, "reader_names", lambda names: list(readers))
    for processes in (1, 2):
        found = audit(dossier(), processes=processes)
        assert [f.title for f in found.findings] == ["good"]
        assert found.notes == ("reader a failed and was left out: RecursionError: a table that includes itself",)


def test_a_reader_whose_process_is_ended_costs_what_it_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_: Dossier) -> list[Finding]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def nothing(_: Dossier) -> list[object]:
        return []

    readers = {n: Reader(n, nothing, killed, nothing) for n in ("a", "b")}  # type: ignore[arg-type]
    monkeypatch.setattr(audit_module, "READERS", readers)
    monkeypatch.setattr(audit_module, "reader_names", lambda names: list(readers))
    assert audit(dossier(), processes=2).notes[0].startswith("reader a was left out: a reader's process was ended")


def test_where_there_are_no_more_processes_readers_work_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise NotImplementedError("no semaphores: /dev/shm is not there")

    monkeypatch.setattr(audit_module, "ProcessPoolExecutor", none)
    assert audit(dossier(), ["batch_limits", "kv_dtype"], processes=2) == audit(dossier(), ["batch_limits", "kv_dtype"])


def test_words_that_are_no_unicode_are_written_out() -> None:
    here = Evidence(source="b\ud800.py", detail="\x1b[31m")
    found = audit_module.printable(opportunity("a \udcff", evidence=(here,)))
    assert (found.title, found.evidence[0].source) == (r"a \udcff", r"b\ud800.py")
    assert found.evidence[0].detail == r"\x1b[31m"  # would colour the terminal
    whole = opportunity("tür ≥ 1", fix="one\n\ttwo")
    assert audit_module.printable(whole) is whole


def test_a_flag_that_this_version_does_not_have_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Change(lever=Lever.ENGINE_FLAG, key="no-such-flag", after=1)

    def look(_: Dossier) -> list[Finding]:
        return [opportunity("unknown", change=unknown)]

    def nothing(_: Dossier) -> list[object]:
        return []

    monkeypatch.setattr(audit_module, "READERS", {"a": Reader("a", nothing, look, nothing)})  # type: ignore[arg-type]
    monkeypatch.setattr(audit_module, "reader_names", lambda names: ["a"])
    found = audit(dossier())
    assert not found.findings and "no-such-flag" in found.notes[0]


def test_the_score_of_what_has_no_terms_is_nothing() -> None:
    assert score(Finding(reader="r", kind="fact", title="t", evidence=HERE)) == 0
