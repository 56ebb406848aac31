"""What to do in the morning: the steps that follow from a night, and what of it is for others. Pure; no verdict."""

from __future__ import annotations

import json
import shlex

from contracts import Change, GateResult, Lever, VerdictWord
from ledger import own_defaults, words
from ledger.view import NightView
from ledger.words import LEVER_WORDS, between, change_words, clean, times

MOST_NAMED = 3
SETTINGS = (Lever.ENGINE_FLAG, Lever.ENVIRONMENT, Lever.COMPILATION)  # of a deployment: nothing for upstream


def next_steps(view: NightView) -> list[str]:
    """What follows, most pressing first; never empty."""
    if words.stand_in(view):
        return ["Nothing: this was a rehearsal."]
    if view.running:
        return ["Wait for the night's end; if its process is gone, run_night.py CONFIG --resume goes on with it."]
    if _trap_kept(view):
        return ["Use nothing of this night: a planted trap was kept, so its gates or its judge cannot be trusted."]
    steps = [*_serve(view), *_faster_defaults(view), *_not_run(view), *_undecided(view), *_not_tried(view)]
    if view.finish and view.finish.outcome == "problem":
        mend = f"Mend what ended the night ({view.finish.reason}): run_night.py doctor CONFIG names what it finds."
        steps = [mend, *steps]
    if view.finish and view.finish.outcome == "interrupted":
        steps.append("run_night.py CONFIG --resume goes on where the night was interrupted.")
    return [clean(step) for step in steps] or [
        "Nothing is undecided and nothing is left to try by itself: try_first in the night file takes your own changes."
    ]


def upstream(view: NightView) -> str:
    """What others could use of what was confirmed."""
    if words.stand_in(view) or not words.headline(view).confirmed or _trap_kept(view):
        return "Nothing: no gain was confirmed."
    files = [t for t in view.kept if t.experiment.hypothesis.change.lever not in SETTINGS]
    if not files:
        return "Nothing: what was kept are settings of this deployment, not code or tables."
    named = "; ".join(
        f"{change_words(t.experiment.hypothesis.change)} ({LEVER_WORDS[t.experiment.hypothesis.change.lever]}"
        + (f", commit {t.commit[:12]} of overlay/)" if t.commit else ", in overlay/)")
        for t in files
    )
    return clean(
        f"{named}. Nightgate writes no patch for vLLM or AITER: look for an open request first, and send it as a "
        "person who can defend it."
    )


def _trap_kept(view: NightView) -> bool:
    return any(t.experiment.hypothesis.planted for t in view.kept)


def _serve(view: NightView) -> list[str]:
    changes = [t.experiment.hypothesis.change for t in view.kept]
    if not changes:
        return []
    if words.headline(view).confirmed:
        first = [f"Look at what changed in the installed files before you trust it: {words.trees_words(view)}."]
        return [*(first if words.trees_changed(view) else []), f"Serve with it: {'; '.join(map(in_use, changes))}."]
    if view.confirmed:
        return ["Do not serve with what was kept on the way: on fresh launches it did not hold."]
    return ["Do not serve with what was kept on the way: it was not confirmed. More minutes leave room for that."]


def in_use(change: Change) -> str:
    """How a server is started with this change, in words."""
    key, after = change.key, change.after
    if change.lever == Lever.ENGINE_FLAG:
        if after is None or isinstance(after, bool):
            return {None: f"without --{key}", True: f"--{key}", False: f"--no-{key}"}[after]
        return f"--{key} {after if isinstance(after, str | int | float) else shlex.quote(json.dumps(after))}"
    if change.lever == Lever.ENVIRONMENT:
        return f"without the variable {key}" if after is None else f"{key}={after} in its environment"
    if change.lever == Lever.COMPILATION:
        without = f"without {key} in --compilation-config"
        return without if after is None else f"{json.dumps({key: after})} in --compilation-config"
    return f"{change_words(change)} ({LEVER_WORDS[change.lever]}; its file lies in overlay/)"


def _faster_defaults(view: NightView) -> list[str]:
    if not own_defaults.won(view):
        return []
    return [f"The engine's own defaults were faster than all this: {own_defaults.taken_back(view)}."]


def _not_run(view: NightView) -> list[str]:
    gates: tuple[GateResult, ...] = view.confirmed.gates if view.confirmed else ()
    gates = gates or tuple(gate for e in view.experiments for gate in e.gates)
    missing = dict.fromkeys(f"{gate.check} was not run: {gate.reason}." for gate in gates if gate.outcome == "not_run")
    return list(missing)


def _undecided(view: NightView) -> list[str]:
    open_ones = [e for e in view.experiments if e.verdict and e.verdict.word == VerdictWord.INCONCLUSIVE]
    if not open_ones:
        return []
    named = "; ".join(
        change_words(e.hypothesis.change)
        + (f" ({between(e.verdict.interval)})" if e.verdict and e.verdict.interval else "")
        for e in open_ones[:MOST_NAMED]
    )
    more = f" and {len(open_ones) - MOST_NAMED} more" if len(open_ones) > MOST_NAMED else ""
    pairs = f", {view.config.judge.max_launch_pairs} here" if view.config else ""
    return [
        f"Undecided: {named}{more}. A quieter machine or more launch pairs (judge.max_launch_pairs{pairs}) show "
        "smaller gains."
    ]


def _not_tried(view: NightView) -> list[str]:
    tried = {t.experiment.hypothesis.id for t in view.tries}
    left = [h for h in view.hypotheses if h.id not in tried]
    if not left:
        return []
    best = f"{change_words(left[0].change)}, {times(left[0].predicted_gain)} predicted"
    one = len(left) == 1
    return [
        f"{len(left)} hypothes{'is was' if one else 'es were'} not tried ({'' if one else 'the best: '}{best}): more "
        "minutes or a larger judge.max_tries."
    ]
