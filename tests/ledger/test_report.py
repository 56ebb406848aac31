"""The summary and the two reports: true at any moment of a night, and safe with any text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from contracts import Event, Lever, Limit, PathEvidence, Probe, VerdictWord
from ledger import words
from ledger.errors import LedgerError
from ledger.forest import axis
from ledger.line import read_events
from ledger.report import render_html, render_markdown, write_report
from ledger.schema import Warned
from ledger.screen import render, waiting_for
from ledger.summary import summary
from ledger.view import NightView, fold
from ledger.words import clean, duration, gain_words, headline, metric_words, number, sentence, stand_in, times
from tests.ledger.made_up import SEQS, MadeUpNight, hypothesis
from tests.ledger.nights import (
    KEEP_SEQS,
    broken_night,
    fruitless_night,
    interrupted_night,
    said,
    whole_night,
)


class Page(HTMLParser):
    """What a reader sees, and what a browser would load or run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        targets = [value or "" for name, value in attrs if name in ("src", "href")]
        self.loads += [target for target in targets if not target.startswith("#")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


# --- summary -------------------------------------------------------------------------------------------------------


def test_the_summary_has_what_the_issue_asks_for(view: NightView) -> None:
    told = json.loads(json.dumps(summary(view), allow_nan=False))
    first = told["experiments"][0]
    assert set(first) >= {
        "id", "change", "hypothesis", "verdict", "reason", "metrics", "gates", "path_evidence", "seconds",
    }  # fmt: skip
    assert first["change"] == {"lever": "engine_flag", "key": "max-num-seqs", "before": 4, "after": 32}
    assert first["metrics"]["ratio"] == 1.76 and first["metrics"]["interval"] == pytest.approx([1.7072, 1.8128])
    assert first["metrics"]["median_B"]["output_tokens_per_s"] > 250 and first["verdict"] == "keep" and first["kept"]
    assert told["confirmed_gain"] == {
        "metric": "output_tokens_per_s", "ratio": 2.03, "interval": [1.95, 2.11], "confidence": 0.95, "launch_pairs": 2,
    }  # fmt: skip
    assert told["baseline"]["metrics"]["output_tokens_per_s"] == 165.0 and told["noise_floor"]["launch_sd"] == 0.011
    assert set(told["time_share"]) == {"measurements_and_gates", "engine_starts", "rest"}
    assert sum(told["time_share"].values()) == pytest.approx(1, abs=1e-3)
    assert told["stand_in"] is None and told["lost"] and told["versions"]["vllm"] == "0.32.0"
    failed = next(e for e in told["experiments"] if e["verdict"] == "failed")
    assert failed["metrics"]["ratio"] is None and failed["path_evidence"] is None and failed["gates"] == []


def against_stock(view: NightView, speed: float, tpot: float | None) -> str:
    """The report of this night, had the engine's own defaults reached so much."""
    assert view.confirmed
    stock = {"output_tokens_per_s": speed, "tpot_ms_p95": tpot}
    return render_markdown(view.but(confirmed=view.confirmed.model_copy(update={"stock": stock})), "night")


@pytest.mark.parametrize(
    ("speed", "tpot", "told"),
    [
        (500.0, 85.0, "0.67× of that: settings of the night file cost more than the night won (what to do: below)."),
        (500.0, 400.0, "0.67× of that, but they had TPOT p95 400.0 ms, and at most 90 is allowed."),  # no advice, then
        (500.0, None, "0.67× of that, but whether they keep the limit on TPOT p95 was not measured."),
        (
            340.0,
            85.0,
            "0.985× of that, which one launch cannot tell from none: equal engines differed by 1.1 % tonight.",
        ),
        (340.0, 400.0, "0.985× of that, but they had TPOT p95 400.0 ms, and at most 90 is allowed."),
        (300.0, 400.0, "1.117× of that."),
    ],
)
def test_what_defaults_that_are_faster_mean(view: NightView, speed: float, tpot: float | None, told: str) -> None:
    assert told in against_stock(view, speed, tpot)


def test_what_became_of_going_back_to_faster_defaults(view: NightView) -> None:
    assert view.config

    def told(night: NightView) -> str:
        return against_stock(night, 500.0, 85.0).partition("were faster than all this: ")[2].partition("\n")[0]

    assert told(view) == "what was taken back, one at a time: enforce-eager: true → default: keep."
    eager = hypothesis("enforce-eager", True, None)
    threads = hypothesis("OMP_NUM_THREADS", "2", None, lever=Lever.ENVIRONMENT)  # the defaults were launched with it
    early = view.but(tries=(), hypotheses=(SEQS, threads, eager), earlier=())
    assert told(early) == "not tried tonight: enforce-eager: true → default."
    assert told(early.but(hypotheses=(SEQS, threads))) == "no reader proposed to take one back."
    # one that fell away, as its value was chosen meanwhile, is nothing to try tomorrow
    assert told(early.but(hypotheses=(SEQS,), earlier=(eager,))) == "no reader proposed to take one back."
    for readers, asked in (((), False), (("graph_coverage",), False), (("defaults",), True), (None, True)):
        changed = early.but(config=view.config.model_copy(update={"readers": readers}))
        assert told(changed).startswith("ask the reader defaults too (readers in the night file)") != asked


def test_a_limit_as_a_multiple_of_what_the_baseline_has(view: NightView) -> None:
    assert view.config and view.baseline
    limit = Limit(metric="ttft_ms_p50", times_baseline=1.5)
    objective = view.config.workload.objective.model_copy(update={"limits": (limit,)})
    workload = view.config.workload.model_copy(update={"objective": objective})
    limited = view.but(config=view.config.model_copy(update={"workload": workload}))
    stock = {"output_tokens_per_s": 500.0, "ttft_ms_p50": 600.0}
    assert limited.confirmed
    limited = limited.but(confirmed=limited.confirmed.model_copy(update={"stock": stock}))
    assert "but they had TTFT p50 600.0 ms, and at most 570.0 is allowed." in render_markdown(limited, "night")
    unknown = limited.but(baseline=view.baseline.model_copy(update={"metrics": {"output_tokens_per_s": 165.0}}))
    assert "whether they keep the limit on TTFT p50 was not measured." in render_markdown(unknown, "night")


def test_a_latency_is_a_name_with_so_many_ms_and_smaller_is_better(view: NightView) -> None:
    """ "reached 60 TPOT p95 in ms; the final stack is 1.25x of that" said that the final stack had 75."""
    assert view.config and view.confirmed
    objective = view.config.workload.objective.model_copy(update={"metric": "tpot_ms_p95", "limits": ()})
    workload = view.config.workload.model_copy(update={"objective": objective})
    stock = view.confirmed.model_copy(update={"stock": {"tpot_ms_p95": 63.75}, "final": {"tpot_ms_p95": 51.0}})
    latency = view.but(config=view.config.model_copy(update={"workload": workload}), confirmed=stock)
    report = render_markdown(latency, "night")
    assert "reached TPOT p95 63.8 ms; the final stack is 1.25× as good.\n" in report
    assert "incumbent then at about TPOT p95 48.3 ms.\n" in report
    slower = stock.model_copy(update={"stock": {"tpot_ms_p95": 40.8}})
    assert "reached TPOT p95 40.8 ms; the final stack is 0.80× as good: settings of" in render_markdown(
        latency.but(confirmed=slower), "night"
    )


def test_what_became_worse_is_told_though_no_limit_was_set_on_it(view: NightView) -> None:
    assert "TTFT p50 in ms 380.0 → 402.0" in render_markdown(view, "n")  # 5.8 %, and tonight's noise is 1.1 %
    assert view.baseline
    noisy = view.baseline.model_copy(update={"noise": view.baseline.noise.model_copy(update={"launch_sd": 0.1})})
    assert "Worse than before" not in render_markdown(view.but(baseline=noisy), "n")


def test_without_a_kept_confirmation_there_is_no_confirmed_gain(tmp_path: Path) -> None:
    night = MadeUpNight(tmp_path)
    night.start()
    night.baseline()
    night.experiment(1, SEQS, KEEP_SEQS, 1.76)
    night.confirm(VerdictWord.REVERT, 2.0, (1.9, 2.1), "the token_ids gate says fail: 3 of 24 part")
    night.finish("done", "every hypothesis was tried")
    view = fold(read_events(tmp_path))
    assert summary(view)["confirmed_gain"] is None and summary(view)["confirmation"]["verdict"]["ratio"] == 2.0
    page = Page(render_html(view, "n"))
    assert (
        "Nothing confirmed" in page.text and "did not hold on fresh launches: the token_ids gate says fail" in page.text
    )
    assert "not confirmed" in page.text


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            interrupted_night,
            "1 change was kept on the way, but not confirmed on fresh launches, so no gain",
        ),
        (fruitless_night, "1 change tried, none was kept"),
        (broken_night, "ended with a problem: the base engine does not start"),
    ],
)
def test_nothing_confirmed_says_why(made: object, why: str, tmp_path: Path) -> None:
    view = fold(read_events(made(tmp_path)))  # type: ignore[operator]
    assert headline(view).title == "Nothing confirmed" and why in headline(view).detail
    assert why in Page(render_html(view, "n")).text and summary(view)["confirmed_gain"] is None


# --- reports -------------------------------------------------------------------------------------------------------


def test_both_reports_say_all_that_matters(view: NightView, tmp_path: Path) -> None:
    html, markdown = write_report(view, tmp_path)
    page = Page(html.read_text()).text
    plain = markdown.read_text().replace("\\", "").replace("&lt;", "<").replace("&amp;", "&").replace("**", "")
    for text in (
        "2.03× output tokens/s, confirmed",
        "Made-up CPU, 2 cores (x86_64) · vLLM 0.32.0 · made-up-135m · 2026-11-29",
        "the final stack is 1.040× of that",
        "4 planted traps, all refused",
        "incumbent then at about 290.4 output tokens/s",
        "TPOT p95 is 118 ms, above the workload's limit of 90 ms",
        "7 of 8 answers part, the first at token 3",
        "the engine took it and did nothing",
        "Two equal engines differed tonight by 1.1 %",
        "the launch of arm B for enforce-eager",
        "ended our own engines 4007",
        'must be a multiple of 32, got <16> & "stopped"',
        "Left out: gpu-memory-utilization",
        "run_night.py verify",
        "1.120× to 1.190×",
        "16 streams wait for 4 places",
    ):
        assert text in page, text
        assert text in plain or text.startswith("Left out"), text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "report.md"], "no temporary file is left"


def test_both_reports_show_the_floor_of_the_sums_and_what_a_gate_could_see(view: NightView, tmp_path: Path) -> None:
    write_report(view, tmp_path)
    for name in ("report.md", "report.html"):
        text = (tmp_path / name).read_text()
        assert text.endswith("\n") and text.count("one changed layer of 30") == 1  # equal for every gate: told once
        assert "the unchanged engine has 199 of 200 right (99.5 %)" in text
        assert "must lose less than 2 points on the same ones" in text and "does, reach 96.5 %" in text
        assert "one changed layer of 30 would part 24 of 24 answers" in text  # a gate's power


def test_the_page_opens_offline_and_runs_nothing(view: NightView) -> None:
    page = Page(render_html(view, "n"))
    assert page.loads == [] and "script" not in page.tags and "link" not in page.tags and "img" not in page.tags
    assert "url(" not in render_html(view, "n") and "prefers-color-scheme: dark" in render_html(view, "n")


def test_a_stand_in_is_named_before_anything_else(tmp_path: Path) -> None:
    view = fold(read_events(whole_night(tmp_path, vllm="0.0.0+standin")))
    assert stand_in(view) == "0.0.0+standin" == summary(view)["stand_in"]
    page = Page(render_html(view, "n")).text
    assert page.index("Rehearsal: 2.03× output tokens/s, confirmed") < page.index("No number on this page")
    markdown = render_markdown(view, "n")
    assert "No number on this page means anything" in markdown
    assert stand_in(NightView(versions={"vllm": "0.32.0", "kernel": "outstanding"})) is None


def test_everything_renders_at_every_moment_of_a_night(events: list[Event]) -> None:
    view = NightView()
    for number_of, event in enumerate(events):
        view = view.after(event)
        if number_of % 9 == 0 or event.kind not in ("stage_entered", "stage_left", "measured", "launch_ready"):
            assert "</html>" in render_html(view, "n") and render_markdown(view, "n")
            json.dumps(summary(view), allow_nan=False)
            assert render(view) and waiting_for(view, event.at)
    assert "</html>" in render_html(NightView(), "n") and "This night has not ended" in render_html(NightView(), "n")


def test_text_from_an_engine_is_never_markup(tmp_path: Path) -> None:
    evil = '<script>alert(1)</script>|`*_"&\n\x1b[31mred\x07 {{ 7*7 }}'
    night = MadeUpNight(tmp_path)
    night.start()
    night.add("warned", Warned(message=evil))
    e = night.begin(1, SEQS)
    night.judge(e, said(VerdictWord.FAILED, evil), 1)
    view = fold(night.ledger.events)
    night.ledger.close()
    html, markdown = render_html(view, evil), render_markdown(view, "n")
    assert "script" not in Page(html).tags and "<script" not in markdown
    assert "\x1b" not in html + markdown and "\x07" not in html + markdown and "49" not in Page(html).text
    row = next(line for line in markdown.splitlines() if line.startswith("| 1 | max"))
    assert row.count("|") - row.count("\\|") == 7


@pytest.mark.parametrize(
    ("text", "as_written"),
    [
        (
            r"a\|b",
            r"a\\\|b",
        ),  # of two backslashes before a bar the first would escape the second, and the bar end the cell
        (r"\*not bold\*", r"\\\*not bold\\\*"),
        ("![x](http://example.org/x.png)", r"![x]\(http://example.org/x.png)"),  # fetched by whoever opens the page
        ("[x]: http://example.org", r"[x]\: http://example.org"),
        ("~~gone~~", r"\~\~gone\~\~"),
        ("sizes [1, 2, 4] (all)", "sizes [1, 2, 4] (all)"),
    ],
)
def test_text_of_others_is_never_markdown(text: str, as_written: str, tmp_path: Path) -> None:
    night = MadeUpNight(tmp_path)
    night.start()
    night.add("warned", Warned(message=text))
    view = fold(night.ledger.events)
    night.ledger.close()
    assert f"- warning: {as_written}\n" in render_markdown(view, "n")


def test_text_of_others_does_not_turn_the_order_of_letters(tmp_path: Path) -> None:
    night = MadeUpNight(tmp_path)
    night.start()
    e = night.begin(1, hypothesis("block-size", None, "\u202e61\u2066", why="\u202eneve si ti\u2069"))
    night.judge(e, said(VerdictWord.FAILED, "it was \u202edesufer"), 1)
    view = fold(night.ledger.events)
    night.ledger.close()
    for page in (render_html(view, "n\u202e"), render_markdown(view, "n\u202e")):
        assert "t was desufer" in page and not re.search("[\u202a-\u202e\u2066-\u2069]", page)


def test_a_failed_write_keeps_the_old_report(view: NightView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report(view, tmp_path)
    before = (tmp_path / "report.html").read_bytes()

    def no_space(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ledger.report.os.fsync", no_space)
    with pytest.raises(LedgerError, match="report NIGHT` writes it again"):
        write_report(NightView(), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before and len(list(tmp_path.iterdir())) == 2
    with pytest.raises(LedgerError, match="No such file"):
        write_report(view, tmp_path / "nowhere")


# --- places and words ----------------------------------------------------------------------------------------------


def test_marks_stand_where_their_ratios_are(view: NightView) -> None:
    verdicts = [e.verdict for e in view.experiments if e.verdict]
    scale = axis(verdicts, 0.02)
    marks = [mark for v in verdicts if (mark := scale.mark(v))]
    assert len(marks) == 4 and all(m.low is not None and m.high is not None for m in marks)
    assert all(m.low < m.at < m.high for m in marks if m.low is not None and m.high is not None)
    assert scale.gain and scale.one < scale.gain and scale.place(1.0) == scale.one
    assert [place for place, _ in scale.ticks] == sorted(place for place, _ in scale.ticks)


def test_an_endless_interval_is_cut_and_does_not_squeeze_the_rest() -> None:
    wide = said(VerdictWord.INCONCLUSIVE, "two pairs", 1.1).model_copy(update={"interval": (1e-6, 1e6)})
    scale = axis([wide, KEEP_SEQS], 0.02)
    mark = scale.mark(wide)
    assert mark and mark.low_cut and mark.high_cut and (mark.low, mark.high) == (0, 100)
    assert scale.high < 3 and scale.low > 0.5
    assert scale.mark(said(VerdictWord.VOID, "no number")) is None
    assert axis([], None).gain is None
    worse = said(VerdictWord.REVERT, "slower", 0.02)
    assert 0 < (axis([worse], 0.02).mark(worse) or scale.mark(KEEP_SEQS)).at < 20  # type: ignore[union-attr]


def test_entries_of_a_file_that_were_left_out_for_one_reason_are_one_line() -> None:
    amd = "(prior): it is for amd, this card is cpu"
    told = [
        f"a.yaml#one {amd}",
        "roofline: no sheet",
        f"a.yaml#two {amd}",
        f"b.yaml#one {amd}",
        "a.yaml#c (prior): old",
    ]
    assert words.folded(told) == [
        f"2 entries of a.yaml {amd}", "roofline: no sheet", f"b.yaml#one {amd}", "a.yaml#c (prior): old",
    ]  # fmt: skip


def test_numbers_in_words() -> None:
    assert (times(1.004), times(1.76), times(None), times(0.5)) == ("1.004×", "1.76×", "–", "0.50×")
    assert (duration(0.05), duration(61), duration(118), duration(4000), duration(30000)) == (
        "0.1 s", "61 s", "1 min 58 s", "66 min 40 s", "8 h 20 min",
    )  # fmt: skip
    assert metric_words("ttft_ms_p50") == "TTFT p50 in ms" and metric_words("output_tokens_per_s") == "output tokens/s"
    assert gain_words("tpot_ms_p95", 1.3) == "TPOT p95 1.30× better"
    assert number(334.94) == "334.9" and number(None) == "–" and number(12345.6) == "12,346"
    assert sentence("max-num-seqs is 4") == "max-num-seqs is 4." and sentence("two runs.") == "Two runs."
    assert clean("\x1b[1mbold\x1b[0m\x00") == "bold"


def test_what_was_seen_in_each_arm_is_told() -> None:
    """In the evidence's own words, or as data; a ledger from before there were data says what it has."""
    probe = Probe(kind="realised", key="kv_cache_dtype")
    new = PathEvidence(outcome="proven", probe=probe, seen_in_a="dtype = auto", b={"dtype": "fp8"}, reason="said")
    assert words.seen(new) == (("A", "dtype = auto"), ("B", '{"dtype": "fp8"}'))
    old = {"outcome": "absent", "probe": {"kind": "log_line", "pattern": "x"}, "seen_in_b": "x", "reason": "r"}
    assert words.seen(PathEvidence.model_validate(old)) == (("B", "x"),)
    assert PathEvidence.model_validate(old).a == {}
