"""Greedy answers in plain torch, for the end of training. The scores that count come through vLLM (measure.py)."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer

from accuracy_gate.arithmetic.problem import Problem, final_number
from accuracy_gate.arithmetic.training.documents import EOS, Document
from accuracy_gate.arithmetic.training.model import Llama

MOST_TOKENS = 160  # of an answer; the longest in the data has about 120


@torch.no_grad()
@torch.compiler.set_stance("force_eager")  # every step has a new length; compiled layers would be compiled again
def answers(model: Llama, tokenizer: Tokenizer, documents: list[Document], autocast: bool = True) -> list[str]:
    """To each document without its last part. No cache: the whole text is read anew for every token."""
    device = model.embed_tokens.weight.device
    prompts = ["".join(text for text, _ in parts[:-1]) for parts in documents]
    coded = [code.ids for code in tokenizer.encode_batch(prompts, add_special_tokens=False)]
    lengths = torch.tensor([len(ids) for ids in coded], device=device)
    starts = lengths.clone()
    ids = torch.zeros(len(coded), int(lengths.max()) + MOST_TOKENS, dtype=torch.long, device=device)
    for row, own in zip(ids, coded, strict=True):
        row[: len(own)] = torch.tensor(own, device=device)
    eos = tokenizer.token_to_id(EOS)
    going = torch.ones(len(coded), dtype=torch.bool, device=device)
    every = torch.arange(len(coded), device=device)
    for _ in range(MOST_TOKENS):
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            hidden = model(ids[:, : int(lengths.max())])[every, lengths - 1]
            token = model.logits(hidden).argmax(-1)
        ids[every[going], lengths[going]] = token[going]
        going &= token != eos
        lengths += going
        if not going.any():
            break
    pairs = zip(ids.tolist(), starts.tolist(), lengths.tolist(), strict=True)
    texts: list[str] = tokenizer.decode_batch([row[start:end] for row, start, end in pairs], skip_special_tokens=True)
    return texts


def right(texts: list[str], problems: list[Problem]) -> int:
    return sum(final_number(text) == problem.result for text, problem in zip(texts, problems, strict=True))
