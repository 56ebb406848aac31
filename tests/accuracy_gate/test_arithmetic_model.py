"""The exported folder: complete, unchanged, small, and read by a real vLLM as it was trained."""

from __future__ import annotations

import hashlib
import json
import subprocess
from typing import Any

import jinja2
import pytest

from accuracy_gate.arithmetic.generate import DATA_VERSION, problems
from accuracy_gate.arithmetic.measure import MODEL, Score
from accuracy_gate.arithmetic.training.documents import INSTRUCTION, SPECIAL, chat, short_documents

ENGINE_PYTHON = MODEL.parents[1] / ".venv-engine" / "bin" / "python"


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((MODEL / name).read_text())
    return document


def test_every_file_is_listed_with_its_checksum() -> None:
    lines = (line.split("  ") for line in (MODEL / "SHA256SUMS").read_text().splitlines())
    listed = {name: digest for digest, name in lines}
    there = {path.name for path in MODEL.iterdir() if path.is_file()} - {"SHA256SUMS"}
    assert set(listed) == there
    for name, digest in listed.items():
        assert hashlib.sha256((MODEL / name).read_bytes()).hexdigest() == digest, name


def test_the_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 25_000_000


def test_the_card_names_the_data() -> None:
    assert DATA_VERSION in (MODEL / "README.md").read_text()


def test_the_weights_fit_the_config() -> None:
    """From the header of the safetensors file alone: eight bytes of length, then JSON."""
    raw = (MODEL / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__")
    config = read("config.json")
    heads, kv_heads, size = config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"]
    assert {entry["dtype"] for entry in header.values()} == {"BF16"}
    assert header["model.embed_tokens.weight"]["shape"] == [config["vocab_size"], size]
    layers = range(config["num_hidden_layers"])
    for layer in layers:
        part = f"model.layers.{layer}.self_attn"
        assert header[f"{part}.q_proj.weight"]["shape"] == [heads * config["head_dim"], size]
        assert header[f"{part}.k_proj.weight"]["shape"] == [kv_heads * config["head_dim"], size]
    assert len(header) == 2 + 9 * len(layers)  # embedding and last norm; four, three and two weights in each layer


def test_there_is_something_to_break() -> None:
    """What the planted faults need: layers to skip, heads to swap, groups of key-value heads."""
    config = read("config.json")
    assert config["num_hidden_layers"] >= 6 and config["num_attention_heads"] >= 6
    assert config["num_key_value_heads"] > 1 and config["head_dim"] % 32 == 0


def test_the_tokenizer_file() -> None:
    tokenizer = read("tokenizer.json")
    vocabulary = tokenizer["model"]["vocab"]
    assert len(vocabulary) == read("config.json")["vocab_size"] <= 2048
    assert [vocabulary[token] for token in SPECIAL] == [0, 1, 2, 3, 4]
    assert [token for token in vocabulary if any(map(str.isdigit, token)) and token.isascii()] == list("0123456789")


def test_the_chat_template_is_what_was_trained() -> None:
    problem = problems("train", 1, 1)[0]
    config = read("tokenizer_config.json")
    template = jinja2.Template(config["chat_template"])
    tokens = {"bos_token": config["bos_token"], "eos_token": config["eos_token"]}
    asked = {"role": "user", "content": f"{problem.question}\n{INSTRUCTION}"}
    prompt, answer = (text for text, _ in chat(problem))
    assert template.render(messages=[asked], add_generation_prompt=True, **tokens) == prompt
    told = {"role": "assistant", "content": problem.answer}
    assert template.render(messages=[asked, told], add_generation_prompt=False, **tokens) == prompt + answer


ROUND_TRIP = """
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
out = []
for text in json.load(sys.stdin):
    code = tokenizer.encode(text)
    out.append([code.tokens, tokenizer.decode(code.ids, skip_special_tokens=False)])
json.dump(out, sys.stdout)
"""


def test_every_text_survives_the_tokenizer() -> None:
    if not ENGINE_PYTHON.exists():
        pytest.skip("needs .venv-engine of `make setup`")
    texts = ["".join(part for part, _ in document) for document in short_documents(3, 50)]
    texts += ["", " ", "naïve café 日本語 🙂", "\x00\x7f", "#### 18\n\nQuestion: 7"]
    texts += ["1234 + 56.7", "  two  spaces\n\n\ttab"]
    command = [str(ENGINE_PYTHON), "-c", ROUND_TRIP, str(MODEL / "tokenizer.json")]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
    for text, (tokens, back) in zip(texts, json.loads(done.stdout), strict=True):
        assert tokens[0] == "<|bos|>"
        assert back == "<|bos|>" + text
        assert sum(token.isdigit() for token in tokens) == sum(c.isascii() and c.isdigit() for c in text)


def test_a_lost_answer_is_not_a_wrong_one() -> None:
    problem = problems("held_out_numbers", 1, 1)[0]
    score = Score(right=8, asked=10, errors=1, wrong=((problem, "#### 0"),), seconds=1.0, output_tokens=9)
    assert score.interval == pytest.approx((0.5175, 0.9972), abs=1e-4)  # of 8 in 9, exact
    assert score.summary()["wrong_by_family"] == {problem.family: 1}
    assert Score(0, 10, 10, (), 1.0, 0).interval is None
