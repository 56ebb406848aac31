"""What helped elsewhere under conditions that hold tonight?"""

from __future__ import annotations

from agents.research.dossier import Dossier
from agents.research.priors import Prior, PriorError, load_priors, unmet
from agents.tuning.levers import LEVERS
from contracts import Change, Evidence, Hypothesis, Lever

NAME = "prior"


def read(dossier: Dossier) -> list[Hypothesis]:
    return [_hypothesis(prior, dossier) for prior in _all(dossier)[0] if why_not(prior, dossier) is None]


def dropped(dossier: Dossier) -> list[str]:
    priors, problems = _all(dossier)
    reasons = ((prior, why_not(prior, dossier)) for prior in priors)
    return problems + [f"{prior.source} ({NAME}): {reason}" for prior, reason in reasons if reason]


def why_not(prior: Prior, dossier: Dossier) -> str | None:
    """Why this prior is no hypothesis tonight, or None."""
    reason = unmet(prior, dossier)
    if reason:
        return reason
    if prior.outcome != "helps":
        said = {"no_effect": "it did nothing", "hurts": "it hurt", "unclear": "what it does is unclear"}[prior.outcome]
        return f"known, not tried: {said} there: {prior.provenance.numbers}"
    if prior.lever == "none":
        return f"no lever of today can apply it: {prior.why}"
    if dossier.improves() not in prior.improves:
        return f"it helps {', '.join(prior.improves)}, tonight's objective is {dossier.workload.objective.metric}"
    return None


def _hypothesis(prior: Prior, dossier: Dossier) -> Hypothesis:
    lever = Lever(prior.lever)
    key = LEVERS[lever].normalise(prior.key)
    p = prior.provenance
    basis = {"measured": "", "inferred": " (inferred, not a clean comparison)", "guess": " (the size is a guess)"}
    detail = f"{p.numbers}{basis[prior.basis]}; {p.where}, {p.version}, {p.date}, {p.who}"
    return Hypothesis(
        change=Change(lever=lever, key=key, before=LEVERS[lever].read(dossier.spec, key), after=prior.value),
        proposer=NAME,
        why=prior.why,
        evidence=(Evidence(source=prior.source, detail=detail),),
        predicted_gain=prior.gain or 1.0,
        probability=prior.probability,
        cost_s=dossier.cost_s(prior.compiles),
        risk=prior.risk,
    )


def _all(dossier: Dossier) -> tuple[list[Prior], list[str]]:
    """All priors, and a line for each file that cannot be used."""
    found: list[Prior] = []
    problems: list[str] = []
    for path in dossier.priors:
        try:
            found += load_priors(path)
        except PriorError as error:
            problems.append(f"priors left out: {error}")
    return found, problems
