"""The machine and the work."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from contracts.base import Frozen


class Partition(Frozen):
    """How an AMD card is divided. One that is several devices to the runtimes is as many Cards at one PCI address."""

    number: int  # of this part, from 0
    of: int  # parts at this PCI address; 1: the card is whole
    compute: str | None = None  # "SPX", "DPX", "QPX", "CPX", as the driver writes it
    memory: str | None = None  # "NPS1", "NPS4"


class Card(Frozen):
    """One accelerator, or the CPU standing in for one. What names it, best first: uuid, PCI address (and part), index.
    Ledgers from before these were kept have None there."""

    arch: str  # "gfx906", "gfx950", "sm_90", "x86_64"
    kind: Literal["amd", "nvidia", "cpu"]
    name: str
    memory_bytes: int
    compute_units: int  # CUs, SMs, or CPU cores this process may use
    pci_address: str | None = None
    wavefront: int | None = None
    source: str  # where this was read: "/proc/cpuinfo", "KFD topology", "NVML"
    uuid: str | None = None  # "GPU-...", "MIG-...", as the maker's visible-device variables take it; None: it has none
    driver: str | None = None  # the kernel's driver that has it: "amdgpu", "hydcu", "nvidia"
    index: int | None = None  # its place as the maker's runtime counts when nothing is hidden; may change at a reboot
    node: int | None = None  # of the KFD topology
    render_minor: int | None = None  # /dev/dri/renderD<this>
    partition: Partition | None = None

    @property
    def place(self) -> str | None:
        """What a night file's engine.card may say: "0000:03:00.0", and "0000:03:00.0#2" for a part of a card."""
        if self.pci_address is None or self.partition is None or self.partition.of == 1:
            return self.pci_address
        return f"{self.pci_address}#{self.partition.number}"


class Rate(Frozen):
    """A rate of work that was measured: the median over `repeats` samples, and their extremes."""

    value: float = Field(gt=0)
    lowest: float = Field(gt=0)
    highest: float = Field(gt=0)
    repeats: int = Field(ge=1)


class MeasuredSheet(Frozen):
    """What a short test on tonight's own card reached, in the engine's interpreter. Not peaks: what a plain copy and
    the installed libraries' products came to."""

    arch: str
    card: str  # the name and, where known, the PCI address
    copy_gb_s: Rate  # bytes read plus bytes written, in 10^9 a second
    matmul_tflops: dict[str, Rate] = {}  # "fp32", "fp16", "bf16"
    how: str
    versions: dict[str, str | None] = {}
    at: str  # UTC, ISO 8601


class Limit(Frozen):
    """One line of a service objective: tpot_ms_p95 at most 60, or at most 2.5 times what tonight's baseline has.
    The second is for nights that run on many machines; judge/objective.py turns it into the first."""

    metric: str
    at_most: float | None = None
    times_baseline: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def one_kind_of_limit(self) -> Limit:
        if (self.at_most is None) == (self.times_baseline is None):
            raise ValueError("give either at_most (in the metric's unit) or times_baseline, not both")
        return self


class Objective(Frozen):
    """What to improve, and what must hold while it improves."""

    metric: str = "output_tokens_per_s"
    limits: tuple[Limit, ...] = ()


class Workload(Frozen):
    """Prompts, lengths and arrivals. `concurrency` makes it a closed loop, `rate_per_s` an open (Poisson) one."""

    name: str
    concurrency: int | None = Field(None, ge=1)
    rate_per_s: float | None = Field(None, gt=0)
    requests: int = Field(ge=1)  # in the measured window
    warmup_requests: int = Field(ge=0)
    input_tokens: tuple[int, int]  # uniform, inclusive
    output_tokens: tuple[int, int]  # uniform, inclusive; generation ignores EOS so that both arms do equal work
    shared_prefix_tokens: int = Field(0, ge=0)
    seed: int = 0
    objective: Objective = Objective()

    @model_validator(mode="after")
    def one_kind_of_arrival(self) -> Workload:
        if (self.concurrency is None) == (self.rate_per_s is None):
            raise ValueError("give either concurrency (closed loop) or rate_per_s (open loop), not both")
        for name, (low, high) in (("input_tokens", self.input_tokens), ("output_tokens", self.output_tokens)):
            if not 1 <= low <= high:
                raise ValueError(f"{name} must be [low, high] with 1 <= low <= high")
        return self

    @property
    def peak_tokens(self) -> int:
        """The longest sequence that one request can become."""
        return self.shared_prefix_tokens + self.input_tokens[1] + self.output_tokens[1]
