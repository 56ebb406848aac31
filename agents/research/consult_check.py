"""A language model's proposal, from its own words to a Finding, or the reason why it is none. Pure.

It passes what every proposal passes (one spelling, `before` from the engine's configuration, static_check), and then
what only a model's has to: it may have been talked into something by a file that it read. So it names what it was
shown, its value is a number or a plain word (no path, address, command or module), its name is one that this vLLM
declares, its gain and probability are capped.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from agents.llm_text import one_line
from agents.research.consult_prompt import Prompt
from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms
from agents.tuning.levers import LEVERS
from agents.tuning.static_check import static_check
from contracts import Change, Evidence, Lever

READER = "model"
MOST_GAIN = 2.0  # judged: no single setting is believed to do more on a model's word
MOST_PROBABILITY = 0.5  # a model's word is worth a coin at best
MOST_SPEEDUP = 1000.0  # where the gain reaches its bound the part would have to take no time at all
MOST_WHY, MOST_KEY, MOST_AFTER = 300, 120, 600  # characters

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_WORD = re.compile(r"[A-Za-z0-9_+-]{0,64}|[+-]?\d{1,18}(\.\d{1,18})?")
# Parts of names that load code, open the server or let it reach outside: for a person to set, not for a model.
_NOT_FOR_A_MODEL = frozenset(
    {
        "allow", "allowed", "api", "auth", "cls", "command", "credentials", "dir", "endpoint", "host", "hook",
        "insecure", "key", "media", "middleware", "module", "password", "path", "plugin", "plugins", "port",
        "processors", "secret", "ssl", "token", "trust", "url", "worker",
    }
)  # fmt: skip


class Proposal(BaseModel):
    """As the model has to write it."""

    model_config = ConfigDict(extra="forbid")

    lever: Literal["engine_flag", "environment", "compilation_config"]
    key: str
    after: str  # JSON
    why: str
    evidence: list[str]  # "3" or "vllm/x.py:7"
    predicted_gain: float
    probability: float


def checked(raw: Any, shown: Prompt, dossier: Dossier, model: str) -> Finding | str:
    """The proposal as a finding, or in one line why it is dropped."""
    try:
        proposal = Proposal.model_validate(raw)
    except ValidationError as error:
        return "outside of the schema: " + "; ".join(_fault(e) for e in error.errors()[:3])
    change = _change(proposal, dossier)
    if isinstance(change, str):
        return change
    fault = _not_for_a_model(change, dossier) or static_check(
        change, dossier.spec, dossier.knobs, dossier.refused_before, subject=dossier
    )
    if fault:
        return fault
    rests_on = _evidence(proposal, shown)
    if isinstance(rests_on, str):
        return rests_on
    named, evidence = rests_on
    same = next((n for n, f in enumerate(shown.numbered, 1) if f.change and f.change.id == change.id), None)
    if same:
        return f"it is number {same} already"
    terms = _terms(proposal, named, dossier)
    if isinstance(terms, str):
        return terms
    return Finding(
        reader=READER,
        kind="opportunity",
        title=f"{one_line(proposal.why, MOST_WHY)} (an idea of the language model {model}, not of a reader)",
        evidence=evidence,
        change=change,
        terms=terms,
        risk="medium",
    )


def _fault(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    what = "there is no such field" if error["type"] == "extra_forbidden" else error["msg"]
    return f"{where}: {what}" if where else str(what)


def _change(proposal: Proposal, dossier: Dossier) -> Change | str:
    if len(proposal.key) > MOST_KEY or len(proposal.after) > MOST_AFTER:
        return f"its key or value is longer than {MOST_KEY} or {MOST_AFTER} characters"
    lever = Lever(proposal.lever)
    key = LEVERS[lever].normalise(proposal.key)
    after = _value(proposal.after)
    if lever is Lever.ENVIRONMENT and after is not None and not isinstance(after, str):
        after = proposal.after.strip()  # variables are text
    return Change(lever=lever, key=key, before=LEVERS[lever].read(dossier.spec, key), after=after)


def _value(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text, parse_constant=lambda name: name)
        return value
    except (ValueError, RecursionError):
        return text.strip()


def _not_for_a_model(change: Change, dossier: Dossier) -> str | None:
    knobs = dossier.knobs
    if not knobs.path:
        return "no vLLM tree was given, so its names cannot be checked"
    if not _NAME.fullmatch(change.key):
        return f"{one_line(change.key, 60)!r} is no name of a setting"
    parts = set(re.split(r"[-_.]", change.key.lower())) & _NOT_FOR_A_MODEL
    if parts:
        return f"{change.key} is for a person to set ({', '.join(sorted(parts))} in its name)"
    if change.lever is Lever.ENVIRONMENT and change.key not in knobs.env:
        return f"{knobs.named} declares no environment variable {change.key}"
    odd = next((text for text in _texts(change.after) if not _WORD.fullmatch(text)), None)
    if odd is not None:
        return f"its value {one_line(odd, 60)!r} is no number and no plain word"
    return None


def _texts(value: JsonValue) -> list[str]:
    """All texts of a value, names in it included; a list in one text ("1,2,4") counts as its parts."""
    if isinstance(value, str):
        return value.split(",")
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, dict):
        return [text for name, one in value.items() for text in (name, *_texts(one))]
    if isinstance(value, float) and not math.isfinite(value):
        return [f"{value} "]
    return []


def _evidence(proposal: Proposal, shown: Prompt) -> tuple[list[Finding], tuple[Evidence, ...]] | str:
    """The findings that it names, and its evidence; everything has to have been shown."""
    named: list[Finding] = []
    found: list[Evidence] = []
    for quoted in dict.fromkeys(q.strip().removeprefix("#") for q in proposal.evidence):
        if quoted.isascii() and quoted.isdigit():
            number = int(quoted[:9])
            if not 1 <= number <= len(shown.numbered):
                return f"it rests on finding {one_line(quoted, 20)}, which there is not"
            named.append(shown.numbered[number - 1])
            found.append(Evidence(source=f"finding {number}", detail=one_line(named[-1].title, 200)))
        elif quoted in shown.places:
            found.append(Evidence(source=quoted, detail="quoted by the model"))
        else:
            return f"it rests on {one_line(quoted, 60)!r}, which it was not shown"
    if not found:
        return "it rests on nothing"
    return named, tuple(found)


def _terms(proposal: Proposal, named: list[Finding], dossier: Dossier) -> Terms | str:
    """Capped, with the words that say so. A share is known only where a named finding bounds it."""
    said, chance = proposal.predicted_gain, proposal.probability
    if not (math.isfinite(said) and math.isfinite(chance)) or said <= 1 or not 0 < chance <= 1:
        return f"gain {said:g} with probability {chance:g} predicts nothing that can be won"
    bounds = {n: f.terms.bound for n, f in enumerate(named) if f.terms and math.isfinite(f.terms.bound)}
    tightest = min(bounds, key=lambda n: bounds[n]) if bounds else None
    bound = math.inf if tightest is None else bounds[tightest]
    gain = min(said, MOST_GAIN, bound)
    if gain <= 1.0005:
        return "a finding that it names leaves nothing to win"
    share = 1.0 if math.isinf(bound) else 1 - 1 / bound
    rest = 1 / gain - (1 - share)
    share_from = "all of it" if tightest is None else f"bound {bound:.2f}x of a finding that it names"
    capped = f", capped from {said:g}x" if said > gain else ""
    of_phase = named[tightest].terms if tightest is not None else None
    return Terms(
        phase=of_phase.phase if of_phase else "all",
        share=share,
        share_from=share_from,
        speedup=min(share / max(rest, share / MOST_SPEEDUP), MOST_SPEEDUP),
        speedup_from=f"the model's word for a gain of {gain:.2f}x{capped}",
        probability=min(chance, MOST_PROBABILITY),
        probability_from=f"the model's word, at most {MOST_PROBABILITY:.0%}",
        cost_s=dossier.cost_s(),
    )
