"""Set-up: what it refuses and how it says so, what it remembers, which engine it takes, and what is committed."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from setup import python_problem
from setup.build import add_vllm_name
from setup.commands import Progress, doing_now, explain_pip_failure, run_logged
from setup.engine_choice import EngineChoiceError, choose_engine
from setup.install import steps_left
from setup.layout import PYTHON_VERSION, Layout, cpu_engine_step, loop_step, model_step
from setup.prerequisites import Machine, Severity, problems
from setup.stamps import Stamps, key_of

ROOT = Path(__file__).resolve().parent.parent
ROOM = ROOT / "setup"

GOOD = Machine(
    python=(3, 11), system="Linux", has_ensurepip=True, has_cpp_compiler=True, has_python_header=True, free_gb=50.0
)


def other(**changes: object) -> Machine:
    return Machine(**{**GOOD.__dict__, **changes})


# --- prerequisites ---------------------------------------------------------------------------------------------------


def test_a_fit_machine_has_no_problems() -> None:
    assert problems(GOOD, builds_environment=True, builds_cpu_engine=True) == ()


@pytest.mark.parametrize(
    ("machine", "severity", "says"),
    [
        (other(has_ensurepip=False), Severity.ERROR, "apt-get install python3-venv"),
        (other(free_gb=3.0), Severity.ERROR, "3.0 GB free here and set-up needs about 8 GB"),
        (other(system="Darwin"), Severity.ERROR, "NIGHTGATE_ENGINE_PYTHON"),
        (other(python=(3, 15)), Severity.ERROR, "no build for Python above 3.14"),
        (other(has_cpp_compiler=False), Severity.WARNING, "apt-get install g++"),
        (other(has_python_header=False), Severity.WARNING, "apt-get install python3-dev"),
    ],
)
def test_each_missing_thing_is_one_line_with_its_fix(machine: Machine, severity: Severity, says: str) -> None:
    (problem,) = problems(machine, builds_environment=True, builds_cpu_engine=True)
    assert problem.severity is severity
    assert says in problem.line()
    assert "\n" not in problem.line()


def test_a_users_own_engine_needs_neither_a_compiler_nor_much_disk() -> None:
    machine = other(free_gb=3.0, has_cpp_compiler=False, has_python_header=False, system="Darwin", python=(3, 15))
    assert problems(machine, builds_environment=True, builds_cpu_engine=False) == ()


def test_errors_come_before_warnings() -> None:
    found = problems(other(has_cpp_compiler=False, free_gb=1.0), builds_environment=True, builds_cpu_engine=True)
    assert [problem.severity for problem in found] == [Severity.ERROR, Severity.WARNING]


def test_an_old_python_is_told_so_in_one_line() -> None:
    assert python_problem((3, 11, 0)) == ""
    assert python_problem((3, 14, 1)) == ""
    assert "needs Python 3.11 or newer and this is Python 3.9" in python_problem((3, 9, 18))


def test_the_check_for_an_old_python_is_readable_by_one() -> None:
    """What runs before the check must parse on the Pythons that it refuses."""
    ast.parse((ROOM / "__init__.py").read_text(encoding="utf-8"), feature_version=(3, 6))


# --- what went wrong, in one line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("WARNING: Retrying ... NewConnectionError('...')\nERROR: No matching distribution found for a==1", "network"),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "pip cache purge"),
        ("ERROR: No matching distribution found for numba==0.65.0 (from -r x)", "no numba==0.65.0 for this Python"),
        ("something\nERROR: something odd\n", "pip failed: ERROR: something odd"),
        ("", "pip failed: it printed nothing"),
    ],
)
def test_a_failure_of_pip_is_explained(output: str, says: str) -> None:
    text = explain_pip_failure(output, Path("the.log"))
    assert says in text
    assert "\n" not in text


def test_progress_says_what_pip_is_at() -> None:
    assert doing_now("") == "working"
    assert doing_now("Collecting a==1\nWARNING: ignored") == "Collecting a==1"
    installing = "Downloading b.whl (1 MB)\nInstalling collected packages: a, b, c\n  Attempting uninstall: a\n"
    assert doing_now(installing) == "installing 3 packages"
    assert len(doing_now("Collecting " + "x" * 500)) == 90


def test_a_command_leaves_its_output_and_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "a.log"
    code = run_logged([sys.executable, "-c", "print('hello'); raise SystemExit(3)"], log, Progress(), "x")
    assert (code, log.read_text(encoding="utf-8")) == (3, "hello\n")


# --- stamps ----------------------------------------------------------------------------------------------------------


def test_a_stamp_holds_for_its_key_while_what_was_made_is_there(tmp_path: Path) -> None:
    stamps, made = Stamps(tmp_path / "stamps"), tmp_path / "made"
    assert not stamps.is_current("loop", "k1", made)
    stamps.write("loop", "k1")
    assert not stamps.is_current("loop", "k1", made)
    made.touch()
    assert stamps.is_current("loop", "k1", made)
    assert not stamps.is_current("loop", "k2", made)
    stamps.clear("loop")
    assert not stamps.is_current("loop", "k1", made)
    stamps.clear("loop")


def test_a_key_changes_with_content_and_with_where_parts_end(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text("a==1\n", encoding="utf-8")
    before = key_of(lock, "3.11")
    assert key_of(lock, "3.11") == before
    assert key_of("ab", "c") != key_of("a", "bc")
    lock.write_text("a==2\n", encoding="utf-8")
    assert key_of(lock, "3.11") != before


def a_checkout(root: Path) -> Layout:
    """A copy of the set-up room alone, with every step made and stamped."""
    shutil.copytree(ROOM, root / "setup", ignore=shutil.ignore_patterns("__pycache__"))
    at = Layout(root)
    for step in (loop_step(at), model_step(at), cpu_engine_step(at)):
        step.made.parent.mkdir(parents=True)
        step.made.touch()
        at.stamps.write(step.name, step.key)
    return at


def test_only_the_step_whose_source_changed_is_done_again(tmp_path: Path) -> None:
    at = a_checkout(tmp_path)
    assert steps_left(at, with_cpu_engine=True) == []
    (at.room / "engine-cpu.lock").write_text("torch==2.13.1\n", encoding="utf-8")
    assert [step.name for _, step, _ in steps_left(at, with_cpu_engine=True)] == ["engine"]
    assert steps_left(at, with_cpu_engine=False) == []
    (at.room / "model.sha256").write_text("0 model.safetensors\n", encoding="utf-8")
    assert [step.name for _, step, _ in steps_left(at, with_cpu_engine=False)] == ["model"]


def run_install(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NIGHTGATE_", "PIP_"))}
    return subprocess.run(
        [sys.executable, "-m", "setup.install"],
        cwd=root,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_finished_set_up_says_nothing_and_names_the_engine(tmp_path: Path) -> None:
    at = a_checkout(tmp_path)
    run_install(tmp_path)
    again = run_install(tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert at.engine_python.read_text(encoding="utf-8") == f"{at.cpu_engine}/bin/python\n"


@pytest.mark.whole_night  # too slow for make quick
def test_a_failed_step_is_one_line_and_stays_undone(tmp_path: Path) -> None:
    at = a_checkout(tmp_path)
    at.stamps.clear("loop")
    result = run_install(tmp_path, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    assert result.returncode == 1
    assert result.stderr.startswith("error: the registry has no ")
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert not loop_step(at).is_done(at)


# --- which engine ----------------------------------------------------------------------------------------------------


def yes(python: str) -> bool:
    return True


def no(python: str) -> bool:
    return False


def test_without_a_gpu_the_cpu_engine_is_used_and_nothing_is_tried(tmp_path: Path) -> None:
    def never(python: str) -> bool:
        raise AssertionError("importing vllm takes many seconds")

    assert choose_engine({}, "/usr/bin/python3", (tmp_path / "kfd",), never).python is None


def test_with_a_gpu_a_python_that_has_vllm_is_used_as_it_is(tmp_path: Path) -> None:
    device = tmp_path / "kfd"
    device.touch()
    choice = choose_engine({}, "/usr/bin/python3", (tmp_path / "nvidia0", device), yes)
    assert choice.python == "/usr/bin/python3"
    assert str(device) in choice.reason
    assert not choice.warning


def test_with_a_gpu_and_no_vllm_the_user_is_told_what_to_set(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    choice = choose_engine({}, "/usr/bin/python3", (device,), no)
    assert choice.python is None
    assert "set NIGHTGATE_ENGINE_PYTHON" in choice.warning


def test_a_named_python_wins_and_keeps_its_link(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    choice = choose_engine({"NIGHTGATE_ENGINE_PYTHON": str(link)}, "/usr/bin/python3", (), yes)
    assert choice.python == str(link)


def test_a_named_python_that_will_not_do_is_refused() -> None:
    with pytest.raises(EngineChoiceError, match="is not a program"):
        choose_engine({"NIGHTGATE_ENGINE_PYTHON": "/no/such/python"}, "python3", (), yes)
    with pytest.raises(EngineChoiceError, match="cannot import vllm"):
        choose_engine({"NIGHTGATE_ENGINE_PYTHON": sys.executable}, "python3", (), no)


def test_the_cpu_engine_is_found_under_the_name_vllm(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / f"python{PYTHON_VERSION}" / "site-packages"
    packages.mkdir(parents=True)
    add_vllm_name(tmp_path, "0.32.0")
    add_vllm_name(tmp_path, "0.32.0")
    ask = "import importlib.metadata as m; print(m.version('vllm'))"
    seen = subprocess.run(
        [sys.executable, "-c", ask], env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "0.32.0+cpu"
