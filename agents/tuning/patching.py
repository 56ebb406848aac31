"""Patches on top of the files of one distribution: git does it, in a scratch folder, and nothing installed is touched.

git apply looks for a hunk's lines nearby when they are not where the hunk says. Here that is refused before
(patch.misfit): lines that have moved belong to another version than the patch's author looked at.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from agents.tuning.patch import FilePatch, PatchProblem, misfit, read_patch, render
from agents.tuning.placed import PlacementError
from cards.ask import NoAnswer, ask

# Compiles the sources on standard input, {name to show: hex}, and answers with what is wrong with the first that fails.
SYNTAX = """
import json, sys
def fault(name, source):
    try: compile(bytes.fromhex(source), name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return f"{name}: {getattr(error, 'msg', None) or error} (line {getattr(error, 'lineno', '?')})"
answer(next(filter(None, (fault(*one) for one in json.load(sys.stdin).items())), None))
"""


def patched(package: Path, replaced: Mapping[str, bytes], patches: Iterable[tuple[str, str]]) -> dict[str, bytes]:
    """`replaced` (path in the package -> content) and the files that `patches` change, each patch on top of the ones
    before it. `patches` are (name, unified diff). Raises PlacementError with the first hunk that does not fit."""
    files = dict(replaced)
    for name, text in patches:
        where = f"patch {package.name}/{name}"
        try:
            parts = read_patch(text, package.name)
        except PatchProblem as problem:
            raise PlacementError(f"{where} {problem}") from None
        before = {part.path: _before(part, package, files, where) for part in parts}
        made = _apply(parts, before, package.name, where)
        if all(made[path] == content for path, content in before.items()):
            raise PlacementError(f"{where} changes nothing: its lines are the installed ones; take it out")
        files |= made
    return files


def syntax_problem(python: str, files: Mapping[str, bytes]) -> str | None:
    """What the engine's own Python says of the first of these sources that it cannot compile, in one line, or None."""
    sources = {name: content.hex() for name, content in sorted(files.items()) if name.endswith(".py")}
    if not sources:
        return None
    try:
        wrong: str | None = ask(python, SYNTAX, given=sources)
    except NoAnswer as no:
        raise PlacementError(str(no)) from None
    return wrong


def _before(part: FilePatch, package: Path, files: Mapping[str, bytes], where: str) -> bytes | None:
    """The content that the patch starts from; None for a file that it adds."""
    name = f"{package.name}/{part.path}"
    there = files.get(part.path)
    if there is None:
        try:
            there = (package / part.path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            there = None
        except OSError as error:
            raise PlacementError(f"{where}: {name} cannot be read ({error.strerror})") from None
    if part.new:
        if there is not None:
            raise PlacementError(f"{where} adds {name}, which is installed already: write it as a change to that file")
        return None
    if there is None:
        raise PlacementError(f"{where} changes {name}, which is not installed: write it for the installed version")
    wrong = misfit(part, there.decode("utf-8", "surrogateescape"))
    if wrong:
        raise PlacementError(f"{where}, {name}: {wrong}; write it again for the installed version")
    return there


def _apply(
    parts: tuple[FilePatch, ...], before: Mapping[str, bytes | None], distribution: str, where: str
) -> dict[str, bytes]:
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "TMPDIR", "LD_LIBRARY_PATH")}
    with tempfile.TemporaryDirectory(prefix="nightgate-patch-") as scratch:
        top = Path(scratch).resolve()
        environment = kept | {
            "HOME": str(top), "XDG_CONFIG_HOME": str(top), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
            "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": str(top.parent),
        }  # fmt: skip
        for path, content in before.items():
            (top / distribution / path).parent.mkdir(parents=True, exist_ok=True)
            if content is not None:
                (top / distribution / path).write_bytes(content)
        try:
            done = subprocess.run(
                ["git", "apply", "-p1", "--whitespace=nowarn", "--unidiff-zero", "-"],
                input=render(parts, distribution).encode(), cwd=top, env=environment,
                capture_output=True, timeout=60, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise PlacementError("git is not installed; source patches need it (apt-get install git)") from None
        except subprocess.TimeoutExpired:
            raise PlacementError(f"{where}: git apply did not end within 60 s; is the disk alive?") from None
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            reason = said[0].removeprefix("error: ") if said else "no reason given"
            raise PlacementError(f"{where} does not apply ({reason}): write it again for the installed version")
        return {part.path: (top / distribution / part.path).read_bytes() for part in parts}
