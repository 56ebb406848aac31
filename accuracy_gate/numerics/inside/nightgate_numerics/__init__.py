"""The part of the numerics check that runs in the engine's interpreter: the standard library and torch, nothing else.

    case.py        what an operation is: inputs, float64 reference, plain implementation, sizes, views
    operations/    the operations that the gate knows
    arrange.py     views inside larger buffers, poison, and who touched what
    compare.py     errors in units of the output's last place, against a plain implementation's
    checks.py      one size and one view: three calls, every check
    replay.py      graphs captured for a few sizes, replayed with others
    __main__.py    reads a job, prints one JSON line per thing done

The folder that holds this package is put on PYTHONPATH, never the checkout (accuracy_gate/numerics/launch.py).
"""
