"""Kernels for cards that nobody tunes for. Importing this package imports neither torch nor Triton.

Each kernel has a file of its own: the Triton code, a callable that checks its arguments, and EDGES, the sizes at which
it changes its path (accuracy_gate/numerics tries each of them and one step either side). The tiles of all are in
tables.py, where a night may change a row. Which kernels serve inside vLLM is said there too: none unless asked for.
Nothing assumes how many lanes a warp has: 32 on NVIDIA, 64 on gfx906 and gfx950.

Arguments of Triton functions are annotated tl.tensor or tl.constexpr: the compiler (3.9.0) evaluates annotations in the
kernel's own scope, where typing.Any is an error; its interpreter does not, so only a compilation shows it.
"""
