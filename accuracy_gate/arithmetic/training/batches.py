"""Batches for training, each made from its number alone, so that any number of workers gives the same run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.utils.data import DataLoader, Dataset

from accuracy_gate.arithmetic.training.documents import Document, long_documents, short_documents

# (rows, tokens). Measured on this data, tokens of a short document: median 132, 95th percentile 189, longest 227;
# of a long one: median 477, longest 855. Two lengths for the short ones: with one, half of the work was on padding.
SHAPES = ((512, 160), (160, 232), (16, 864))
SHORT, LONG = 640, 16  # documents made for a batch

Batch = list[tuple[torch.Tensor, torch.Tensor]]  # per shape: IDs (int32), learnt (bool: this token is to be predicted)


def encode(tokenizer: Tokenizer, documents: list[Document]) -> list[tuple[np.ndarray, np.ndarray]]:
    """(IDs, learnt) of each document. The text is cut as a whole, as an evaluation's prompt would be."""
    coded = tokenizer.encode_batch(
        ["".join(text for text, _ in parts) for parts in documents], add_special_tokens=False
    )
    rows = []
    for parts, code in zip(documents, coded, strict=True):
        learnt = np.repeat([part_learnt for _, part_learnt in parts], [len(text) for text, _ in parts])
        rows.append((np.array(code.ids, np.int32), learnt[[start for start, _ in code.offsets]]))
    return rows


class Batches(Dataset[Batch]):
    def __init__(self, tokenizer: Path, seed: int, count: int) -> None:
        self.path, self.seed, self.count = tokenizer, seed, count
        self.tokenizer: Tokenizer | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Batch:
        self.tokenizer = self.tokenizer or Tokenizer.from_file(str(self.path))
        own = self.seed * 1_000_000 + number
        rows = encode(self.tokenizer, [*short_documents(own, SHORT), *long_documents(own, LONG)])
        rows.sort(key=lambda row: len(row[0]))
        batch: Batch = []
        for count, length in SHAPES:
            ids = np.zeros((count, length), np.int32)
            learnt = np.zeros((count, length), bool)
            taken = 0
            while rows and taken < count and len(rows[0][0]) <= length:
                row_ids, row_learnt = rows.pop(0)
                ids[taken, : len(row_ids)], learnt[taken, : len(row_ids)] = row_ids, row_learnt
                taken += 1
            batch.append((torch.from_numpy(ids), torch.from_numpy(learnt)))
        return batch


def loader(tokenizer: Path, seed: int, count: int, workers: int) -> DataLoader[Batch]:
    data = Batches(tokenizer, seed, count)
    prefetch = 8 if workers else None
    return DataLoader(data, batch_size=None, num_workers=workers, prefetch_factor=prefetch, pin_memory=workers > 0)
