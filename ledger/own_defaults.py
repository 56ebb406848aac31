"""How much of a night's gain only undid flags that somebody had set: the engine's own defaults, launched once at the
confirmation, beside the final stack. Pure; no verdict, since one launch is none."""

from __future__ import annotations

import math
from collections.abc import Mapping

from contracts import Change, Lever, Limit
from ledger import words
from ledger.view import NightView
from ledger.words import change_words, level_words, metric_words, number, percent, times


def ratio(view: NightView) -> float | None:
    """The final stack over the defaults, above 1 where the stack is better on the objective; None: not known."""
    if not view.confirmed or not view.confirmed.stock:
        return None
    stock, final = view.confirmed.stock.get(view.metric), view.confirmed.final.get(view.metric)
    if not stock or not final:
        return None
    return stock / final if words.lower_is_better(view.metric) else final / stock


def defaults_words(view: NightView) -> str | None:
    """One sentence, or None where the defaults were not launched."""
    known, stock = ratio(view), view.confirmed.stock if view.confirmed else None
    if known is None or not stock:
        return None
    reached = level_words(view.metric, stock[view.metric])
    told = (
        f"{reached}; the final stack is {times(known)} {'as good' if words.lower_is_better(view.metric) else 'of that'}"
    )
    return f"The engine's own defaults, launched once and not judged, reached {told}{_meaning(view, stock, known)}."


def won(view: NightView) -> bool:
    """Did they beat the final stack by more than noise, and within the limits?"""
    known, stock = ratio(view), view.confirmed.stock if view.confirmed else None
    return bool(stock and known is not None and known < 1 and _doubt(view, stock, known) is None)


def taken_back(view: NightView) -> str:
    """What became of going back to the defaults, setting by setting, or what to do for it."""
    if view.config and view.config.readers is not None and "defaults" not in view.config.readers:
        return "ask the reader defaults too (readers in the night file), which proposes to take settings back"
    back = [h for h in view.considered if _takes_back(h.change)]
    tried = {t.experiment.hypothesis.id: words.word_of(t.experiment) for t in view.tries}
    left = [change_words(h.change) for h in view.hypotheses if h in back and h.id not in tried]
    if left:
        return f"not tried tonight: {'; '.join(left)}"
    if not any(h.id in tried for h in back):
        return "no reader proposed to take one back"
    became = "; ".join(f"{change_words(h.change)}: {tried[h.id]}" for h in back if h.id in tried)
    return f"what was taken back, one at a time: {became}"


def _meaning(view: NightView, stock: Mapping[str, float | None], known: float) -> str:
    if known >= 1:
        return ""
    doubt = _doubt(view, stock, known)
    return ": settings of the night file cost more than the night won (what to do: below)" if doubt is None else doubt


def _doubt(view: NightView, stock: Mapping[str, float | None], known: float) -> str | None:
    """Why faster defaults are no advice: they break a limit, were not held to one, or one launch cannot tell."""
    if view.config is None or view.baseline is None:
        return ", and nothing to hold them to was measured"
    unseen = []
    for limit in view.config.workload.objective.limits:
        had, most = stock.get(limit.metric), _most(limit, view.baseline.metrics)
        if had is not None and most is not None and had > most:
            return f", but they had {level_words(limit.metric, had)}, and at most {number(most)} is allowed"
        if had is None or most is None:
            unseen.append(metric_words(limit.metric).removesuffix(" in ms"))
    if unseen:
        return f", but whether they keep the limit on {' and '.join(unseen)} was not measured"
    noise = view.baseline.noise.launch_sd
    if -math.log(known) <= 2 * noise:
        return f", which one launch cannot tell from none: equal engines differed by {percent(noise)} tonight"
    return None


def _most(limit: Limit, baseline: Mapping[str, float | None]) -> float | None:
    """As judge/objective.py reads it; None where the baseline did not measure what the limit is a multiple of."""
    if limit.times_baseline is None:
        return limit.at_most
    base = baseline.get(limit.metric)
    return None if base is None else limit.times_baseline * base


def _takes_back(change: Change) -> bool:
    """The defaults were launched with the night file's environment (agents/stages/closing.py)."""
    return change.after is None and change.before is not None and change.lever is not Lever.ENVIRONMENT
