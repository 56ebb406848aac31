"""What of an audit a night can try: entries for a night file's `try_first`, and for every finding, by what means it can
be tried at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from agents.config_rules import broken_item
from agents.research.audit import TIE, Audit
from agents.research.dossier import Dossier
from agents.research.finding import Finding
from agents.research.regular_file import open_regular
from agents.research.subject import SubjectError
from agents.tuning.probes import probe_for
from contracts import EngineSettings, Lever, TryItem

Way = Literal["flag", "env", "compilation", "table", "patch", "person"]
_BY_LEVER: dict[Lever, Way] = {
    Lever.ENGINE_FLAG: "flag",
    Lever.ENVIRONMENT: "env",
    Lever.COMPILATION: "compilation",
    Lever.SOURCE_PATCH: "patch",
}
_OF_TABLES = ("attention_tables", "gemm_tables", "moe_tables", "compile_evidence")
HEAD = "# For a night file, written by `run_night.py audit`."


def way(finding: Finding) -> Way:
    """flag, env, compilation: a lever of nightgate, so a night can. table, patch: `fix` holds the rows or the diff;
    with a change a lever applies it, else a person. person: `fix` says it in words."""
    if finding.change is not None:
        return _BY_LEVER.get(finding.change.lever, "table")
    if "\n+++ " in finding.fix:
        return "patch"
    if finding.reader in _OF_TABLES:
        return "patch" if ".py:" in finding.evidence[0].source else "table"
    return "person"


def tries(audit: Audit, dossier: Dossier) -> list[tuple[int, Finding, TryItem]]:
    """(rank, finding, entry) of every opportunity that a night file with this engine takes, best first."""
    engine = EngineSettings(
        model=dossier.spec.model,
        flags=dossier.spec.flags,
        env=dossier.spec.env,
        compilation=dossier.spec.compilation,
        overlay=dossier.spec.overlay,
    )
    found: list[tuple[int, Finding, TryItem]] = []
    for rank, finding in enumerate(audit.of("opportunity"), 1):
        h = finding.hypothesis()
        if h is None:
            continue
        item = TryItem(
            lever=h.change.lever,
            key=h.change.key,
            after=h.change.after,
            why=_line(h.why.removesuffix(TIE)),
            predicted_gain=round(h.predicted_gain, 4),
            probability=round(h.probability, 4),
            cost_s=round(h.cost_s, 1),
        )
        if not list(broken_item(len(found), item, engine)):
            found.append((rank, finding, item))
    return found


def as_item(item: TryItem) -> dict[str, object]:
    """What a night file takes, without what is the file's default."""
    return item.model_dump(mode="json", exclude={"probe", "planted"})


def block(audit: Audit, dossier: Dossier) -> str:
    """The list `try_first` in YAML, each entry with where its numbers are from."""
    return "\n".join(_lines(audit, dossier)) + "\n"


def _lines(audit: Audit, dossier: Dossier) -> Iterator[str]:
    found = tries(audit, dossier)
    total = len(audit.of("opportunity"))
    yield HEAD
    yield f"# {_line(f'{dossier.card.name} ({dossier.card.arch}), {dossier.knobs.called}')}: " + (
        f"{len(found)} of {total} things worth trying; the others are rows, patches and work by hand."
    )
    yield "# Paste it at the left edge of a night file whose engine settings are the ones that were audited. Where that"
    yield "# file has a list try_first already, add the entries to it."
    if not found:
        yield "try_first: []"
        return
    yield "try_first:"
    for rank, finding, item in found:
        assert finding.change is not None and finding.terms is not None
        terms = finding.terms
        yield f"  # {rank}. of the audit, {_line(str(finding.change))}; risk {finding.risk}"
        yield f"  # share {terms.share:.0%}: {_line(terms.share_from)}"
        yield f"  # speed-up {terms.speedup:.2f}: {_line(terms.speedup_from)}"
        yield f"  # probability {terms.probability:.0%}: {_line(terms.probability_from)}; score {terms.score:.2f}"
        if probe_for(finding.change, dossier.knobs).kind == "none":
            yield "  # No way is known to see this change in use: without a probe of yours a night does not measure it."
        lead = "- "
        for key, value in as_item(item).items():
            yield f"  {lead}{key}: {json.dumps(value, ensure_ascii=False)}"
            lead = "  "


def may_write(path: Path) -> None:
    """Raises SubjectError where `path` is a file that was not written from here: a night file, say."""
    try:
        with open_regular(path) as file:
            if file.read(len(HEAD.encode())) != HEAD.encode():
                raise SubjectError(f"{path} is there already and was not written by --try-first: name another file")
    except FileNotFoundError:
        return
    except OSError:
        raise SubjectError(f"{path} cannot be written: name a file that is not there yet") from None


def _line(text: str) -> str:
    """One line, nothing but printable characters."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())
