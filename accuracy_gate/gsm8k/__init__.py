"""Grade-school sums, asked and scored as others do it, and compared with the unchanged engine's answers.

questions.py reads them, styles.py says how they are put and scored, ask.py asks, paired.py and power.py are the
statistics, check.py is the rule. Those three are imported by their own names: scipy takes a second, and who only reads
a night file needs none of it.
"""

from accuracy_gate.gsm8k.ask import Answer, Answers, ask
from accuracy_gate.gsm8k.questions import Question, QuestionSet, kind_of, read, train_for
from accuracy_gate.gsm8k.styles import STYLES, Style, style

__all__ = [
    "STYLES", "Answer", "Answers", "Question", "QuestionSet", "Style", "ask", "kind_of", "read", "style", "train_for",
]  # fmt: skip
