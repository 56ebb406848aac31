"""The stand-in engine of the tests, and how to name it. See engine.py for what it pretends and for its knobs."""

from pathlib import Path

from pydantic import JsonValue

from contracts import EngineSpec

PYTHON = str(Path(__file__).parent / "python")
ROCM_BIN = str(Path(__file__).parent / "rocm" / "bin")  # a stand-in rocprofv3


def standin_spec(env: dict[str, str] | None = None, **flags: JsonValue) -> EngineSpec:
    """A spec that runs the stand-in: `standin_spec({"STANDIN_CRASH_AFTER": "3"}, max_num_seqs=4)`."""
    return EngineSpec(
        python=PYTHON,
        model="stand-in",
        flags={name.replace("_", "-"): value for name, value in flags.items()},
        env=env or {},
    )
