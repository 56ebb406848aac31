"""Sets everything up, once: the loop's environment, the small model, and an engine.

    python3 -m setup.install

Needs only the standard library. Every step is remembered by the content of what it is made from, so a second call
takes no time, a changed lock file redoes its step alone, and an interrupted step is done again.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from setup.build import build_cpu_engine, build_loop, build_model
from setup.commands import Progress, SetupError
from setup.engine_choice import EngineChoiceError, choose_engine
from setup.layout import Layout, Step, choice_step, cpu_engine_step, loop_step, model_step
from setup.prerequisites import Severity, look_around, problems
from setup.stamps import write_whole

ROOT = Path(__file__).resolve().parent.parent

Builder = Callable[[Layout, Progress], None]


def wants_cpu_engine(at: Layout, progress: Progress) -> bool:
    """Decide who runs the engine and write it down. Raises EngineChoiceError for a named Python without vllm."""
    own = str(at.cpu_engine / "bin" / "python")
    step = choice_step(at)
    if not step.is_done(at):
        choice = choose_engine(os.environ, sys.executable)
        if choice.warning:
            print(f"warning: {choice.warning}", file=sys.stderr)
        progress.say(f"engine: {choice.python or 'the CPU build of vLLM'} ({choice.reason})")
        at.stamps.clear(step.name)
        write_whole(at.engine_python, (choice.python or own) + "\n")
        at.stamps.write(step.name, step.key)
    return at.engine_python.read_text(encoding="utf-8").strip() == own


def steps_left(at: Layout, with_cpu_engine: bool) -> list[tuple[str, Step, Builder]]:
    """What is still to be made, in order: the model's conversion runs in the loop's environment."""
    plan: list[tuple[str, Step, Builder]] = [
        ("the loop's environment (about 0.6 GB)", loop_step(at), build_loop),
        ("the small model (about 0.3 GB)", model_step(at), build_model),
    ]
    if with_cpu_engine:
        plan.append(
            (
                "the CPU engine (3.4 GB, or 6.2 GB with torch's default build)",
                cpu_engine_step(at),
                build_cpu_engine,
            )
        )
    return [entry for entry in plan if not entry[1].is_done(at)]


def set_up(at: Layout, progress: Progress) -> None:
    """Make what is missing. Raises SetupError or EngineChoiceError, each with its fix."""
    left = steps_left(at, wants_cpu_engine(at, progress))
    if not left:
        return
    names = {step.name for _, step, _ in left}
    found = problems(
        look_around(at.root),
        builds_environment=bool(names & {"loop", "engine"}),
        builds_cpu_engine="engine" in names,
    )
    for problem in found:
        print(problem.line(), file=sys.stderr)
    if any(problem.severity is Severity.ERROR for problem in found):
        raise SetupError("nothing was changed; solve the above, then run make setup again")
    for number, (title, step, build) in enumerate(left, start=1):
        progress.say(f"{number} of {len(left)}: {title}")
        at.stamps.clear(step.name)
        build(at, progress)
        at.stamps.write(step.name, step.key)
    progress.say("set-up is complete")


@contextmanager
def one_at_a_time(at: Layout, progress: Progress) -> Iterator[None]:
    """Two set-ups of one checkout would undo each other's work: the second waits for the first."""
    at.stamps.folder.mkdir(exist_ok=True)
    with (at.stamps.folder / "lock").open("w") as handle:
        os.set_inheritable(handle.fileno(), True)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another set-up of this checkout is running: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def stop(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    at, progress = Layout(ROOT), Progress()
    # A plain kill takes the same way out as Ctrl-C: the running child is ended too.
    signal.signal(signal.SIGTERM, stop)
    try:
        with one_at_a_time(at, progress):
            set_up(at, progress)
    except (SetupError, EngineChoiceError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: run make setup again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
