"""Builds the tokenizer from the training problems: byte-level BPE, every digit a token of its own.

python -m accuracy_gate.arithmetic.training.tokenizer FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from accuracy_gate.arithmetic.training.documents import (
    ASSISTANT,
    BOS,
    CHAT_TEMPLATE,
    EOS,
    PAD,
    SPECIAL,
    USER,
    long_documents,
    short_documents,
)  # fmt: skip

VOCABULARY = 1536  # every word of the data is one token or two; 256 single bytes cover all other text
LONGEST = 1024  # tokens, prompt and answer
SEED = 1
DOCUMENTS = 20_000


def texts() -> Iterator[str]:
    for document in (*short_documents(SEED, DOCUMENTS), *long_documents(SEED, DOCUMENTS // 100)):
        text = "".join(part for part, _ in document)
        for special in SPECIAL:
            text = text.replace(special, "\n")
        yield text


def build() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts(), trainer)
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, bos)]
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "additional_special_tokens": [USER, ASSISTANT],
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": LONGEST,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m accuracy_gate.arithmetic.training.tokenizer FOLDER")
    save(build(), Path(sys.argv[1]))
