"""English-like text from our own word lists, and its token IDs as the engine's own tokeniser makes them."""

from __future__ import annotations

import random
from functools import cache

from engine.client import http_client

PARAGRAPHS = 1200  # about 120,000 tokens of SmolLM2's tokeniser; enough that bodies of one run seldom repeat
_CORPUS_SEED = "nightgate corpus 1"  # one text for all nights, so that nights can be compared

_PEOPLE = """the engineer|the baker|a young teacher|the ferry captain|my neighbour|the night guard|an old printer
the nurse|the gardener|two students|the librarian|a violin maker|the postman|the surveyor|a retired judge|the cook
the miller|the translator|a clockmaker|the harbour pilot|her cousin|the beekeeper|a welder|the archivist
the choir leader"""
_THINGS = """a copper kettle|the blue ledger|a sack of rye|the spare key|a broken lantern|three wooden crates
the map|a wool blanket|the brass compass|a jar of honey|the old bicycle|a letter from the council|the rain gauge
a box of nails|the green notebook|a telescope lens|the water pump|a basket of plums|the stage curtain|a roll of film
the church bell|a pair of boots|the railway timetable|a loaf of bread|the weather report|a chessboard
the small radio|an oak door"""
_PLACES = """near the river|behind the station|in the market square|on the upper floor|by the lighthouse
under the bridge|outside the mill|at the edge of the forest|in the cellar|beside the canal|across the valley
inside the workshop|along the coast road|in the reading room|above the harbour|at the foot of the hill
next to the bakery"""
_DEEDS = """repaired|carried|measured|found|sold|painted|hid|borrowed|described|weighed|photographed|cleaned|lost
returned|wrapped|counted|inspected|drew|delivered|moved|replaced|examined|opened|labelled|guarded|traded"""
_TIMES = """before breakfast|on Tuesday|late in the evening|during the storm|after the concert|in early spring
just before noon|for the third time|at sunrise|when the snow melted|on market day|in the last week of October
while the others slept|shortly after midnight|a few minutes later|every second winter"""
_REASONS = """because the road was closed|although nobody had asked|so that the work could go on
since the price had fallen|but kept no record of it|and told nobody|in order to save time|even though it was raining
as the contract required|until the lamps went out|and wrote the result on the wall|because the old one leaked
if the wind allowed it"""
_JUDGEMENTS = """careful|surprising|cheap|slow|useful|far from certain|well known|difficult to explain
almost perfect|older than the town|heavier than expected|quite ordinary|worth the effort|too loud|easy to miss
strangely warm"""


def corpus_text(paragraphs: int = PARAGRAPHS, seed: str = _CORPUS_SEED) -> tuple[str, ...]:
    """`paragraphs` paragraphs of 3 to 6 sentences, the same for the same arguments."""
    rng = random.Random(seed)
    return tuple(" ".join(_sentence(rng) for _ in range(rng.randint(3, 6))) for _ in range(paragraphs))


def _sentence(rng: random.Random) -> str:
    def pick(words: str) -> str:
        return rng.choice(words.replace("\n", "|").split("|"))

    who, what, where, when = pick(_PEOPLE), pick(_THINGS), pick(_PLACES), pick(_TIMES)
    number = rng.randint(2, 9800)
    pattern = rng.randrange(7)
    if pattern == 0:
        text = f"{when}, {who} {pick(_DEEDS)} {what} {where}"
    elif pattern == 1:
        text = f"{who} {pick(_DEEDS)} {what} {pick(_REASONS)}"
    elif pattern == 2:
        text = f"it was {pick(_JUDGEMENTS)} that {who} {pick(_DEEDS)} {what} {when}, {pick(_REASONS)}"
    elif pattern == 3:
        counted = f"in {rng.randint(1700, 2020)} {who} {pick(_DEEDS)} {number} of them {where}"
        text = f"{counted}, and {what} was {pick(_JUDGEMENTS)}"
    elif pattern == 4:
        text = f'"{what} is {pick(_JUDGEMENTS)}," said {who}, who had {pick(_DEEDS)} it {when}'
    elif pattern == 5:
        text = f"how could {who}, {where}, have {pick(_DEEDS)} {what} {when}, when it was {pick(_JUDGEMENTS)}"
        return text[0].upper() + text[1:] + "?"
    else:
        text = f"{what}, which {who} {pick(_DEEDS)} {where}, cost {number} crowns and was {pick(_JUDGEMENTS)}"
    start = 1 if text[0] == '"' else 0
    return text[:start] + text[start].upper() + text[start + 1 :] + "."


def corpus_tokens(base_url: str, served_name: str, timeout_s: float = 60.0) -> tuple[int, ...]:
    """The corpus as token IDs, from POST /tokenize of the engine at `base_url`. Done once for a model in one process.

    The text goes in pieces that fit the engine's max_model_len, lest one refuse it. Raises httpx.HTTPError.
    """
    with http_client(base_url, timeout_s) as client:
        card = client.get("/v1/models").raise_for_status().json()["data"][0]
    root, longest = str(card.get("root") or served_name), int(card.get("max_model_len") or 2048)
    return _tokenise(base_url, served_name, root, longest)


_by_model: dict[str, tuple[int, ...]] = {}


def _tokenise(base_url: str, served_name: str, root: str, max_model_len: int) -> tuple[int, ...]:
    if root in _by_model:
        return _by_model[root]
    tokens: list[int] = []
    with http_client(base_url, 60.0) as client:
        for piece in _pieces(max_model_len):
            body = {"model": served_name, "prompt": piece, "add_special_tokens": False}
            tokens += client.post("/tokenize", json=body).raise_for_status().json()["tokens"]
    _by_model[root] = tuple(tokens)
    return _by_model[root]


@cache
def _pieces(max_model_len: int) -> tuple[str, ...]:
    """The corpus cut into texts of at most `max_model_len` characters (a token is at least one character here), and at
    least one paragraph."""
    pieces, current = [], ""
    for paragraph in corpus_text():
        if current and len(current) + len(paragraph) + 1 > max_model_len:
            pieces.append(current)
            current = ""
        current += ("\n" if current else "") + paragraph
    return (*pieces, current)
