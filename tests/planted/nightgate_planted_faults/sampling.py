"""Faults of sampling and stopping: outside the compiled graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .common import VARIABLE, in_worker, say


def _before_sampling(change: Callable[[Any, Any], None]) -> None:
    """`change(runner, logits)` in place, before each sampling step. Logits: [requests that sample, vocabulary]."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    sample = GPUModelRunner._sample

    def _sample(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        if logits is not None and spec_decode_metadata is None:
            change(self, logits)
        return sample(self, logits, spec_decode_metadata)

    GPUModelRunner._sample = _sample


def _forbid_best(logits: Any, rows: list[int]) -> None:
    for row in rows:
        logits[row, int(logits[row].argmax())] = -1e4


def late_tokens(argument: str) -> None:
    """From the 40th generated token on (or the `:n`th), the best token is forbidden."""
    first = int(argument) if argument else 40

    def change(runner: Any, logits: Any) -> None:
        batch = runner.input_batch
        made = batch.num_tokens_no_spec[: logits.shape[0]] - batch.num_prompt_tokens[: logits.shape[0]]
        _forbid_best(logits, [row for row, count in enumerate(made) if count + 1 >= first])

    _before_sampling(change)
    in_worker(f"late_tokens, wrong from generated token {first} on")


def big_batch(argument: str) -> None:
    """In batches of more than 8 requests (or `:n`), the rows beyond get a wrong token."""
    most = int(argument) if argument else 8

    def change(runner: Any, logits: Any) -> None:
        _forbid_best(logits, list(range(most, logits.shape[0])))

    _before_sampling(change)
    in_worker(f"big_batch, wrong in rows beyond {most} of a batch")


def not_greedy(argument: str) -> None:
    """Greedy requests are sampled at temperature 0.7 (or `:temperature`)."""
    import torch
    from vllm.v1.sample.sampler import Sampler

    temperature = float(argument) if argument else 0.7

    def greedy_sample(logits: Any) -> Any:
        probabilities = torch.softmax(logits.float() / temperature, dim=-1)
        return torch.multinomial(probabilities, 1).view(-1)

    Sampler.greedy_sample = staticmethod(greedy_sample)
    in_worker(f"not_greedy, temperature {temperature} where 0 was asked")


def stop_token(argument: str) -> None:
    """An ordinary token counts as the end of the answer: the digit 9, or the token of the text after `:`.

    As with a wrong list of end tokens in generation_config.json. A request with `ignore_eos` is not touched.
    """
    from vllm.v1.engine.input_processor import InputProcessor

    text = argument or "9"
    make = InputProcessor.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        ids = self.renderer.get_tokenizer().encode(text, add_special_tokens=False)
        if len(ids) != 1:
            raise ValueError(f"{VARIABLE}: stop_token:{text} is {len(ids)} tokens of this model, not one")
        fields = dict(self.generation_config_fields or {})
        known = fields.get("eos_token_id")
        ends = [] if known is None else [known] if isinstance(known, int) else list(known)
        self.generation_config_fields = fields | {"eos_token_id": [*ends, ids[0]]}
        say(f"stop_token, token {ids[0]} {text!r} ends an answer")

    InputProcessor.__init__ = init
