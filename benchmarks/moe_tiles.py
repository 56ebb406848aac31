"""Tiles of vLLM's fused-MoE kernel, timed alone: which row would a table want for one decode step? A night judges what
it proposes (configs/nights/h200_experts.yaml); a kernel that is faster alone may be no faster in an engine.

Run with the engine's interpreter, on a GPU that nobody else uses:

    ENGINE_PYTHON -m benchmarks.moe_tiles --experts 64 --width 2048 --expert-width 768 --tokens 40 [--table FILE]

Every row computes the same two products on the same random tokens, routed evenly at random. It is timed by replays of a
captured graph (triton.testing.do_bench_cudagraph, median), and shown as a ratio to the tile that vLLM computes where it
has no table; a row whose result is not the default's is left out. The best row is timed once more against the default,
turn by turn, since the best of many is partly luck. With --table: vLLM's table file, the best row for this many tokens
and vLLM's own tiles for other batch sizes. Weights and tokens are bfloat16.

On one NVIDIA H200 (vLLM 0.26.0, Triton 3.6.0, 2026-11-30), with the figures above: 156 tiles, none left out; vLLM's own
32x64x128 with 4 warps and 3 stages took 170 us, the best, 16x128x128 with 8 warps and 3 stages, was 1.014 times as fast
(1.014 to 1.015).
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.arguments import count, lacking

Row = dict[str, int]
SHARED_BYTES = 227 << 10  # of one block on sm_90 (CUDA C++ programming guide, technical specifications per capability)
OTHER_BATCHES = (1, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192)
TURNS = 9


def candidates(tokens: int) -> list[Row]:
    """Rows of vLLM's own tuner for few tokens an expert (benchmark_moe.py), those that fit the shared memory."""
    found = []
    heights = (16, 32) if tokens <= 96 else (16, 32, 64)
    for m, n, k, warps, stages in itertools.product(heights, (32, 64, 128, 256), (64, 128, 256), (4, 8), (2, 3, 4, 5)):
        if stages * (m * k + k * n) * 2 <= SHARED_BYTES:
            found.append(row(m, n, k, warps, stages))
    return found


def row(m: int, n: int, k: int, warps: int, stages: int) -> Row:
    tile = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 1}
    return {**tile, "num_warps": warps, "num_stages": stages}


class Layer:
    """One layer of experts on the card. Raises what Triton raises for a tile that the card cannot run."""

    def __init__(self, experts: int, width: int, expert_width: int, top_k: int, tokens: int) -> None:
        import torch

        made = torch.Generator("cuda").manual_seed(0)
        like: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16, "generator": made}
        self.x = torch.randn(tokens, width, **like)
        self.up = torch.randn(experts, 2 * expert_width, width, **like) * 0.02
        self.down = torch.randn(experts, width, expert_width, **like) * 0.02
        scores = torch.rand(tokens, experts, device="cuda", generator=made)
        weights, ids = torch.topk(scores.softmax(-1), top_k)
        self.weights, self.ids, self.top_k = weights.float(), ids.int(), top_k

    def default(self, tokens: int) -> Row:
        from vllm.model_executor.layers.fused_moe.fused_moe import get_default_config

        experts, width, expert_width = self.down.shape
        held = get_default_config(tokens, experts, expert_width, width, self.top_k, None)
        return {key: value for key, value in held.items() if key != "SPLIT_K"}

    def run(self, tile: Row) -> Any:
        from vllm.model_executor.layers.fused_moe import override_config
        from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts

        with override_config({**tile, "SPLIT_K": 1}):
            return fused_experts(self.x, self.up, self.down, self.weights, self.ids)

    def microseconds(self, tile: Row) -> float:
        from triton.testing import do_bench_cudagraph

        return 1000 * float(do_bench_cudagraph(lambda: self.run(tile), rep=20, return_mode="median"))


def compile_rows(shape: tuple[int, ...], rows: list[Row]) -> None:
    """Fills Triton's cache, in a process of its own."""
    layer = Layer(*shape)
    for tile in rows:
        try:
            layer.run(tile)
        except Exception:  # a tile that the card refuses; told when it is timed
            continue


def compile_all(shape: tuple[int, ...], rows: list[Row], processes: int) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        for done in [pool.submit(compile_rows, shape, rows[n::processes]) for n in range(processes)]:
            done.result()


def unfit() -> str:
    """What this interpreter or machine lacks, or ""."""
    if why := lacking("torch", "triton", "vllm"):
        return why
    import torch

    return "" if torch.cuda.is_available() else "torch finds no GPU here"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, least in (("experts", 64), ("width", 2048), ("expert-width", 768), ("top-k", 8), ("tokens", 40)):
        ask.add_argument(f"--{name}", type=count, default=least)
    ask.add_argument("--processes", type=count, default=8, help="that compile, each with the weights of a layer")
    ask.add_argument("--table", type=Path)
    given = ask.parse_args()
    if why := unfit():
        ask.exit(2, f"moe_tiles: {why}: run it with the interpreter of an engine for a GPU, on that GPU's machine\n")
    shape = (given.experts, given.width, given.expert_width, given.top_k, given.tokens)
    rows = candidates(given.tokens)
    compile_all(shape, rows, given.processes)
    layer = Layer(*shape)
    default = layer.default(given.tokens)
    right, took, left_out = layer.run(default), layer.microseconds(default), 0
    ratios: list[tuple[float, Row]] = []
    for tile in rows:
        try:
            wrong = (layer.run(tile) - right).abs().max() > 0.02 * right.abs().max()
            if wrong:
                raise ValueError("another result")
            ratios.append((took / layer.microseconds(tile), tile))
        except Exception as error:  # whatever Triton or the card has against a tile
            left_out += 1
            print(f"left out {words(tile)}: {type(error).__name__}: {str(error).splitlines()[0][:80]}")
    ratios.sort(key=lambda pair: -pair[0])
    best = ratios[0][1]
    turns = [layer.microseconds(default) / layer.microseconds(best) for _ in range(TURNS)]
    print(
        f"{len(rows)} tiles, {left_out} left out; vLLM's own: {words(default)}, {took:.1f} us for {given.tokens} tokens"
    )
    for ratio, tile in ratios[:8]:
        print(f"  {ratio:.3f}x  {words(tile)}")
    print(
        f"best against default, {TURNS} turns: {statistics.median(turns):.3f}x ({min(turns):.3f} to {max(turns):.3f})"
    )
    if given.table:
        held = {str(n): layer.default(n) for n in OTHER_BATCHES} | {str(given.tokens): best}
        given.table.write_text(json.dumps(dict(sorted(held.items(), key=lambda item: int(item[0]))), indent=1) + "\n")


def words(tile: Row) -> str:
    return (
        "x".join(str(tile[f"BLOCK_SIZE_{axis}"]) for axis in "MNK")
        + f", {tile['num_warps']} warps, {tile['num_stages']} stages"
    )


if __name__ == "__main__":
    main()
