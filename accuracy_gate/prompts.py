"""The prompts of the token gate: natural text in five registers, from a few tokens to about 300, made from a seed.

Lengths climb through a fixed ladder so that every count of prompts, also the quick form's first few, holds short,
middling and long ones. The words come from our own templates: nobody's benchmark, and a different seed gives
prompts that nobody has seen before.
"""

from __future__ import annotations

import random

from contracts import Frozen, content_hash

# Words to aim for, in this order, again and again. A word is about 1.3 tokens of a small tokenizer, so 4 .. 230 words
# are about 5 .. 300 tokens. Not sorted: the first eight already span the range.
WORD_LADDER = (6, 90, 25, 180, 4, 50, 130, 12, 230, 35, 8, 70)


class Prompt(Frozen):
    id: str  # "p00-question"
    kind: str
    text: str


_PEOPLE = ("Mira", "Tomas", "Adaeze", "Jun", "Noor", "Ewa", "Leander", "Sefa", "Pilar", "Oskar")
_PLACES = ("the harbour", "a hill town", "the night market", "an old library", "the river delta", "a railway yard")
_THINGS = ("lanterns", "apples", "maps", "bolts", "seedlings", "tickets", "jars of honey", "bricks")
_TOPICS = (
    "how tides work", "why bread rises", "the history of paper", "how a lock on a canal lifts boats",
    "what makes steel hard", "how bees find flowers", "why the sky turns red at dusk", "how maps are projected",
)  # fmt: skip
_TASKS = ("repair a bicycle tyre", "brew strong coffee", "plan a garden bed", "pack for a week in the hills",
          "clean a cast-iron pan", "prepare for a talk")  # fmt: skip
_FUNCTIONS = ("moving_average", "merge_intervals", "count_words", "rotate_matrix", "parse_duration", "is_palindrome")


def _question(rng: random.Random) -> str:
    topic, person = rng.choice(_TOPICS), rng.choice(_PEOPLE)
    return rng.choice((
        f"Explain {topic} to {person}, who is nine years old.",
        f"What would an engineer say about {topic}, and what would a poet say?",
        f"{person} wants to understand {topic}. Which three facts matter most?",
    ))  # fmt: skip


def _arithmetic(rng: random.Random) -> str:
    a, b, c = rng.randint(3, 48), rng.randint(2, 19), rng.randint(2, 9)
    person, thing = rng.choice(_PEOPLE), rng.choice(_THINGS)
    return rng.choice((
        f"{person} has {a + b * c} {thing} and gives {b} to each of {c} friends. How many {thing} are left?",
        f"A crate holds {a} {thing}. {person} fills {c} crates and loses {b} {thing}. How many remain?",
        f"Compute {a} * {c} - {b} and show each step.",
    ))  # fmt: skip


def _code(rng: random.Random) -> str:
    name, n = rng.choice(_FUNCTIONS), rng.randint(2, 64)
    return rng.choice((
        f"def {name}(values, size={n}):\n    # return a new list, leave the argument unchanged\n",
        f"Write a Python function {name} that raises ValueError when its input has fewer than {n} items.",
        f"for index, value in enumerate(rows[:{n}]):\n    total += value * weights[index]\n",
    ))  # fmt: skip


def _list(rng: random.Random) -> str:
    task, n = rng.choice(_TASKS), rng.randint(3, 9)
    things = ", ".join(rng.sample(_THINGS, 3))
    return rng.choice((
        f"List {n} steps to {task}:\n1.",
        f"To {task} you need {things} and {n} free minutes. Put these into a numbered list.",
        f"- {things.replace(', ', chr(10) + '- ')}\nSort these by weight and say why.",
    ))  # fmt: skip


def _prose(rng: random.Random) -> str:
    person, other = rng.sample(_PEOPLE, 2)
    place, thing, year = rng.choice(_PLACES), rng.choice(_THINGS), rng.randint(1871, 1998)
    return rng.choice((
        f"In the winter of {year} {person} walked to {place} with a box of {thing} that {other} had left behind.",
        f"{person} had not spoken to {other} since the summer of {year}, when they sold {thing} near {place}.",
        f"Nobody at {place} remembered who had ordered the {thing}, least of all {person}.",
    ))  # fmt: skip


_REGISTERS = {"question": _question, "arithmetic": _arithmetic, "code": _code, "list": _list, "prose": _prose}


def _one(rng: random.Random, register: str, words: int) -> str:
    make = _REGISTERS[register]
    text = make(rng)
    if words < 10:
        return " ".join(text.split()[:words])
    # Longer prompts mix registers, as real conversations do, and end in their own.
    while len(text.split()) < words:
        text = rng.choice(tuple(_REGISTERS.values()))(rng) + rng.choice(("\n", "\n\n", " ")) + text
    return text


def prompts(count: int = 24, seed: int = 7) -> tuple[Prompt, ...]:
    """`count` different prompts, the same for the same seed; the first k of prompts(n) are prompts(k)."""
    rng = random.Random(f"nightgate token prompts {seed}")
    names = tuple(_REGISTERS)
    made: dict[str, Prompt] = {}
    while len(made) < count:
        index = len(made)
        register = names[index % len(names)]
        text = _one(rng, register, WORD_LADDER[index % len(WORD_LADDER)])
        if text not in made:
            made[text] = Prompt(id=f"p{index:02d}-{register}", kind=register, text=text)
    return tuple(made.values())


def prompts_hash(items: tuple[Prompt, ...]) -> str:
    """Names a set of prompts, in their order."""
    return content_hash([[prompt.id, prompt.text] for prompt in items])
