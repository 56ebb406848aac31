"""Which installed versions are known to go together with a card: configs/versions.yaml, statements with their sources.

Where there is no statement the answer is that nobody has said so, which is neither yes nor no.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError, model_validator

from contracts import Frozen

FILE = Path(__file__).resolve().parents[1] / "configs" / "versions.yaml"
Part = Literal["rocm", "torch", "triton", "vllm", "aiter", "vllm_hcu"]
Evidence = Literal["measured here", "read in source", "published", "recorded night"]
Verdict = Literal["works", "refuses", "nobody has said so"]
NAMES: dict[str, str] = {
    "rocm": "ROCm", "torch": "torch", "triton": "Triton", "vllm": "vLLM", "aiter": "AITER",
    "vllm_hcu": "Hygon's plugin vllm_hcu",
}  # fmt: skip
TERM = re.compile(r"(>=|<=|<|>)(\d+(?:\.\d+)*)")


class VersionsError(ValueError):
    """The file cannot be used. One line."""


class Statement(Frozen):
    arch: tuple[str, ...]
    part: Part
    versions: str  # ">=3.5,<3.8"
    besides: str | tuple[str, ...] = ()  # a version that holds this word, or one of these, is another build
    verdict: Literal["works", "refuses"]
    says: str
    fix: str | None = None
    source: str
    evidence: Evidence

    @model_validator(mode="after")
    def complete(self) -> Statement:
        if self.verdict == "refuses" and not self.fix:
            raise ValueError("a statement that refuses names a fix")
        if not all(TERM.fullmatch(term.strip()) for term in self.versions.split(",")):
            raise ValueError(f"versions {self.versions!r}: write a range like '>=3.5,<3.8'")
        return self

    def about(self, version: str) -> bool:
        if any(word in version for word in ((self.besides,) if isinstance(self.besides, str) else self.besides)):
            return False
        number = release(version)
        return number is not None and all(_holds(term.strip(), number) for term in self.versions.split(","))


class Told(Frozen):
    """What is known of one installed part on one card."""

    part: str
    version: str
    verdict: Verdict
    statement: Statement | None = None

    def __str__(self) -> str:
        name = f"{NAMES.get(self.part, self.part)} {self.version}"
        if self.statement is None:
            return f"{name}: nobody has said whether it works on this card"
        return f"{name}: {self.statement.says} [{self.statement.evidence}]"


def release(version: str) -> tuple[int, ...] | None:
    """ "2.9.0a0+git123" -> (2, 9, 0); None for what begins with no number (a development build "dev" says nothing)."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    return tuple(int(n) for n in found[1].split(".")) if found else None


def _holds(term: str, number: tuple[int, ...]) -> bool:
    match = TERM.fullmatch(term)
    assert match is not None  # checked when the file was read
    limit = tuple(int(n) for n in match[2].split("."))
    width = max(len(limit), len(number))
    a, b = number + (0,) * (width - len(number)), limit + (0,) * (width - len(limit))
    return {">=": a >= b, "<=": a <= b, "<": a < b, ">": a > b}[match[1]]


@lru_cache(maxsize=4)
def read_versions(path: Path = FILE) -> tuple[Statement, ...]:
    """Raises VersionsError."""
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        return tuple(Statement.model_validate(item) for item in raw["statements"])
    except (OSError, yaml.YAMLError, ValidationError, KeyError, TypeError) as error:
        raise VersionsError(f"{path.name} cannot be used: {' '.join(str(error).split())[:200]}") from None


def told(arch: str, installed: Mapping[str, str | None], statements: tuple[Statement, ...]) -> tuple[Told, ...]:
    """One answer for each part that is installed, in the order of `installed`; a refusal is heard before a yes. Pure.
    () for an arch of which the file says nothing."""
    own = [s for s in statements if arch in s.arch]
    if not own:
        return ()
    found = []
    for part, version in installed.items():
        if version is None:
            continue
        about = sorted((s for s in own if s.part == part and s.about(version)), key=lambda s: s.verdict != "refuses")
        first = about[0] if about else None
        verdict: Verdict = first.verdict if first else "nobody has said so"
        found.append(Told(part=part, version=version, verdict=verdict, statement=first))
    return tuple(found)
