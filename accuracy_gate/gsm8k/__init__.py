"""Grade-school sums, asked and scored as others do it, and compared with the unchanged engine's answers.

questions.py reads them, styles.py says how they are put and scored, ask.py asks, paired.py and power.py are the
statistics, check.py is the rule.
"""

from accuracy_gate.gsm8k.ask import Answer, Answers, ask
from accuracy_gate.gsm8k.check import check, no_reference
from accuracy_gate.gsm8k.paired import fewest_to_pass, stop_on_harm
from accuracy_gate.gsm8k.questions import Question, QuestionSet, kind_of, read, train_for
from accuracy_gate.gsm8k.styles import STYLES, Style, style

__all__ = [
    "STYLES", "Answer", "Answers", "Question", "QuestionSet", "Style", "ask", "check", "fewest_to_pass", "kind_of",
    "no_reference", "read", "stop_on_harm", "style", "train_for",
]  # fmt: skip
