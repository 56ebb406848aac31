"""What is known from elsewhere: configs/priors/*.yaml, each entry with where it was seen and under what conditions.

An entry is knowledge, not an order: it becomes a hypothesis only where its conditions hold tonight, its lever exists
and it helped there; everything else is listed as dropped with the reason, negative results included. An audit says
every entry whose conditions hold (readers/known_priors.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from agents.research.conditions import When
from agents.research.finding import Phase
from agents.strict_yaml import YamlProblem, read_yaml
from contracts import Evidence, Frozen, Lever

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / "configs" / "priors"
MOST_FILES = 100  # of one folder; a dozen are shipped
DEFAULTS = ("when", "provenance")  # what a file may say once for all of its entries

Part = Literal["attention", "gemm", "moe", "norm", "sampling", "communication", "other", "idle"]


class PriorError(ValueError):
    """A priors file that cannot be used. One line, naming file and entry."""


class Provenance(Frozen):
    where: str  # card or machine
    who: str
    version: str  # of vLLM (and AITER), as far as it is known
    date: str
    numbers: str  # what was measured, in words and figures


class Prior(Frozen):
    """`outcome` is what it did there; no_effect includes accepted and ignored, hurts includes refused and wrong.
    `basis` says what the gain rests on; only "measured" is a measurement of this change alone. `gain` is of the whole
    objective, or of the `part` or the `phase` that it names."""

    id: str
    lever: Lever | Literal["none"]  # none: knowledge for which there is no lever yet
    key: str = ""
    value: JsonValue = None
    what: str = ""  # what is done, a few words for a sentence; empty: the lever's key and value
    outcome: Literal["helps", "no_effect", "hurts", "unclear"]
    improves: tuple[Literal["throughput", "ttft", "tpot", "e2e"], ...] = ()
    gain: float | None = Field(None, gt=0)
    phase: Phase = "all"
    part: Part | None = None
    part_share: float | None = Field(None, gt=0, le=1)  # of the phase, what the part took there, before
    basis: Literal["measured", "inferred", "guess"] = "measured"
    probability: float = Field(0.5, ge=0, le=1)
    compiles: bool = False  # the changed engine compiles at start
    risk: Literal["low", "medium", "high"] = "low"
    when: When = When()
    why: str
    fix: str = ""  # what to do by hand, or instead
    provenance: Provenance
    source: str = ""  # file#id, filled in when it is read

    @model_validator(mode="after")
    def a_levers_gain_is_of_the_whole(self) -> Prior:
        if self.lever != "none" and (self.part or self.phase != "all"):
            raise ValueError("phase and part are for lever none; the gain of a lever is of the whole objective")
        return self

    @property
    def evidence(self) -> Evidence:
        p = self.provenance
        basis = {"measured": "", "inferred": " (inferred, not a clean comparison)", "guess": " (the size is a guess)"}
        detail = f"{p.numbers}{basis[self.basis]}; {p.where}, {p.version}, {p.date}, {p.who}"
        return Evidence(source=self.source, detail=detail)


def load_priors(path: str) -> tuple[Prior, ...]:
    """The entries of one file; read once while the file stays as it is. Raises PriorError."""
    try:
        seen = Path(path).stat()
    except (OSError, ValueError):
        return _load(path, 0, 0)  # read_yaml says what is wrong with it
    return _load(path, seen.st_mtime_ns, seen.st_size)


def prior_files(folder: Path | str = FOLDER) -> tuple[str, ...]:
    """Paths of all priors of a folder, for Dossier.priors. Raises PriorError."""
    try:
        found = sorted(str(path) for path in Path(folder).iterdir() if path.suffix == ".yaml")
    except (OSError, ValueError) as error:
        raise PriorError(f"{folder}: no folder of priors ({getattr(error, 'strerror', None) or error})") from None
    if len(found) > MOST_FILES:
        raise PriorError(f"{folder}: {len(found)} files; at most {MOST_FILES} are read")
    return tuple(found)


def all_priors(folder: Path | str = FOLDER) -> tuple[Prior, ...]:
    """All priors of a folder, by file name. Raises PriorError for the first file that cannot be used, and where two
    entries have one id."""
    found = [prior for path in prior_files(folder) for prior in load_priors(path)]
    first: dict[str, Prior] = {}
    for prior in found:
        if first.setdefault(prior.id, prior) is not prior:
            raise PriorError(f"{prior.source}: there is {first[prior.id].source} already; give it an id of its own")
    return tuple(found)


def read_all(paths: Iterable[str]) -> tuple[list[Prior], list[str]]:
    """All priors of these files, and a line for each file that cannot be used."""
    found: list[Prior] = []
    problems: list[str] = []
    for path in paths:
        try:
            found += load_priors(path)
        except PriorError as error:
            problems.append(f"priors left out: {error}")
    return found, problems


@lru_cache(maxsize=MOST_FILES)
def _load(path: str, _mtime_ns: int, _size: int) -> tuple[Prior, ...]:
    name = _shown(Path(path))
    try:
        raw = read_yaml(Path(path)).data
    except YamlProblem as problem:
        raise PriorError(problem.lines[0]) from None
    entries = raw.get("priors") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(entries, list):
        raise PriorError(f"{path} must hold a list called priors")
    defaults = _defaults(raw.get("defaults") or {}, name)
    return tuple(_prior(entry, defaults, name, place) for place, entry in enumerate(entries, 1))


def _shown(path: Path) -> str:
    """Of the checkout's own files "configs/priors/x.yaml", of others the last folder and the name."""
    whole = path.absolute()
    return str(whole.relative_to(CHECKOUT)) if whole.is_relative_to(CHECKOUT) else "/".join(path.parts[-2:])


def _defaults(raw: Any, file: str) -> dict[str, dict[str, Any]]:
    """What an entry's own `when` and `provenance` are put on top of."""
    if not isinstance(raw, dict) or not all(k in DEFAULTS and isinstance(v, dict) for k, v in raw.items()):
        raise PriorError(f"{file}: defaults holds {' and '.join(DEFAULTS)}, each a mapping, and nothing else")
    return raw


def _prior(entry: Any, defaults: dict[str, dict[str, Any]], file: str, place: int) -> Prior:
    if not isinstance(entry, dict):
        raise PriorError(f"{file}: entry {place} is not a mapping")
    label = entry.get("id") or f"entry {place}"
    whole = {**entry, "source": f"{file}#{label}"}
    for name, common in defaults.items():
        own = entry.get(name, {})
        whole[name] = {**common, **own} if isinstance(own, dict) else own
    try:
        prior = Prior.model_validate(whole)
    except ValidationError as error:
        first = error.errors()[0]
        raise PriorError(f"{file}#{label}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    usable = prior.gain is not None and prior.improves and prior.key
    if prior.outcome == "helps" and prior.lever != "none" and not usable:
        raise PriorError(f"{prior.source}: a prior that helps needs key, gain and improves")
    return prior
