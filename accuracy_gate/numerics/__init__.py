"""Numerics of single kernels against float64 references, before any engine serves with them (docs/kernel_numerics.md).

check.py     the loop's side: kernels by name in, GateResults out
launch.py    the process in the engine's interpreter, and how it can end
summary.py   what that process said, by kernel and class of size
inside/      what runs there: the cases, the checks, graph replay
"""
