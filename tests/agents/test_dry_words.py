"""What a dry run prints: text in square brackets is the reader's, and no markup of the terminal library's."""

from __future__ import annotations

import io

from rich.console import Console

from agents.cli import hypotheses_table
from contracts import Change, Hypothesis, Lever


def test_marks_in_square_brackets_are_shown() -> None:
    change = Change(lever=Lever.ENGINE_FLAG, key="max-num-seqs", before=4, after=8)
    told = Hypothesis(
        change=change,
        proposer="prior",
        why="faster there [published] [/x]",
        predicted_gain=1.1,
        probability=0.5,
        cost_s=60,
    )
    text = io.StringIO()
    Console(file=text, width=200).print(hypotheses_table((told,)))
    assert "faster there [published] [/x]" in text.getvalue()
