"""An audit for programs: `{"audits": [...]}`, one entry for each tree of vLLM (or one without)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from agents.audit_try import as_item, tries, way
from agents.research.audit import Audit
from agents.research.dossier import Dossier
from agents.research.finding import Finding


def as_json(audit: Audit, dossier: Dossier, seconds: float, missing: Sequence[str] = ()) -> dict[str, Any]:
    """Stable keys; `rank` counts opportunities from 1. `try_first` is what a night file takes."""
    ranks = {id(f): n for n, f in enumerate(audit.of("opportunity"), 1)}
    return {
        "card": dossier.card.model_dump(mode="json"),
        "model": dossier.model.model_dump(mode="json") if dossier.model else None,
        "vllm": {"version": dossier.knobs.version, "path": dossier.knobs.path},
        "aiter": dossier.aiter,
        "workload": dossier.workload.model_dump(mode="json"),
        "missing": list(missing),
        "findings": [
            {"rank": rank, "way": way(f) if rank else None, **f.model_dump(mode="json"), **_sums(f)}
            for f, rank in ((f, ranks.get(id(f))) for f in audit.findings)
        ],
        "try_first": [as_item(item) for _, _, item in tries(audit, dossier)],
        "hypotheses": [
            h.model_dump(mode="json") | {"score": f.terms.score}  # an hour of card time, as the table has it
            for f in audit.of("opportunity")
            if f.terms and (h := f.hypothesis())
        ],
        "notes": list(audit.notes),
        "seconds": round(seconds, 2),
    }


def _sums(finding: Finding) -> dict[str, float | None]:
    terms = finding.terms
    if terms is None:
        return {}
    bound = None if math.isinf(terms.bound) else terms.bound
    return {"gain": terms.gain, "bound": bound, "score": terms.score}
