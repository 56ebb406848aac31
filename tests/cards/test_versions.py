"""What configs/versions.yaml says, and that it says nothing without a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from cards.sheet import known_sheets
from cards.versions import Statement, VersionsError, read_versions, release, told

ALL = read_versions()


def verdicts(arch: str, **installed: str) -> dict[str, str]:
    return {t.part: t.verdict for t in told(arch, installed, ALL)}


def test_every_statement_has_a_source_and_a_card_that_we_know() -> None:
    assert all(len(s.source) > 20 and s.says for s in ALL)
    assert {arch for s in ALL for arch in s.arch} <= set(known_sheets())


@pytest.mark.parametrize(
    ("arch", "part", "version", "verdict"),
    [
        ("gfx906", "triton", "3.5.0", "refuses"),
        ("gfx906", "triton", "3.7.1", "refuses"),
        ("gfx906", "triton", "3.5.1+gfx906", "nobody has said so"),  # a fork's build
        ("gfx906", "triton", "3.5.1+of.a.vendor", "nobody has said so"),  # a made-up name; DTK brings its own
        ("gfx906", "triton", "3.9.0", "works"),
        ("gfx906", "triton", "4.0.0", "nobody has said so"),
        ("gfx906", "rocm", "6.3.42131", "works"),
        ("gfx906", "rocm", "6.4.1", "refuses"),
        ("gfx906", "torch", "2.10.0a0+git449b176", "works"),
        ("gfx906", "torch", "2.11.0a0+gitd4e5f6a", "works"),  # a made-up hash; mobydick builds 2.11.0
        ("gfx906", "vllm", "0.30.0+rocm700", "refuses"),
        ("gfx906", "aiter", "0.1.7", "refuses"),
        ("gfx950", "rocm", "6.4.3", "refuses"),
        ("gfx950", "rocm", "7.0.5", "works"),
        ("gfx950", "vllm", "0.30.0", "works"),
        ("gfx950", "vllm", "0.33.0", "nobody has said so"),
        ("gfx942", "rocm", "6.2", "refuses"),
        ("gfx90a", "triton", "dev", "nobody has said so"),
    ],
)
def test_what_is_known(arch: str, part: str, version: str, verdict: str) -> None:
    assert verdicts(arch, **{part: version}) == {part: verdict}


def test_an_arch_of_which_nobody_spoke_gets_no_answer() -> None:
    assert verdicts("gfx1100", rocm="7.0") == {}
    assert verdicts("sm_90", torch="2.9.0") == {}


def test_answers_read_as_sentences() -> None:
    refused, unknown = told("gfx906", {"triton": "3.6.0", "vllm": "0.11.2+gfx906"}, ALL)
    assert str(refused) == (
        "Triton 3.6.0: upstream Triton 3.5 to 3.7.1 refuses this arch (unsupported target: 'gfx906') [measured here]"
    )
    assert refused.statement is not None and refused.statement.fix
    assert str(unknown) == "vLLM 0.11.2+gfx906: nobody has said whether it works on this card"


@pytest.mark.parametrize(
    ("version", "number"),
    [("2.9.0+rocm6.3", (2, 9, 0)), ("v0.30.0rc1", (0, 30, 0)), ("dev", None), ("6.3.25211", (6, 3, 25211))],
)
def test_release_numbers(version: str, number: tuple[int, ...] | None) -> None:
    assert release(version) == number


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    bad = tmp_path / "versions.yaml"
    bad.write_text("statements: [{arch: [gfx906]}]")
    with pytest.raises(VersionsError, match="versions.yaml cannot be used"):
        read_versions(bad)
    good = {"arch": ("gfx906",), "part": "torch", "says": "x", "source": "y", "evidence": "published"}
    with pytest.raises(ValueError, match="names a fix"):
        Statement.model_validate({**good, "versions": ">=1", "verdict": "refuses"})
    with pytest.raises(ValueError, match="write a range like"):
        Statement.model_validate({**good, "versions": "1.x", "verdict": "works"})
