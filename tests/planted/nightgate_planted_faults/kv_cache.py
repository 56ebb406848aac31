"""Faults of the KV cache: what attention reads (drop_last_kv_block, stale_kv_block) and what is written (kv_8bit).

Put in where vLLM's CPU backend prepares a step and where it writes keys and values. Both run outside the compiled
graph: once a step, or once a layer and step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .common import VARIABLE, in_worker, whole_number

NULL_BLOCK = 0  # never given to a request; vLLM's cleared block tables hold it


def _only_on_a_cpu() -> None:
    """Raises ValueError elsewhere: another backend would not be touched, and a right engine taken for a faulty one."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        raise ValueError(f"{VARIABLE}: faults of the KV cache are planted in vLLM's CPU backend only; choose another")


def _before_attention(change: Callable[[Any, Any], Any]) -> None:
    """Attention of every step gets `change(builder, metadata)` for its CommonAttentionMetadata. Writes do not."""
    _only_on_a_cpu()
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

    build = CPUAttentionMetadataBuilder.build

    def faulty(self: Any, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Any:
        return build(self, common_prefix_len, change(self, common_attn_metadata), fast_build)

    CPUAttentionMetadataBuilder.build = faulty


def without_last_block(lengths: Any, queries: Any, size: int) -> Any:
    """The lengths that attention is told, [requests]: in decode (one query token) up to the start of the last block.

    A request of a single block keeps it: nothing would be left. `lengths` counts the tokens in the cache with the
    current one; `queries` the tokens of this step. Tensors or arrays of whole numbers.
    """
    shorter = (lengths - 1) // size * size
    return lengths - (lengths - shorter) * ((queries == 1) & (shorter > 0))


def drop_last_kv_block(argument: str) -> None:
    """In decode, attention of every layer leaves out the last block: of the engine's size, or of `:n` tokens."""
    tokens = whole_number(argument, 0, "the tokens of a block")

    def change(builder: Any, metadata: Any) -> Any:
        queries = metadata.query_start_loc[1:] - metadata.query_start_loc[:-1]
        lengths = without_last_block(metadata.seq_lens, queries, tokens or builder.block_size)
        return metadata.replace(seq_lens=lengths)

    _before_attention(change)
    in_worker(f"drop_last_kv_block, decode does not read the last block of {tokens or 'block-size'} tokens")


class LateTable:
    """The block-table entries of a table that learns of a new block late: for each row what was there before.

    First the null block, later the block of the request that had the row before. `steps`: how many steps until the
    entry is right; 0 for never.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.rows: dict[int, tuple[int, int, int]] = {}  # row -> (block now, block before, steps seen)

    def read(self, blocks: Sequence[int | None]) -> dict[int, int]:
        """`blocks`: the true entry of each row in this step, None where the request has none. Row -> wrong entry."""
        wrong: dict[int, int] = {}
        for row, block in enumerate(blocks):
            if block is None:
                continue
            now, before, seen = self.rows.get(row, (NULL_BLOCK, NULL_BLOCK, 0))
            if block != now:
                now, before, seen = block, now, 0
            self.rows[row] = (now, before, seen + 1)
            if self.steps == 0 or seen < self.steps:
                wrong[row] = before
        return wrong


def stale_kv_block(argument: str) -> None:
    """Attention reads a request's second block where the row's earlier request had it, always (or for `:n` steps).

    Keys and values are written to the right place. Every layer, prefill and decode; requests that fit one block are
    right.
    """
    late = LateTable(whole_number(argument, 0, "the steps"))

    def change(builder: Any, metadata: Any) -> Any:
        table = metadata.block_table_tensor  # [requests, most blocks]
        if table.shape[1] < 2:
            return metadata
        lengths = metadata.seq_lens.tolist()
        second = [int(table[row, 1]) if length > builder.block_size else None for row, length in enumerate(lengths)]
        wrong = late.read(second)
        if not wrong:
            return metadata
        table = table.clone()
        for row, block in wrong.items():
            table[row, 1] = block
        return metadata.replace(block_table_tensor=table)

    _before_attention(change)
    in_worker(f"stale_kv_block, the second block is read late by {late.steps or 'all'} steps")


def kv_8bit(argument: str) -> None:
    """Keys and values are rounded to 8 bits before they are written: int8 with one scale for all (or `:e4m3`).

    int8: the largest magnitude among all tokens and heads of a layer's write is 127 steps. e4m3: float8 without any
    scale, cut off at 448. The cache keeps its own dtype.
    """
    import torch
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

    _only_on_a_cpu()
    kind = argument or "int8"

    def int8(x: Any) -> Any:
        step = x.abs().amax().float().clamp_min(1e-30) / 127
        return ((x.float() / step).round() * step).to(x.dtype)

    def e4m3(x: Any) -> Any:
        return x.float().clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype)

    kinds: dict[str, Callable[[Any], Any]] = {"int8": int8, "e4m3": e4m3}
    if kind not in kinds:
        raise ValueError(f"{VARIABLE}: kv_8bit:{kind} is not known; one of {', '.join(kinds)}")
    rounded, write = kinds[kind], CPUAttentionBackendImpl.do_kv_cache_update

    def do_kv_cache_update(self: Any, layer: Any, key: Any, value: Any, kv_cache: Any, slot_mapping: Any) -> None:
        write(self, layer, rounded(key), rounded(value), kv_cache, slot_mapping)

    CPUAttentionBackendImpl.do_kv_cache_update = do_kv_cache_update
    in_worker(f"kv_8bit, keys and values rounded to {kind}")
