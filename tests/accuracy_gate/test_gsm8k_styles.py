"""Each style's prompts and its reading of answers, quirk by quirk: the others' numbers have the quirks in them."""

import random

import pytest

from accuracy_gate.arithmetic.training import documents
from accuracy_gate.gsm8k import styles
from accuracy_gate.gsm8k.ask import request
from accuracy_gate.gsm8k.questions import Question, QuestionSet
from accuracy_gate.gsm8k.styles import STYLES, style

NONE = "nothing"  # lm-eval's [invalid], vLLM's INVALID, the night's None

# text, gold, then what (strict, flexible, vllm, night) read and whether they call it right
CORNERS = [
    ("#### 18", "18", ("18", "18", "18", "18"), "++++"),
    ("The answer is $18.00.", "18", (NONE, "$18.00.", "0", "18.00"), "---+"),
    ("#### 18\n\nQuestion: foo 7", "18", ("18", "7", "7", "18"), "+--+"),
    ("#### 18.00", "18", ("18.00", "18.00", "0", "18.00"), "---+"),
    ("#### 18.", "18", ("18.", "18.", "18", "18"), "++++"),
    ("#### $18", "18", (NONE, "$18", "18", "18"), "-+++"),
    ("####18", "18", (NONE, "18", "18", "18"), "-+++"),
    ("#### 1,234", "1234", ("1,234", "1,234", "1234", "1234"), "++++"),
    ("#### 1234", "1,234", ("1234", "1234", "1234", "1234"), "++++"),
    ("#### 12.50", "12.50", ("12.50", "12.50", "50", "12.50"), "++++"),
    ("#### 99.50", "12.50", ("99.50", "99.50", "50", "99.50"), "--+-"),  # vLLM compares 50 with 50
    ("#### -10", "-10", ("-10", "-10", "10", "-10"), "++++"),
    ("#### 10", "-10", ("10", "10", "10", "10"), "--+-"),  # no sign in vLLM's reading
    ("#### 007", "7", ("007", "007", NONE, "007"), "---+"),  # 007 is no Python number
    ("#### 000", "0", ("000", "000", "0", "000"), "--++"),
    ("so 3 + 4 = 7", "7", (NONE, "7", "7", "7"), "-+++"),
    ("I think 18 ...", "18", (NONE, "...", "18", "18"), "--++"),  # flexible takes dots alone
    ("#### 18 or #### 19", "18", ("18", "19", "19", "18"), "+--+"),
    ("#### 5 eggs, 6 left", "5", ("5", "6", "6", "5"), "+--+"),
    ("#### $. That is 5", "5", (NONE, "5", "5", NONE), "-++-"),  # marked, but no digits follow
    ("I do not know", "5", (NONE, NONE, NONE, NONE), "----"),
    ("", "5", (NONE, NONE, NONE, NONE), "----"),
]
NAMES = ("lm_eval_strict", "lm_eval_flexible", "vllm_eval", "mi355x_night")


@pytest.mark.parametrize(("text", "gold", "read", "right"), CORNERS)
def test_corner_cases(text: str, gold: str, read: tuple[str, ...], right: str) -> None:
    question = Question(id="q", question="?", answer=f"It takes 3 steps, or 4.\n#### {gold}")
    found = [style(name).extract(text) for name in NAMES]
    assert tuple(value or NONE for value in found) == read
    marks = (style(name).right(value, question) for name, value in zip(NAMES, found, strict=True))
    assert "".join("+" if mark else "-" for mark in marks) == right


def rows(n: int) -> QuestionSet:
    made = (Question(id=str(i), question=f"{i} and 1?", answer=f"One more.\n#### {i + 1}") for i in range(n))
    return QuestionSet(source="train", questions=tuple(made))


ASKED = Question(id="q", question="2 and 2?", answer="#### 4")


def test_the_night_shows_no_examples_and_says_how_to_answer() -> None:
    (prompt,) = style("mi355x_night").prompts([ASKED])
    assert prompt == (
        "2 and 2?\nSolve step by step, then give the final answer as a plain number on the last line in the form: "
        "#### <number>"
    )
    body = request(style("mi355x_night"), "m", prompt, "salt")
    assert body["messages"] == [{"role": "user", "content": prompt}]
    assert (body["max_tokens"], body["temperature"], "stop" in body, "seed" in body) == (2048, 0, False, False)


def test_the_arithmetic_model_learnt_the_words_of_the_night() -> None:
    assert documents.INSTRUCTION == styles.INSTRUCTION


def test_vllm_shows_the_first_five_training_rows() -> None:
    shown = style("vllm_eval", rows(9))
    (prompt,) = shown.prompts([ASKED])
    assert prompt.startswith("Question: 0 and 1?\nAnswer: One more.\n#### 1\n\nQuestion: 1 and 1?\nAnswer: One more.")
    assert prompt.endswith("#### 5\n\nQuestion: 2 and 2?\nAnswer:") and prompt.count("Question:") == 6
    body = request(shown, "m", prompt, "salt")
    assert body["prompt"] == prompt and body["stop"] == ["Question", "Assistant:", "<|separator|>"]
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (256, 0, 42)


def test_vllm_s_chat_form_is_the_same_text_in_one_message_without_stops() -> None:
    chat = style("vllm_eval_chat", rows(5))
    assert chat.prompts([ASKED]) == style("vllm_eval", rows(5)).prompts([ASKED])
    body = request(chat, "m", "text", "salt")
    assert body["messages"] == [{"role": "user", "content": "text"}] and "stop" not in body and "prompt" not in body


def test_lm_eval_draws_five_for_each_question_from_one_stream() -> None:
    pool = rows(20)
    shown = style("lm_eval_strict", pool)
    first, second = shown.prompts([ASKED, ASKED])
    stream = random.Random(1234)
    for prompt in (first, second):
        before = "".join(f"Question: {r.question}\nAnswer: {r.answer}\n\n" for r in stream.sample(pool.questions, 5))
        assert prompt == f"{before}Question: 2 and 2?\nAnswer:"
    assert first != second
    body = request(shown, "m", first, "salt")
    assert body["stop"] == ["Question:", "</s>", "<|im_end|>"] and body["max_tokens"] == 256 and "seed" not in body
    assert style("lm_eval_flexible", pool).prompts([ASKED, ASKED]) == (first, second)


def test_a_style_without_its_examples_or_with_a_wrong_name_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="style vllm_eval shows 5 worked examples and has 3 to choose from"):
        style("vllm_eval", rows(3)).prompts([ASKED])
    with pytest.raises(ValueError, match=f"style 'lm_eval' is unknown; use one of {', '.join(STYLES)}"):
        style("lm_eval")
    assert style("mi355x_night", max_tokens=200).max_tokens == 200
