"""A source patch from its diff to what is judged of it: laid over a toy package that is really installed, run by its
own interpreter with the watcher in it, once without the patch and once with it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agents.tuning.placing import place
from agents.tuning.probes import ArmSeen, judge_path, probe_for
from contracts import Change, EngineSpec, Lever, PathEvidence
from engine.own_plugins import EVIDENCE, SWITCH
from tests.agents.examples import KNOBS
from tests.agents.toy_package import Toy, install

KEY = "toy/x"
STEPS = """\
from functools import lru_cache

SIZE = 4


@lru_cache
def step(n):
    return n + 1


def idle(n):
    return n + 2


@jit
def kernel(out):
    return out
""".replace("@jit", "def jit(f): return f\n\n\n@jit")
HEAD = "--- a/toy/steps.py\n+++ b/toy/steps.py\n"
STEP = "@@ -8 +8 @@\n-    return n + 1\n+    return 1 + n\n"
IDLE = "@@ -12 +12 @@\n-    return n + 2\n+    return 2 + n\n"
SIZE = "@@ -3 +3 @@\n-SIZE = 4\n+SIZE = 8\n"
KERNEL = "@@ -20 +20 @@\n-    return out\n+    return -out\n"
COMMENT = "@@ -4,0 +5 @@\n+# A comment.\n"
OTHER = "--- /dev/null\n+++ b/toy/kernels.hip\n@@ -0,0 +1 @@\n+int x;\n"
WORK = "from toy.steps import step; assert step(1) == step(1) == 2"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy = install(tmp_path_factory.mktemp("installed"))
    (toy.package / "steps.py").write_text(STEPS)
    return toy


def log_of(toy: Toy, folder: Path, patches: dict[str, str], work: str = WORK) -> str:
    """What an engine would write; only its work is made up."""
    placement = place(EngineSpec(python=toy.python, model="m", overlay={Lever.SOURCE_PATCH: dict(patches)}), folder)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    paths = {"PYTHONPATH": os.pathsep.join((*placement.python_path, str(EVIDENCE)))}
    code = f"import nightgate_evidence; nightgate_evidence.register()\n{work}"
    done = subprocess.run([toy.python, "-c", code], env={**kept, **SWITCH, **placement.env, **paths}, cwd="/",
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0 and "problem" not in done.stderr, done.stderr
    return done.stderr


def judged(before: str | None, after: str | None, a: str, b: str) -> PathEvidence:
    change = Change(lever=Lever.SOURCE_PATCH, key=KEY, before=before, after=after)
    return judge_path(change, probe_for(change, KNOBS), ArmSeen(log=a), ArmSeen(log=b))


def tried(toy: Toy, folder: Path, patch: str, work: str = WORK) -> PathEvidence:
    a, b = log_of(toy, folder / "a", {}, work), log_of(toy, folder / "b", {KEY: patch}, work)
    return judged(None, patch, a, b)


def test_a_patched_function_that_the_work_calls(toy: Toy, tmp_path: Path) -> None:
    proof = tried(toy, tmp_path, HEAD + STEP + IDLE)
    assert proof.outcome == "proven"
    assert proof.reason == ("arm B imported toy/steps.py as patched, arm A did not; step called; not called: idle")
    assert proof.b["functions"] == {"toy/steps.py": {"step": "called", "idle": "not called"}} and proof.a == {}
    assert json.loads(proof.model_dump_json())["b"] == proof.b  # as the ledger has it


def test_a_patched_function_that_nobody_calls_is_not_in_use(toy: Toy, tmp_path: Path) -> None:
    proof = tried(toy, tmp_path, HEAD + IDLE)
    assert (proof.outcome, proof.reason) == (
        "absent",
        "imported, and idle was never called under the workload "
        "(arm B imported toy/steps.py as patched, arm A did not)",
    )
    two = tried(toy, tmp_path, HEAD + STEP + IDLE, "import toy.steps")
    assert two.outcome == "absent" and two.reason.startswith("imported, and none of step, idle was called")


@pytest.mark.parametrize(
    ("patch", "outcome", "why"),
    [
        (HEAD + SIZE, "proven", "; it changes code outside of functions, which the import ran"),
        (HEAD + SIZE + IDLE, "proven", "; it changes code outside of functions, which the import ran"),
        (HEAD + KERNEL, "proven", "; whether it ran cannot be seen of kernel"),
        (HEAD + IDLE + OTHER, "proven", "; whether it ran cannot be seen; not called: idle"),
        (HEAD + COMMENT, "absent", "imported, and the patch changes only comments and layout"),
    ],
)
def test_what_the_import_shows_and_what_it_does_not(
    toy: Toy, tmp_path: Path, patch: str, outcome: str, why: str
) -> None:
    proof = tried(toy, tmp_path, patch)
    assert proof.outcome == outcome and why in proof.reason


def test_another_patch_of_the_same_file_is_not_this_ones_evidence(toy: Toy, tmp_path: Path) -> None:
    """The incumbent holds a patch of `step`, which runs in both arms; this one changes `idle`."""
    a = log_of(toy, tmp_path / "a", {"toy/earlier": HEAD + STEP})
    b = log_of(toy, tmp_path / "b", {"toy/earlier": HEAD + STEP, KEY: HEAD + IDLE})
    assert judged(None, HEAD + IDLE, a, b).outcome == "absent"
    used = log_of(toy, tmp_path / "b", {"toy/earlier": HEAD + STEP, KEY: HEAD + IDLE}, WORK + "\ntoy.steps.idle(1)"
                  .replace("toy.steps", "__import__('toy.steps').steps"))  # fmt: skip
    assert judged(None, HEAD + IDLE, a, used).outcome == "proven"


def test_a_patch_that_is_taken_out_again_ran_in_the_incumbent(toy: Toy, tmp_path: Path) -> None:
    without = log_of(toy, tmp_path / "without", {})
    assert judged(HEAD + STEP, None, log_of(toy, tmp_path / "s", {KEY: HEAD + STEP}), without).outcome == "proven"
    assert judged(HEAD + IDLE, None, log_of(toy, tmp_path / "i", {KEY: HEAD + IDLE}), without).outcome == "absent"


def test_compiled_code_from_a_cache_leaves_it_open(toy: Toy, tmp_path: Path) -> None:
    """vLLM's line, of compilation/decorators.py."""
    a, b = log_of(toy, tmp_path / "a", {}), log_of(toy, tmp_path / "b", {KEY: HEAD + IDLE})
    proof = judged(None, HEAD + IDLE, a, b + "INFO Directly load AOT compilation from path /cache/x\n")
    assert proof.outcome == "unknown"
    assert proof.reason.startswith("compiled code came from a cache, and whether idle is in it cannot be seen")
