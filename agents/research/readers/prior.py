"""What helped elsewhere under conditions that hold tonight? For a night; known_priors.py says it all to an audit."""

from __future__ import annotations

from agents.research.conditions import unmet
from agents.research.dossier import Dossier
from agents.research.priors import Prior, read_all
from agents.tuning.levers import LEVERS
from contracts import Change, Hypothesis, Lever

NAME = "prior"


def read(dossier: Dossier) -> list[Hypothesis]:
    priors, _ = read_all(dossier.priors)
    return [_hypothesis(prior, dossier) for prior in priors if why_not(prior, dossier) is None]


def dropped(dossier: Dossier) -> list[str]:
    priors, problems = read_all(dossier.priors)
    reasons = ((prior, why_not(prior, dossier)) for prior in priors)
    return problems + [f"{prior.source} ({NAME}): {reason}" for prior, reason in reasons if reason]


def not_here(prior: Prior, dossier: Dossier) -> str | None:
    """Why nothing is to be said of it tonight, or None. An environment variable of vLLM that the installed one does not
    read does nothing: forks have some of their own."""
    key = prior.key.strip()
    known = dossier.knobs.env
    if prior.lever == Lever.ENVIRONMENT and key.startswith("VLLM_") and known and key not in known:
        return f"{dossier.knobs.named} has no environment variable {key}"
    return unmet(prior.when, dossier)


def why_not(prior: Prior, dossier: Dossier) -> str | None:
    """Why this prior is no hypothesis tonight, or None."""
    reason = not_here(prior, dossier)
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
    return Hypothesis(
        change=Change(lever=lever, key=key, before=LEVERS[lever].read(dossier.spec, key), after=prior.value),
        proposer=NAME,
        why=prior.why,
        evidence=(prior.evidence,),
        predicted_gain=prior.gain or 1.0,
        probability=prior.probability,
        cost_s=dossier.cost_s(prior.compiles),
        risk=prior.risk,
    )
