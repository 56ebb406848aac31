"""How a question is put and how an answer is read, as others do it, so that a number can be laid beside theirs.

    style                  beside which number                                               prompt
    lm_eval_strict         lm-eval `gsm8k`, filter strict-match                               5 shots, completions
    lm_eval_flexible       lm-eval `gsm8k`, filter flexible-extract                           5 shots, completions
    vllm_eval              vLLM tests/evals/gsm8k/gsm8k_eval.py                               5 shots, completions
    vllm_eval_chat         the same with --use-chat-completions                               5 shots in one message
    mi355x_night           the MI355X night's gate, the one with the floor of 96.5 %          no shots, chat

Read for lm-eval at 4e7e0d47 (task version 3.0) and vLLM 0.33.0. Such a number may be laid beside another only with the
same rows: the 1319 test rows for lm-eval and vLLM, the first 250 of them for the night; and with the same pool of
worked examples, GSM8K's 7473 training rows. lm-eval draws five for each question out of one random.Random(1234), so a
shorter pool, or a subset of the questions that are not the first, gives it other prompts. vLLM takes the first five.

The quirks are kept, because the others' numbers have them. lm-eval compares texts, so `18.00` is not `18`; where it
finds nothing its answer is `[invalid]`. vLLM reads runs of digits: `$18.00` is 0, `12.50` is 50, -10 is 10 on both
sides, and `007` is no Python number, so invalid. The night reads what follows the first `####`, and where no digits
follow it finds nothing.

Three differences remain. Prompts go out as text (lm-eval's local-completions sends token IDs unless told otherwise).
A request that failed is an error here; vLLM's script and the night count it as a wrong answer. And every request of a
collection carries that collection's cache salt. lm-eval's `gsm8k_cot` is not here: its eight fixed examples are its own
text.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from accuracy_gate.gsm8k.questions import Question, QuestionSet

INSTRUCTION = (
    "Solve step by step, then give the final answer as a plain number on the last line in the form: #### <number>"
)
VLLM_INVALID = -9999999

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = (re.compile(","), re.compile(r"\$"), re.compile(r"(?s).*#### "), re.compile(r"\.$"))  # in this order
_DIGITS = re.compile(r"\d+")
_MARKED = re.compile(r"####\s*([-\d.,$]+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Style:
    """`extract` finds the answer in a model's text, None where the style finds none (lm-eval's `[invalid]`, vLLM's
    INVALID); `equal` compares it with the gold text. `pool`: the training questions to take worked examples from."""

    name: str
    endpoint: Literal["/v1/completions", "/v1/chat/completions"]
    shots: int
    drawn: bool  # shots by lm-eval's random stream; else the first of the pool
    max_tokens: int
    stop: tuple[str, ...]
    extract: Callable[[str], str | None]
    equal: Callable[[str, str], bool]
    seed: int | None = None  # sent with the request, as vLLM's script does; greedy decoding does not use it
    pool: tuple[Question, ...] = field(default=(), repr=False)

    def prompts(self, questions: Sequence[Question]) -> tuple[str, ...]:
        """The text for each question. Raises ValueError when the pool holds too few worked examples."""
        if self.shots > len(self.pool):
            raise ValueError(
                f"style {self.name} shows {self.shots} worked examples and has {len(self.pool)} to choose from; "
                "give it training questions"
            )
        if not self.shots:
            return tuple(f"{question.question}\n{INSTRUCTION}" for question in questions)
        stream = random.Random(1234)
        return tuple(
            _few_shot(stream.sample(self.pool, self.shots) if self.drawn else self.pool[: self.shots], question)
            for question in questions
        )

    def right(self, extracted: str | None, question: Question) -> bool:
        return extracted is not None and self.equal(extracted, question.answer)


def style(name: str, train: QuestionSet | None = None, max_tokens: int | None = None) -> Style:
    """A style by its name, with the training questions for its worked examples. `max_tokens` shortens (or lengthens)
    its answers where the engine's context demands it. Raises ValueError for an unknown name."""
    if name not in STYLES:
        raise ValueError(f"style {name!r} is unknown; use one of {', '.join(STYLES)}")
    found = replace(STYLES[name], pool=train.questions if train else ())
    return found if max_tokens is None else replace(found, max_tokens=max_tokens)


def _few_shot(shown: Sequence[Question], question: Question) -> str:
    before = "".join(f"Question: {shot.question}\nAnswer: {shot.answer}\n\n" for shot in shown)
    return f"{before}Question: {question.question}\nAnswer:"


def lm_eval_strict(text: str) -> str | None:
    """The first `#### N`, digits, dots and commas; no dollar sign."""
    found = _STRICT.findall(text)
    return found[0].strip() if found else None


def lm_eval_flexible(text: str) -> str | None:
    """The last run of two or more of digits, dots, commas and dollar signs, or the last digits. Dots alone are one."""
    found = _FLEXIBLE.findall(text)
    return next(group for group in found[-1] if group).strip() if found else None


def lm_eval_equal(extracted: str, gold: str) -> bool:
    """As texts, after commas, dollar signs, all up to the last `#### ` and one final dot are taken out of both."""
    one, other = extracted, gold
    for ignored in _IGNORED:
        one, other = ignored.sub("", one), ignored.sub("", other)
    return one.lower() == other.lower()


def vllm_number(text: str) -> int:
    """The last run of digits as Python reads it, commas taken out first; VLLM_INVALID where there is none."""
    found = _DIGITS.findall(text.replace(",", ""))
    try:
        return int(ast.literal_eval(found[-1])) if found else VLLM_INVALID
    except (SyntaxError, ValueError):
        return VLLM_INVALID


def vllm_eval(text: str) -> str | None:
    number = vllm_number(text)
    return None if number == VLLM_INVALID else str(number)


def vllm_equal(extracted: str, gold: str) -> bool:
    return int(extracted) == vllm_number(gold)


def mi355x_night(text: str) -> str | None:
    """The last number of what follows the first `####`; of the whole text where there is no such mark."""
    marked = _MARKED.search(text)
    found = _NUMBER.findall((marked.group(1) if marked else text).replace(",", "").replace("$", ""))
    return found[-1] if found else None


def mi355x_equal(extracted: str, gold: str) -> bool:
    """Within 1e-6, so `18.00` is 18."""
    answer = mi355x_night(gold)
    return answer is not None and abs(float(extracted) - float(answer)) < 1e-6


_LM_EVAL = Style(
    "lm_eval_strict", "/v1/completions", shots=5, drawn=True, max_tokens=256, stop=("Question:", "</s>", "<|im_end|>"),
    extract=lm_eval_strict, equal=lm_eval_equal,
)  # fmt: skip
_VLLM = Style(
    "vllm_eval", "/v1/completions", shots=5, drawn=False, max_tokens=256, seed=42,
    stop=("Question", "Assistant:", "<|separator|>"), extract=vllm_eval, equal=vllm_equal,
)  # fmt: skip
_NIGHT = Style(
    "mi355x_night", "/v1/chat/completions", shots=0, drawn=False, max_tokens=2048, stop=(), extract=mi355x_night,
    equal=mi355x_equal,
)  # fmt: skip
STYLES: dict[str, Style] = {
    known.name: known
    for known in (
        _LM_EVAL,
        replace(_LM_EVAL, name="lm_eval_flexible", extract=lm_eval_flexible),
        _VLLM,
        replace(_VLLM, name="vllm_eval_chat", endpoint="/v1/chat/completions", stop=()),
        _NIGHT,
    )
}
