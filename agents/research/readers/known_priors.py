"""What is known from elsewhere about exactly this: card, version, model, load? Good and bad, for a person who audits.

Every prior whose conditions hold (conditions.py) is said once. What helped and a lever can apply carries its change
and the prior's own gain; what helped and has to be done by hand says how; what hurt is a trap, what did nothing or is
not known is a fact. `prior.read` gives a night the same changes with the same numbers and evidence, so that the two
merge by change id; where both are asked, one of them is enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from agents.research.dossier import Dossier, holds
from agents.research.finding import Finding, Terms
from agents.research.priors import FOLDER, Prior, prior_files, read_all
from agents.research.readers.prior import not_here
from agents.research.shares import phase_share, share, within
from agents.tuning.apply import same
from agents.tuning.levers import LEVERS
from agents.tuning.static_check import static_check
from contracts import Change, Evidence, Lever

NAME = "known_priors"

# Of the objective's time, where neither a profile nor the roofline says what a part or a phase takes. Judged, and on
# purpose low: in the one profile that we have in figures (MI355X, prefill of 10,000 tokens) attention took 43 %
# before and 25 % after its tiles were put right, GEMM 61 % then.
JUDGED_PART, JUDGED_PHASE = 0.2, 0.4
APART = 2.0  # times: a share that far from the roofline's says that one of the two does not hold here; judged


def look(dossier: Dossier) -> list[Finding]:
    """From dossier.priors. A file that cannot be used is a line of `prior.dropped`."""
    return findings(read_all(dossier.priors)[0], dossier)


def with_priors(dossier: Dossier, folder: Path | str = FOLDER) -> Dossier:
    """The dossier with all priors of `folder` where it names none: for an audit, whose user has no night file. Raises
    PriorError where there is no such folder."""
    return dossier if dossier.priors else dossier.model_copy(update={"priors": prior_files(folder)})


def findings(priors: Iterable[Prior], dossier: Dossier) -> list[Finding]:
    """Of those whose conditions hold, in their order."""
    return [_finding(prior, dossier) for prior in priors if not_here(prior, dossier) is None]


def _finding(prior: Prior, dossier: Dossier) -> Finding:
    if prior.outcome == "helps":
        return _by_lever(prior, dossier) if prior.lever != "none" else _by_hand(prior, dossier)
    why = f"{prior.why} ({prior.provenance.numbers})"
    if prior.outcome == "unclear":
        return _said(prior, "fact", f"Not known whether {_name(prior)} helps: {why}")
    change = _change(prior, dossier)
    held = change is not None and same(change.before, change.after)
    if prior.outcome == "hurts":
        begin = "This engine should not have" if held else "Avoid" if prior.lever == "none" else "Do not try"
        found = _said(prior, "trap", f"{begin} {_name(prior)}: {why}")
    else:
        begin = "This engine has, for nothing," if held else "Do not try, no gain from"
        found = _said(prior, "fact", f"{begin} {_name(prior)}: {why}")
    if change is None or held:  # a change to what is there already is none
        evidence = (*found.evidence, holds(dossier, prior.key, prior.value)) if held else found.evidence
        return found.model_copy(update={"evidence": evidence})
    return found.model_copy(update={"change": change})


def _by_lever(prior: Prior, dossier: Dossier) -> Finding:
    change = _change(prior, dossier)
    assert change is not None and prior.gain is not None  # load_priors has seen to it
    made = f"made {_objective(prior)} {prior.gain:.4g} times as good on {_there(prior)}"
    if prior.basis == "guess":  # nobody measured it
        made = f"is said to help {_objective(prior)} on {_there(prior)}, by how much is a guess ({prior.gain:.4g})"
    title = f"{_name(prior)} {made}: {prior.why}"
    if dossier.improves() not in prior.improves:
        metric = dossier.workload.objective.metric
        return _said(prior, "fact", f"{title}; the objective here is {metric}, which it does not help")
    fault = _fault(change, dossier)
    if fault:
        return _said(prior, "fact", f"{title}; not to be tried here: {fault}")
    terms = Terms(
        phase="all",
        share=1.0,
        share_from="guessed as a whole" if prior.basis == "guess" else "measured as a whole there",
        speedup=prior.gain,
        speedup_from=_speedup_from(prior),
        probability=prior.probability,
        probability_from=f"{prior.source}, judged",
        cost_s=dossier.cost_s(prior.compiles),
    )
    return _said(prior, "opportunity", title).model_copy(update={"change": change, "terms": terms})


def _by_hand(prior: Prior, dossier: Dossier) -> Finding:
    if prior.gain is None:
        return _said(prior, "fact", f"{_name(prior)} helps: {prior.why} ({prior.provenance.numbers})")
    of = {"all": "", "prefill": " in prefill", "decode": " in decode"}[prior.phase]
    what = prior.part or _objective(prior)
    title = f"{_name(prior)} made {what}{of} {prior.gain:.4g} times as good on {_there(prior)}: {prior.why}"
    if prior.improves and dossier.improves() not in prior.improves:
        metric = dossier.workload.objective.metric
        return _said(prior, "fact", f"{title}; the objective here is {metric}, which it does not help")
    value, words = _share(prior, dossier)
    terms = Terms(
        phase=prior.phase,
        share=value,
        share_from=words,
        speedup=prior.gain,
        speedup_from=_speedup_from(prior),
        probability=prior.probability,
        probability_from=f"{prior.source}, judged",
        cost_s=dossier.cost_s(prior.compiles),
    )
    found = _said(prior, "opportunity", title)
    return found.model_copy(update={"terms": terms, "evidence": (*found.evidence, *_other_share(prior, dossier))})


def _other_share(prior: Prior, dossier: Dossier) -> list[Evidence]:
    """Where the part took far more or less there than the roofline expects here, and no profile decides."""
    here = within(dossier, prior.phase, prior.part) if prior.part and prior.phase != "all" else None
    if here is None or not here.estimated or prior.part_share is None:
        return []
    if max(here.value, prior.part_share) <= APART * min(here.value, prior.part_share):
        return []
    there = f"{prior.part} took {prior.part_share:.0%} of {prior.phase} there"
    detail = f"{there}, here {here.words}: your own shares decide here: --profile"
    return [Evidence(source=prior.source, detail=detail)]


def _said(prior: Prior, kind: Literal["opportunity", "trap", "fact"], title: str) -> Finding:
    return Finding(
        reader=NAME,
        kind=kind,
        title=title,
        evidence=(prior.evidence,),
        fix=prior.fix,
        risk=prior.risk,
        same_as=prior.id,
    )


def _fault(change: Change, dossier: Dossier) -> str | None:
    """Why the change is not to be tried, or None. An audit may have no vLLM to read: then its knobs say nothing."""
    if dossier.knobs.flags:
        return static_check(change, dossier.spec, dossier.knobs, dossier.refused_before, subject=dossier)
    if same(change.before, change.after):
        return "the engine has it already"
    return "it was refused before on this stack" if change.id in dossier.refused_before else None


def _change(prior: Prior, dossier: Dossier) -> Change | None:
    """As `prior.read` makes it. None without a lever, and for what does not help without a value."""
    if prior.lever == "none" or not prior.key or (prior.outcome != "helps" and prior.value is None):
        return None
    lever = Lever(prior.lever)
    key = LEVERS[lever].normalise(prior.key)
    return Change(lever=lever, key=key, before=LEVERS[lever].read(dossier.spec, key), after=prior.value)


def _share(prior: Prior, dossier: Dossier) -> tuple[float, str]:
    """What the gain is of, as a share of the objective's time, and where that is from."""
    if prior.part is None and prior.phase == "all":
        return 1.0, "measured as a whole there"
    known = share(dossier, prior.phase, prior.part) if prior.part else phase_share(dossier, prior.phase)
    if known is None:
        judged = JUDGED_PART if prior.part else JUDGED_PHASE
        of = " of ".join(word for word in (prior.part, prior.phase) if word and word != "all")
        return judged, f"the share of {of} is not known; {judged:.0%} is judged, cautiously"
    return known.value, known.words


def _name(prior: Prior) -> str:
    if prior.what:
        return prior.what
    if prior.lever == "none" or not prior.key:
        return prior.id.replace("-", " ")
    value = prior.value
    if value is None:
        return f"{prior.key} left to the engine" if prior.outcome == "helps" else prior.key
    return f"{prior.key} = {value if isinstance(value, str) else json.dumps(value)}"


def _objective(prior: Prior) -> str:
    *most, last = prior.improves or ("speed",)
    return f"{', '.join(most)} and {last}" if most else last


def _there(prior: Prior) -> str:
    return f"{prior.provenance.where} ({prior.provenance.version})"


def _speedup_from(prior: Prior) -> str:
    said = {"measured": "measured on", "inferred": "inferred on", "guess": "guessed, from"}[prior.basis]
    return f"{said} {_there(prior)}: {prior.provenance.numbers}"
