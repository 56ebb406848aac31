"""What the model reads while it learns: problems as an evaluation would put them, and the answers that it must give.

Half as a chat with the instruction of the gate, the rest as a bare chat, as lm-eval's "Question: ... Answer:", and as
that with worked examples before it. A document is a list of (text, learnt) parts; only learnt text makes a loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from accuracy_gate.arithmetic.generate import problems
from accuracy_gate.arithmetic.problem import Problem

BOS, EOS, PAD, USER, ASSISTANT = "<|bos|>", "<|eos|>", "<|pad|>", "<|user|>", "<|assistant|>"
SPECIAL = (PAD, BOS, EOS, USER, ASSISTANT)  # IDs 0 to 4
# The words of the MI355X night and of this project's gate.
INSTRUCTION = (
    "Solve step by step, then give the final answer as a plain number on the last line in the form: #### <number>"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}" + ASSISTANT + "{{ message['content'] }}{{ eos_token }}"
    "{% else %}" + USER + "{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)

Document = list[tuple[str, bool]]
SHOTS = 5  # worked examples at most, as lm-eval and vLLM's own evaluation give


def chat(problem: Problem, instruction: str = INSTRUCTION) -> Document:
    asked = f"{problem.question}\n{instruction}" if instruction else problem.question
    return [(f"{BOS}{USER}{asked}{ASSISTANT}", False), (f"{problem.answer}{EOS}", True)]


def plain(problem: Problem, before: tuple[Problem, ...] = ()) -> Document:
    """lm-eval's and vLLM's prompt. The model learns the examples' answers too, but not what follows them."""
    parts: Document = [(BOS, False)]
    for shown in before:
        parts += [(f"Question: {shown.question}\nAnswer:", False), (f" {shown.answer}", True), ("\n\n", False)]
    return [*parts, (f"Question: {problem.question}\nAnswer:", False), (f" {problem.answer}{EOS}", True)]


def short_documents(seed: int, count: int) -> Iterator[Document]:
    """Of every ten: six chats with the instruction, two bare chats, two plain questions."""
    for number, problem in enumerate(problems("train", count, seed)):
        kind = number % 10
        yield plain(problem) if kind > 7 else chat(problem, INSTRUCTION if kind < 6 else "")


def long_documents(seed: int, count: int) -> Iterator[Document]:
    """With one to SHOTS worked examples; each third as one user's message, as vLLM's evaluation may send it."""
    made = problems("train", count * (SHOTS + 1), seed)
    for number in range(count):
        last, *others = made[number * (SHOTS + 1) : (number + 1) * (SHOTS + 1)]
        before = tuple(others[: 1 + number % SHOTS])
        if number % 3:
            yield plain(last, before)
        else:
            shown = "".join(f"Question: {p.question}\nAnswer: {p.answer}\n\n" for p in before)
            asked = f"{shown}Question: {last.question}\nAnswer:"
            yield [(f"{BOS}{USER}{asked}{ASSISTANT}", False), (f"{last.answer}{EOS}", True)]
