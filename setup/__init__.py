"""The set-up room: makes the loop's environment, the CPU engine's environment and the small model, once.

Kept to syntax that any Python 3 reads, so that a Python too old for the rest is told so in one line.
"""

import sys

OLDEST = (3, 11)


def python_problem(version: tuple) -> str:
    """One line that says why this Python will not do, with the fix; empty when it will."""
    if tuple(version[:2]) >= OLDEST:
        return ""
    return (
        "error: nightgate needs Python 3.11 or newer and this is Python {}.{}: install a newer one and name it, "
        "as in make setup PYTHON=python3.11".format(*version[:2])
    )


_PROBLEM = python_problem(sys.version_info)
if _PROBLEM:
    sys.exit(_PROBLEM)
