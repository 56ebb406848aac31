"""The unchanged engine's answers of tonight, in one file whose hash the ledger knows: nobody can soften it later."""

from __future__ import annotations

import hashlib
from pathlib import Path

from accuracy_gate.drift import DriftReference
from accuracy_gate.gate import GateReference
from accuracy_gate.gsm8k import Answers, QuestionSet
from contracts import Frozen


class NightReference(Frozen):
    tokens: GateReference
    drift: DriftReference | None = None
    questions: QuestionSet | None = None
    prompts_hash: str | None = None  # of the questions as they are put
    answers: Answers | None = None
    widths: str = ""  # in words, which batch widths the token runs leave out

    def save(self, path: Path) -> str:
        """Writes it and returns the file's SHA-256 (hex)."""
        text = self.model_dump_json(exclude_defaults=True)
        path.write_text(text)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def load(cls, path: Path, sha256: str) -> NightReference:
        """Raises OSError, or ValueError when it is not the file that was saved."""
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"{path} was changed since the night began: restore it, or start a new night")
        return cls.model_validate_json(content)
