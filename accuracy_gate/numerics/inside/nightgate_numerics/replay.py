"""Graphs as vLLM uses them: captured once for a few token counts, then replayed with other inputs and other counts.

Static buffers hold the largest count. For each captured count c (largest first, as vLLM captures) the kernel is called
on the first c rows of them, once to warm up and once under capture. A step with m tokens writes m fresh rows, replays
the graph of the smallest c >= m, and reads m rows back; rows m to c are padding, poisoned here so that a kernel that
lets them into a result shows it. Counts change from step to step, and now and then the kernel is called outside any
graph with more tokens than any graph has, as a prefill would. The weights stay.

What a capture is depends on the machine:

    "CUDA graph"   a real one (on AMD, HIP's): host code runs at capture only; graphs share one memory pool
    "op trace"     on a CPU: the torch operations that the kernel issued, recorded by make_fx and run again on the same
                   memory. Host code runs at capture only, as in a graph, so state that host code keeps is frozen alike.
                   It knows nothing of streams, memory pools, or kernels that are no torch operations
    "same memory"  on a CPU, where a trace recorded nothing (a Triton kernel in its interpreter, a foreign C call): the
                   kernel is called again on the static buffers. Host code does run: faults of capture cannot show
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from .arrange import Operand
from .case import Case, Layout, Level, Sizes, Tensors
from .checks import (
    RAISES,
    REPEAT,
    REPLAY,
    DeviceIsLost,
    Kernel,
    Memory,
    Seen,
    attempt,
    keep_worst,
    lay_out,
    numbers,
    values,
    wait,
)

CUDA_GRAPH, OP_TRACE, SAME_MEMORY = "CUDA graph", "op trace", "same memory"
EAGER_EVERY = 4  # steps between two calls outside any graph


@dataclass(frozen=True)
class Replayed:
    mode: str
    seen: Seen
    captures: int
    steps: int


def steps(captures: tuple[int, ...], seed: int) -> list[int]:
    """Token counts in the order of replay: each captured count, one less, and one more than the count below it, so
    that every graph runs full and padded; shuffled, so that a step follows other sizes. Pure."""
    counts: list[int] = []
    for below, count in zip((0, *captures), captures, strict=False):
        counts += sorted({count, max(count - 1, below + 1), below + 1})
    random.Random(seed).shuffle(counts)
    return counts


def replayed(case: Case, kernel: Kernel, level: Level, device: torch.device, seed: int, traceable: bool) -> Replayed:
    """Replays until something is wrong. `traceable`: False where it is known that no trace would record the kernel.
    Raises PlainIsOff or DeviceIsLost."""
    mode = CUDA_GRAPH if device.type == "cuda" else OP_TRACE if traceable else SAME_MEMORY
    return _Replay(case, kernel, level, device, seed, mode).run()


class _Replay:
    def __init__(self, case: Case, kernel: Kernel, level: Level, device: torch.device, seed: int, mode: str) -> None:
        self.mode = mode
        self.case, self.kernel, self.device, self.seed = case, kernel, device, seed
        self.dtype = case.dtypes[0]
        self.base, self.captures = level.base, level.captures
        self.most = self.sizes(level.captures[-1])
        self.weights: Tensors = {}
        self.seen = Seen()
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.graphs: dict[int, Callable[[], object]] = {}

    def sizes(self, tokens: int) -> Sizes:
        return self.base | {self.case.tokens: tokens}

    def fresh(self, tokens: int, call: int) -> Tensors:
        """Numbers for a step, on the device; the weights are those of the first step."""
        made = numbers(self.case, self.dtype, self.sizes(tokens), self.seed, call)
        made = {name: tensor.to(self.device) for name, tensor in made.items()}
        return made | {name: self.weights.setdefault(name, made[name]) for name in self.case.weights}

    def run(self) -> Replayed:
        inputs = self.fresh(self.captures[-1], 0)
        memory = lay_out(self.case, Layout("static"), self.dtype, self.most, inputs, self.device)
        self.write(memory, inputs)
        done = 0
        if self.capture(memory):
            before, first = "capture", None
            order = steps(self.captures, self.seed)
            for done, tokens in enumerate((*order, order[0]), 1):
                again = done > len(order)  # the first step once more: nothing may have drifted
                inputs = self.fresh(tokens, 1 if again else done)
                result = self.step(memory, tokens, inputs, f"{tokens} tokens after {before}")
                if self.seen.findings:
                    break
                first = first or result
                if again and any(not torch.equal(result[name], first[name]) for name in result):
                    self.seen.findings.append((REPEAT, f"{tokens} tokens: the first step, replayed last, differs"))
                before = str(tokens)
                if done % EAGER_EVERY == 0 and not self.outside(self.captures[-1] + done):
                    break
        return Replayed(self.mode, self.seen, len(self.graphs), done)

    def write(self, memory: Memory, inputs: Tensors) -> None:
        """Into the static buffers; what follows the inputs' rows is left as it was."""
        for name, operand in memory.inputs.items():
            operand.view[: inputs[name].shape[0]].copy_(inputs[name])

    def views(self, memory: Memory, tokens: int) -> Tensors:
        """What the kernel gets when `tokens` rows are in use. Weights are whole."""
        return {n: view if n in self.case.weights else view[:tokens] for n, view in memory.views.items()}

    def capture(self, memory: Memory) -> bool:
        """False: the kernel raised, which is noted."""
        for count in reversed(self.captures):
            views, sizes = self.views(memory, count), self.sizes(count)
            if not attempt(self.seen, f"warm-up for {count} tokens", self.kernel, self.case, views, sizes):
                return False
            call = self.caller(sizes)
            if self.mode == CUDA_GRAPH:
                try:
                    self.graphs[count] = self.cuda_graph(call, views)
                except Exception as problem:  # whatever is raised under capture
                    said = (str(problem).strip().splitlines() or [""])[0][:200]
                    words = f"capture for {count} tokens: {type(problem).__name__}: {said}"
                    self.seen.findings.append((RAISES, words))
                    raise DeviceIsLost(words) from problem  # a broken capture leaves the stream unusable
            else:
                traced = trace(call, views) if self.mode == OP_TRACE else None
                if self.mode == OP_TRACE and not (traced and records(traced, memory)):
                    self.mode, traced = SAME_MEMORY, None
                    self.graphs.clear()
                    return self.capture(memory)
                self.graphs[count] = traced or partial(call, views)
            self.seen.calls += 1
        return True

    def caller(self, sizes: Sizes) -> Callable[[Tensors], object]:
        scalars = self.case.scalars(sizes)
        return lambda views: self.kernel(**views, **scalars)

    def cuda_graph(self, call: Callable[[Tensors], object], views: Tensors) -> Callable[[], object]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            call(views)
        return lambda: graph.replay()

    def step(self, memory: Memory, tokens: int, inputs: Tensors, what: str) -> Tensors:
        """One replay, checked."""
        count = min(c for c in self.captures if c >= tokens)
        for name, operand in memory.inputs.items():
            if name not in self.case.weights:
                operand.lay_poison(1)
        self.write(memory, inputs)
        for operand in memory.outputs.values():
            operand.lay_poison(0)
            operand.remember()
        what = f"{self.mode} of {count}, {what}"
        self.seen.calls += 1
        try:
            self.graphs[count]()
            wait(memory.views)
        except Exception as problem:  # whatever a replay raises is a finding
            said = (str(problem).strip().splitlines() or [""])[0][:200]
            self.seen.findings.append((REPLAY, f"{what}: {type(problem).__name__}: {said}"))
            if self.device.type == "cuda":
                raise DeviceIsLost(self.seen.findings[-1][1]) from problem
            return {}
        results = {name: operand.view[:tokens].clone() for name, operand in memory.outputs.items()}
        found: list[str] = [words for operand in memory.outputs.values() if (words := around(operand, count))]
        for name, operand in memory.outputs.items():
            left = operand.bits[operand.where][:tokens] == operand.poison
            if bool(left.any()):
                found.append(f"{name}: {int(left.sum())} of {left.numel()} elements never written")
        judged = Seen()
        if not found and not values(judged, what, self.case, results, inputs, self.sizes(tokens)):
            found = [words.removeprefix(f"{what}: ") for _, words in judged.findings]
        keep_worst(self.seen, judged)
        if found:
            again = "the same call outside a graph is " + ("right" if self.outside(tokens, inputs) else "wrong too")
            self.seen.findings.insert(0, (REPLAY, f"{what}: {found[0]}; {again}"))
        return results

    def outside(self, tokens: int, inputs: Tensors | None = None) -> bool:
        """The kernel outside any graph, in memory of its own. False: wrong, which is noted."""
        sizes, what = self.sizes(tokens), f"{tokens} tokens outside a graph"
        inputs = inputs or self.fresh(tokens, 1_000 + tokens)
        memory = lay_out(self.case, Layout("eager"), self.dtype, sizes, inputs, self.device)
        self.write(memory, inputs)
        if not attempt(self.seen, what, self.kernel, self.case, memory.views, sizes):
            return False
        results = {name: operand.view.clone() for name, operand in memory.outputs.items()}
        judged = Seen()
        right = values(judged, what, self.case, results, inputs, sizes)
        self.seen.findings += judged.findings
        return right


def around(operand: Operand, rows: int) -> str | None:
    """What was written beyond the first `rows` rows of an output, in words."""
    allowed = (slice(operand.where[0].start, operand.where[0].start + rows), *operand.where[1:])
    used = Operand(operand.name, operand.whole, operand.whole[allowed], allowed, last=operand.last)
    return used.changed(view_may=True)


def trace(call: Callable[[Tensors], object], views: Tensors) -> Callable[[], object] | None:
    """The torch operations of one call as something to run again on the same memory; None: cannot be traced."""
    from torch.fx.experimental.proxy_tensor import make_fx

    names = list(views)
    held = [views[name] for name in names]
    try:
        module = make_fx(lambda *tensors: call(dict(zip(names, tensors, strict=True))), tracing_mode="real")(*held)
    except Exception:  # whatever the kernel does that a trace cannot follow
        return None
    return lambda: module(*held)


def records(traced: Callable[[], object], memory: Memory) -> bool:
    """Did the trace record what writes the outputs?"""
    for operand in memory.outputs.values():
        operand.lay_poison(0)
    try:
        traced()
    except Exception:
        return False
    return any(bool((operand.view_bits != operand.poison).any()) for operand in memory.outputs.values())
