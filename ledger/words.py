"""How numbers and outcomes are said to a person. Shared by the reports, the live screen and the log lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from contracts import Change, Experiment, Frozen, Lever, Limit, PathEvidence, VerdictWord, value_words
from ledger.clock import seconds_between
from ledger.view import NightView, Try

_TURNED = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they turn the order of the letters that follow
_UNPRINTABLE = re.compile(rf"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNED}]")
LEVER_WORDS = {
    Lever.ENGINE_FLAG: "engine flag",
    Lever.ENVIRONMENT: "environment",
    Lever.COMPILATION: "compilation config",
    Lever.MOE_TABLE: "vLLM MoE table",
    Lever.AITER_JSON: "AITER table",
    Lever.AITER_CSV: "AITER tuned rows",
    Lever.KERNEL_TABLE: "kernel table",
    Lever.SOURCE_PATCH: "source patch",
}


class Headline(Frozen):
    """The first thing that a reader sees."""

    confirmed: bool
    title: str
    detail: str


def clean(text: str) -> str:
    """Without colours, bells and other control characters, those that turn the order of letters included: an engine's
    log is not ours to trust on a terminal."""
    return _UNPRINTABLE.sub("", text)


def sentence(text: str) -> str:
    """With a capital and a full stop; a name like max-num-seqs at its start stays as it is."""
    text = clean(text).strip()
    first = text.split(" ", 1)[0].rstrip(":,")
    if first.isalpha() and first.islower():
        text = text[0].upper() + text[1:]
    return text if not text or text[-1] in ".!?" else text + "."


def times(ratio: float | None) -> str:
    """1.76x as 1.76×; three decimals where two would hide the difference."""
    if ratio is None:
        return "–"
    return f"{ratio:.3f}×" if 0.8 < ratio < 1.2 else f"{ratio:.2f}×" if ratio < 100 else f"{ratio:.3g}×"


def between(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{times(interval[0])} to {times(interval[1])}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}".rstrip("0").rstrip(".") + " %"


def number(value: float | None) -> str:
    """Three or four significant digits, without an exponent."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 90 * 60:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def gibibytes(size: int | None) -> str:
    return "–" if size is None else f"{size / (1 << 30):.1f} GiB"


def metric_words(name: str) -> str:
    """output_tokens_per_s as "output tokens/s", ttft_ms_p50 as "TTFT p50 in ms"."""
    latency = re.fullmatch(r"(\w+?)_ms(?:_(p\d+|mean|median))?", name)
    if latency:
        what = latency[1].upper() if len(latency[1]) <= 4 and latency[1] != "e2e" else latency[1]
        return f"{what} {latency[2]} in ms" if latency[2] else f"{what} in ms"
    if name.endswith("_little"):
        return f"{metric_words(name.removesuffix('_little'))} by Little's law"
    return name.replace("_per_s", "/s").replace("_", " ")


_METRIC = re.compile(r"\b[a-z]\w*_(?:per_s|ms(?:_(?:p\d+|mean|median))?)\b")


def named(text: str) -> str:
    """`output_tokens_per_s 2.69x; tpot_ms_p95 12 of at most 49 ms` with its metrics' names in words."""
    return _METRIC.sub(lambda name: metric_words(name[0]).removesuffix(" in ms"), clean(text))


def lower_is_better(name: str) -> bool:
    return bool(re.search(r"_ms(_|$)", name))


def change_words(change: Change) -> str:
    """`enforce-eager: true → default`, without the lever."""
    before, after = (value_words(change.lever, value) for value in (change.before, change.after))
    return clean(f"{change.key}: {before} → {after}")


def clock_time(at: str | None) -> str:
    """Local to nobody: UTC, to the minute."""
    return "–" if at is None else datetime.fromisoformat(at).astimezone(UTC).strftime("%H:%M")


def date_time(at: str | None) -> str:
    return "–" if at is None else datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def stand_in(view: NightView) -> str | None:
    """What called itself a stand-in, or None: then an engine said its real version."""
    said = [value for value in view.versions.values() if value]
    launches = (*view.launches, *(launch for e in view.experiments for launch in e.launches))
    said += [value for launch in launches for value in launch.realised.values() if isinstance(value, str)]
    return next((text for text in said if re.search(r"stand[-_ ]?in\b", text, re.IGNORECASE)), None)


def state_words(view: NightView) -> str:
    """Where the night is, as one clause."""
    if view.finish is None:
        if view.interrupted:
            return f"stopping ({view.interrupted})"
        return f"no end was written: running, or killed after {date_time(view.last_at)}"
    how = {
        "done": "ran to its end",
        "budget": "ended with its time",
        "interrupted": "was interrupted",
        "problem": "ended with a problem",
    }[view.finish.outcome]
    return f"{how}: {view.finish.reason}"


def level_words(name: str, value: float | None) -> str:
    """ "1,312 output tokens/s", or "TTFT p50 380.0 ms"."""
    what = metric_words(name)
    return f"{what.removesuffix(' in ms')} {number(value)} ms" if lower_is_better(name) else f"{number(value)} {what}"


def gain_words(metric: str, ratio: float | None) -> str:
    """2.03× output tokens/s, or TTFT p50 1.30× better."""
    if lower_is_better(metric):
        return f"{metric_words(metric).removesuffix(' in ms')} {times(ratio)} better"
    return f"{times(ratio)} {metric_words(metric)}"


def headline(view: NightView) -> Headline:
    """The confirmed number, or plainly that there is none and why."""
    verdict = view.confirmed.verdict if view.confirmed else None
    rehearsal = "Rehearsal: " if stand_in(view) else ""
    if verdict and verdict.word == VerdictWord.KEEP and verdict.ratio is not None:
        metric = verdict.metric or view.metric
        title = f"{rehearsal}{gain_words(metric, verdict.ratio)}, confirmed"
        return Headline(confirmed=True, title=title, detail=verdict.reason)
    return Headline(confirmed=False, title=f"{rehearsal}Nothing confirmed", detail=_why_nothing(view))


def _why_nothing(view: NightView) -> str:
    if view.confirmed:
        return f"The kept changes did not hold on fresh launches: {view.confirmed.verdict.reason}"
    count = len(view.kept)
    kept = f"{count} change{' was' if count == 1 else 's were'} kept on the way"
    unclaimed = f"{kept}, but not confirmed on fresh launches, so no gain is claimed."
    if view.finish is None:
        return f"The night has not ended. {unclaimed}" if view.kept else "The night has not ended."
    how = state_words(view)
    if view.kept:
        return f"The night {how}. {unclaimed}"
    tried = sum(1 for e in view.experiments if e.verdict)
    if not tried:
        return f"The night {how}. No change was judged."
    changes = f"{tried} change{'' if tried == 1 else 's'}"
    return f"The night {how}. {changes} tried, none was kept; each says why below."


def word_of(experiment: Experiment) -> str:
    """The verdict's word; an experiment without one was in flight."""
    return experiment.verdict.word.value if experiment.verdict else "not judged"


def traps(view: NightView) -> str | None:
    """What became of the changes that were planted to be refused."""
    planted = [e for e in view.experiments if e.hypothesis.planted and e.verdict]
    if not planted:
        return None
    kept = [change_words(e.hypothesis.change) for e in planted if e.id in view.kept_ids]
    if kept:
        return f"{len(kept)} of {len(planted)} planted traps was KEPT: {'; '.join(kept)}. Do not trust this night."
    return f"{len(planted)} planted traps, all refused." if len(planted) > 1 else "1 planted trap, refused."


def trees_words(view: NightView) -> str | None:
    """Are the installed files what they were? None where nobody has looked."""
    before, after = view.trees_before, view.trees_after
    if before is None:
        return None
    names = ", ".join(f"{name} ({number(tree.files)} files)" for name, tree in before.trees.items()) or "nothing"
    if after is None or after.identical is None:
        return f"{names}: not compared, the night did not reach its report" if view.finish else f"{names}: hashed"
    if after.identical:
        return f"{names}: identical before and after the night ({after.left_out} left out)"
    more = f" and {after.changed_count - len(after.changed)} more" if after.changed_count > len(after.changed) else ""
    return f"CHANGED during the night: {', '.join(after.changed)}{more}"


def trees_changed(view: NightView) -> str | None:
    """The loud line on top of a report, or None."""
    if view.trees_after is None or view.trees_after.identical is not False:
        return None
    count = view.trees_after.changed_count
    return (
        f"{count} installed file{'' if count == 1 else 's'} changed during this night, which lays everything over and "
        "writes nothing there: somebody installed, or an engine compiled into its own folder. What was measured before "
        "and after that may be two engines."
    )


def span(view: NightView) -> str:
    """From when to when, and how long of it the night really ran."""
    end = view.finished_at or view.last_at
    if not view.started_at or not end:
        return "–"
    whole = seconds_between(view.started_at, end)
    away = f", of which {duration(view.time.away)} not running" if view.time.away else ""
    return f"{date_time(view.started_at)} to {clock_time(end)}, {duration(whole)}{away}"


def try_seconds(t: Try) -> str:
    return duration(t.experiment.seconds) if t.experiment.verdict else "–"


def limit_words(limit: Limit) -> str:
    """tpot ms p95 at most 60, or at most 2.5 times the baseline."""
    most = number(limit.at_most) if limit.at_most is not None else f"{number(limit.times_baseline)} times the baseline"
    return f"{metric_words(limit.metric)} at most {most}"


_ENTRY = re.compile(r"(?P<file>\S+)#\S+ (?P<why>\(\w+\): .+)")


def folded(dropped: Sequence[str]) -> list[str]:
    """What was left out, with a file's entries that were left out for one reason in one line (40 priors of another
    card's); the JSON names each."""
    found = [_ENTRY.fullmatch(line) for line in dropped]
    count = Counter((m["file"], m["why"]) for m in found if m)
    lines = [
        f"{count[m['file'], m['why']]} entries of {m['file']} {m['why']}"
        if m and count[m["file"], m["why"]] > 1
        else line
        for line, m in zip(dropped, found, strict=True)
    ]
    return list(dict.fromkeys(lines))


SEEN_CHARS = 300  # of what was seen in one arm; the ledger has all of it


def seen(evidence: PathEvidence) -> tuple[tuple[str, str], ...]:
    """What was seen in each arm, in the evidence's own words, else its data; ("B", "moe_backend = TRITON")."""
    found = []
    for arm, said, data in (("A", evidence.seen_in_a, evidence.a), ("B", evidence.seen_in_b, evidence.b)):
        text = said or (json.dumps(data, sort_keys=True) if data else "")
        if text:
            found.append((arm, text if len(text) <= SEEN_CHARS else f"{text[:SEEN_CHARS]} ..."))
    return tuple(found)
