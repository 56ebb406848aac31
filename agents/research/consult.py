"""A language model's second opinion on an audit. The audit's own ranking stands: the model's order is shown beside it,
and its proposals are a list of their own, each checked by consult_check.py. Without an answer the audit is what it was.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, ValidationError, WithJsonSchema

from agents.llm import Client
from agents.llm_call import Outcome, Refused, Used
from agents.llm_text import one_line
from agents.research.audit import Audit, score
from agents.research.consult_check import Proposal, checked
from agents.research.consult_prompt import prompt
from agents.research.dossier import Dossier
from agents.research.finding import Finding
from contracts import Frozen

MOST_PROPOSALS = 5
MOST_DROPPED = 20  # lines; a model that writes rubbish at length is told of in one more
MOST_REASON, MOST_EXPLANATION = 200, 1200  # characters


class _Turn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int
    reason: str


class Said(BaseModel):
    """The whole answer. The schema that the server gets is strict; what is read is judged part by part, so that one bad
    proposal costs itself and not the others."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})

    order: Annotated[list[Any], WithJsonSchema({"type": "array", "items": _Turn.model_json_schema()})]
    explanation: str
    proposals: Annotated[
        list[Any],
        WithJsonSchema({"type": "array", "maxItems": MOST_PROPOSALS, "items": Proposal.model_json_schema()}),
    ]


class Turn(Frozen):
    """One place in the model's order. `number` is the audit's own rank."""

    number: int
    reason: str


class Consulted(Frozen):
    """What a model said, ready for a ledger: neither key nor prompt is in it."""

    model: str
    outcome: Outcome
    reason: str = ""  # why there is no answer, one line
    order: tuple[Turn, ...] = ()
    explanation: str = ""
    proposals: tuple[Finding, ...] = ()  # reader "model"
    would_rank: tuple[int, ...] = ()  # of each proposal: where its score would stand among the audit's opportunities
    dropped: tuple[str, ...] = ()  # what the model said and was not taken, one line each
    prompt_sha256: str
    prompt_characters: int
    used: Used


def consult(audit: Audit, dossier: Dossier, client: Client) -> Consulted:
    """One question. Returns within the client's wall time; never raises for what a server or a model does."""
    asked = prompt(audit, dossier)
    came = client.ask(asked.messages(), Said)
    record: dict[str, Any] = {
        "model": one_line(client.safe(client.settings.model), 80),
        "prompt_sha256": asked.sha256,
        "prompt_characters": len(asked.system) + len(asked.user),
        "used": came.used,
    }
    if isinstance(came, Refused):
        return Consulted(outcome=came.outcome, reason=came.reason, **record)
    said = came.value
    dropped = [f"{one_line(name, 40)}: there is no such field in an answer" for name in said.model_extra or {}]
    order, faults = _order(said.order, asked.opportunities)
    dropped += faults
    proposals: list[Finding] = []
    for number, raw in enumerate(said.proposals, 1):
        if number > MOST_PROPOSALS:
            dropped.append(f"{len(said.proposals) - MOST_PROPOSALS} proposals more than the {MOST_PROPOSALS} asked for")
            break
        found = checked(raw, asked, dossier, record["model"])
        if isinstance(found, Finding) and any(found.change == p.change for p in proposals):
            found = "it proposes this twice"
        if isinstance(found, str):
            dropped.append(f"proposal {number}{_name(raw)}: {one_line(found)}")
        else:
            proposals.append(found)
    if len(dropped) > MOST_DROPPED:
        dropped = [*dropped[:MOST_DROPPED], f"and {len(dropped) - MOST_DROPPED} more"]
    ours = [score(f) for f in audit.of("opportunity")]
    return Consulted(
        outcome=Outcome.ANSWERED,
        order=tuple(order),
        explanation=one_line(said.explanation, MOST_EXPLANATION),
        proposals=tuple(proposals),
        would_rank=tuple(1 + sum(s >= score(p) for s in ours) for p in proposals),
        dropped=tuple(dropped),
        **record,
    )


def _order(raw: list[Any], opportunities: int) -> tuple[list[Turn], list[str]]:
    turns: list[Turn] = []
    faults: list[str] = []
    for item in raw:
        try:
            turn = _Turn.model_validate(item)
        except ValidationError as error:
            faults.append(f"order: outside of the schema: {one_line(error.errors()[0]['msg'], 80)}")
            continue
        if not 1 <= turn.number <= opportunities:
            faults.append(f"order: {one_line(str(turn.number), 20)} is no opportunity that was shown")
        elif any(t.number == turn.number for t in turns):
            faults.append(f"order: {turn.number} a second time")
        else:
            turns.append(Turn(number=turn.number, reason=one_line(turn.reason, MOST_REASON)))
    return turns, faults


def _name(raw: Any) -> str:
    """ " (engine_flag: max-num-seqs)" where the model says so much."""
    if not isinstance(raw, dict):
        return ""
    words = [raw[k] for k in ("lever", "key") if isinstance(raw.get(k), str)]
    return f" ({one_line(': '.join(words), 80)})" if words else ""
