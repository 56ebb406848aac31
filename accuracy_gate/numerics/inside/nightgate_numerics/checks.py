"""One size, one view, one dtype: three calls of the kernel in the same memory.

    first    the numbers of call 0
    fresh    other numbers, of another magnitude, written into the same buffers, weights too: nothing may be kept of the
             first call, also not by address
    again    the same numbers once more, over other poison: bitwise the same result

After each call: nothing outside the outputs changed, no input changed, every output element written, and finite where
the reference is. Values are compared after the first and the fresh call.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from . import compare
from .arrange import Operand, place
from .case import Case, Item, Layout, Sizes, Tensors, Way

Kernel = Callable[..., object]

# The checks, in the order in which a call is looked at.
RAISES, OUTSIDE, INPUTS, UNWRITTEN, FINITE, STALE, VALUES, REPEAT, REPLAY = (
    "raises", "outside", "inputs", "unwritten", "finite", "stale", "values", "repeat", "replay",
)  # fmt: skip


class PlainIsOff(Exception):
    """The case itself is no measure; says nothing about the kernel."""


class DeviceIsLost(Exception):
    """The accelerator refuses every further call in this process."""


@dataclass
class Seen:
    """What one item (or one replay) showed. `findings` are (check, words); empty: nothing wrong."""

    findings: list[tuple[str, str]] = field(default_factory=list)
    calls: int = 0
    rms_ratio: float = 0.0  # largest over outputs: kernel's rms over the plain implementation's, at least one rounding
    largest: float = 0.0  # ulps
    plain_largest: float = 0.0
    mean: float = 0.0  # ulps, the one furthest from 0 of the outputs with MEAN_TOLD elements or more


@dataclass(frozen=True)
class Memory:
    """The operands of one item. An output that overwrites an input is the same operand."""

    inputs: dict[str, Operand]
    outputs: dict[str, Operand]

    @property
    def views(self) -> Tensors:
        return {name: operand.view for name, operand in (self.inputs | self.outputs).items()}

    @property
    def overwritten(self) -> set[int]:
        return {id(operand) for operand in self.inputs.values()} & {id(operand) for operand in self.outputs.values()}


def lay_out(case: Case, layout: Layout, dtype: str, sizes: Sizes, tensors: Tensors, device: torch.device) -> Memory:
    """Poisoned memory for operands of these sizes; `tensors` give the inputs' shapes."""
    inputs = {
        name: place(name, tuple(tensor.shape), tensor.dtype, layout.pad(name, tensor.dim()), device)
        for name, tensor in tensors.items()
    }
    outputs: dict[str, Operand] = {}
    for name, (shape, kind) in case.outputs(sizes, getattr(torch, dtype)).items():
        over = layout.alias.get(name)
        outputs[name] = inputs[over] if over else place(name, shape, kind, layout.pad(name, len(shape)), device)
    return Memory(inputs, outputs)


def numbers(case: Case, dtype: str, sizes: Sizes, seed: int, call: int) -> Tensors:
    """The contiguous inputs of one call, on the CPU: the same numbers on every machine."""
    name = f"{case.name} {dtype} {sorted(sizes.items())} {call}"
    generator = torch.Generator().manual_seed(seed * 1_000_003 + zlib.crc32(name.encode()))
    return case.inputs(sizes, getattr(torch, dtype), generator, call)


def attempt(seen: Seen, what: str, kernel: Kernel, case: Case, views: Tensors, sizes: Sizes) -> bool:
    """Calls the kernel and waits for the device. False: it raised, which is noted. Raises DeviceIsLost."""
    seen.calls += 1
    try:
        kernel(**views, **case.scalars(sizes))
        wait(views)
    except Exception as problem:  # whatever a kernel raises is a finding
        lines = str(problem).strip().splitlines() or [""]
        seen.findings.append((RAISES, f"{what}: {type(problem).__name__}: {lines[0][:200]}"))
        if any(word in str(problem) for word in ("CUDA error", "HIP error", "hipError")):
            raise DeviceIsLost(seen.findings[-1][1]) from problem
        return False
    return True


def wait(views: Tensors) -> None:
    if any(view.is_cuda for view in views.values()):
        torch.cuda.synchronize()


def touched(seen: Seen, what: str, memory: Memory) -> None:
    """Notes what the last call changed and should not have, and what it left unwritten."""
    for name, operand in memory.inputs.items():
        if id(operand) not in memory.overwritten and (words := operand.changed(view_may=False)):
            seen.findings.append((INPUTS, f"{what}: wrote into its input {name}: {words}"))
    for operand in memory.outputs.values():
        if words := operand.changed(view_may=True):
            seen.findings.append((OUTSIDE, f"{what}: wrote outside its output: {words}"))
        if id(operand) not in memory.overwritten and (words := operand.unwritten()):
            seen.findings.append((UNWRITTEN, f"{what}: {words}"))


def values(seen: Seen, what: str, case: Case, results: Tensors, tensors: Tensors, sizes: Sizes) -> bool:
    """Notes what is wrong with these results of the inputs `tensors` (same device), by the case's first way where they
    agree with none. False: something is. Raises PlainIsOff."""
    tries = [_agrees(what, way, results, tensors, sizes) for way in case.ways[:1]]
    while tries[-1].findings and len(tries) < len(case.ways):
        tries.append(_agrees(what, case.ways[len(tries)], results, tensors, sizes))
    told = tries[0] if tries[-1].findings else tries[-1]
    seen.findings += told.findings
    keep_worst(seen, told)
    return not told.findings


def _agrees(what: str, way: Way, results: Tensors, tensors: Tensors, sizes: Sizes) -> Seen:
    found = Seen()
    exact, plain = way.reference(tensors, sizes), way.plain(tensors, sizes)
    least = way.size(tensors, sizes) if way.size else {}
    for name, result in results.items():
        finite = torch.isfinite(result) | ~torch.isfinite(exact[name].to(result.dtype))
        if not bool(finite.all()):
            at = ", ".join(map(str, (~finite).nonzero()[0].tolist()))
            bad = int((~finite).sum())
            found.findings.append((FINITE, f"{what}: {name}: {bad} of {result.numel()} not finite, first [{at}]"))
            continue
        ours = compare.error(result, exact[name], least.get(name))
        theirs = compare.error(plain[name], exact[name], least.get(name))
        if words := compare.bad_plain(theirs):
            raise PlainIsOff(f"{what}: {name}: {words}")
        if words := compare.judge(ours, theirs):
            found.findings.append((VALUES, f"{what}: {name}: {words}"))
        told = Seen(largest=ours.largest, plain_largest=theirs.largest)
        if ours.elements >= compare.FEWEST:
            told.rms_ratio = ours.rms / max(theirs.rms, compare.ONE_ROUNDING)
        if ours.elements >= compare.MEAN_TOLD:
            told.mean = ours.mean
        keep_worst(found, told)
    return found


def keep_worst(seen: Seen, other: Seen) -> None:
    """The larger errors of the two, into `seen`."""
    seen.rms_ratio = max(seen.rms_ratio, other.rms_ratio)
    seen.mean = max(seen.mean, other.mean, key=abs)
    if other.largest >= seen.largest:
        seen.largest, seen.plain_largest = other.largest, other.plain_largest


def examine(case: Case, kernel: Kernel, item: Item, device: torch.device, seed: int) -> Seen:
    """Raises PlainIsOff or DeviceIsLost; anything else that goes wrong is a finding."""
    seen = Seen()
    sizes = item.sizes
    memory: Memory | None = None
    kept: list[Tensors] = []
    for what, call, poison in (("first call", 0, 0), ("fresh inputs", 1, 1), ("same inputs again", 1, 0)):
        tensors = numbers(case, item.dtype, sizes, seed, call)
        if memory is None:
            memory = lay_out(case, item.layout, item.dtype, sizes, tensors, device)
        for operand in memory.outputs.values():
            operand.lay_poison(poison)
        for name, operand in memory.inputs.items():
            operand.lay_poison(1 - poison)  # not the outputs': a NaN's bits may travel from input to output
            operand.view.copy_(tensors[name])
        for operand in (*memory.inputs.values(), *memory.outputs.values()):
            operand.remember()
        if not attempt(seen, what, kernel, case, memory.views, sizes):
            break
        touched(seen, what, memory)
        results = {name: _kept(operand.view) for name, operand in memory.outputs.items()}
        kept.append(results)
        if any(check in (UNWRITTEN, OUTSIDE) for check, _ in seen.findings):
            break
        if call == 1 and poison == 0:
            _repeats(seen, kept)
        elif not values(seen, what, case, results, {n: t.to(device) for n, t in tensors.items()}, sizes):
            if call == 1 and all(_same(results[name], kept[0][name]) for name in results):
                seen.findings[:] = [(STALE, f"{what}: gave the first call's results again")]
            break
    return seen


def _kept(view: torch.Tensor) -> torch.Tensor:
    return view.clone(memory_format=torch.contiguous_format)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.equal(one.view(torch.uint8), other.view(torch.uint8)))


def _repeats(seen: Seen, kept: list[Tensors]) -> None:
    for name, result in kept[-1].items():
        if not _same(result, kept[-2][name]):
            apart = int((result != kept[-2][name]).sum())
            seen.findings.append((REPEAT, f"same inputs again: {name}: {apart} of {result.numel()} elements differ"))
