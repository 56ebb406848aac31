"""What is to be seen of each kernel of inside/broken_kernels.py, and where the processes find their code."""

from __future__ import annotations

from pathlib import Path

from accuracy_gate.numerics.launch import Kernel

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "kernels", ROOT / "tests" / "kernels" / "inside")

KERNELS = (
    Kernel("add_rms_norm", "nightgate_kernels.add_rms_norm:add_rms_norm"),
    Kernel("w4a16_linear", "nightgate_kernels.w4a16_linear:w4a16_linear"),
    Kernel("w4a16_zeros", "nightgate_kernels.w4a16_linear:w4a16_linear"),
)

# Right, each in another way; they must pass. The faults below are `honest` with one thing wrong.
HONEST = ("honest", "other_order", "rounds_the_sum", "w4a16_by_group", "w4a16_rounded_weights")

# Fault -> the check that is to catch it.
FAULTS = {
    "one_tile_short": "unwritten",
    "float16_sums": "values",
    "w4a16_float16_sums": "values",
    "one_row_too_many": "outside",
    "ignores_the_stride": "finite",  # what lies between the rows is poison, so it reads NaN
    "tail_unwritten": "unwritten",
    "remembers_results": "stale",
    "remembers_weights": "values",
    "size_set_by_host_code": "replay",
    "batch_wide_scale": "replay",
    "no_epsilon": "values",
    "scaled_a_little": "values",
    "truncates": "values",
    "writes_its_input": "inputs",
    "not_repeatable": "repeat",
    "needs_columns_in_eights": "raises",
}
# Last in a process, because it is the process's last.
KILLER = "kills_the_process"


def broken(name: str) -> Kernel:
    return Kernel("w4a16_linear" if name.startswith("w4a16") else "add_rms_norm", f"broken_kernels:{name}")
