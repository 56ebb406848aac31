"""A unified diff as a source patch: what it may touch, and whether it fits a file's text. Pure.

One scope: files of one distribution, named by the folder that it has in site-packages (`vllm/v1/core/x.py`, with or
without git's a/ and b/). It changes text or adds a file; it deletes, renames and copies nothing, and no compiled file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from agents.tuning.placed import PlacementError

COMPILED = (".so", ".pyd", ".pyc", ".pyo", ".o", ".a", ".co", ".hsaco", ".cubin", ".dll", ".dylib")
_COUNT = "([0-9]{1,9})"
_HUNK = re.compile(rf"@@ -{_COUNT}(?:,{_COUNT})? \+{_COUNT}(?:,{_COUNT})? @@")
# Whole lines as git and diff write them: the message of a commit may begin a line with "rename the ..." or "copy ...".
_REFUSED = {
    re.compile(r"rename (from|to) \S"): "renames a file",
    re.compile(r"copy (from|to) \S"): "copies a file",
    re.compile(r"deleted file mode [0-9]"): "deletes a file",
    re.compile(r"old mode [0-9]"): "changes a file's mode",
    re.compile(r"GIT binary patch"): "is binary",
    re.compile(r"Binary files .* differ"): "is binary",
    re.compile(r"Only in [^:]+: \S"): "leaves out a file that is in one folder only (diff -N takes it in)",
}
_ALLOWED_MODES = ("100644", "100755")


class PatchProblem(PlacementError):
    """A text that is no patch, or none that is allowed. One line, without the patch's name."""


@dataclass(frozen=True)
class Hunk:
    number: int  # in its file, from 1
    start: int  # first line in the old text, from 1; for a hunk without old lines the line before it
    lines: tuple[str, ...]  # as in the patch: " context", "-old", "+new", "\\ No newline at end of file"

    @property
    def old(self) -> list[str]:
        return [line[1:] for line in self.lines if line[0] in " -"]


@dataclass(frozen=True)
class FilePatch:
    path: str  # relative to the distribution's folder, with /
    new: bool  # the file is not there yet
    hunks: tuple[Hunk, ...]


def read_patch(text: str, distribution: str) -> tuple[FilePatch, ...]:
    """The files that `text` changes, in its order. Raises PatchProblem."""
    if "\0" in text or not _is_text(text):
        raise PatchProblem("holds characters that no source file has; make it again with `git diff`")
    lines = text.split("\n")
    found: dict[str, FilePatch] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        for written, what in _REFUSED.items():
            if written.match(line):
                raise PatchProblem(f"{what}; a source patch changes the text of files or adds files")
        if line.startswith("new file mode") and line.split()[-1] not in _ALLOWED_MODES:
            raise PatchProblem("adds a link or a submodule; a source patch changes the text of files or adds files")
        if line.startswith("new file mode 100") and not _has_text(lines, at):
            raise PatchProblem("adds an empty file, which its lines do not tell; give it one line, like a comment")
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            path, new = _path(line[4:], lines[at + 1][4:], distribution)
            hunks, at = _hunks(lines, at + 2, path)
            if path in found:
                raise PatchProblem(f"names {distribution}/{path} twice; put its hunks together")
            if new and (len(hunks) != 1 or hunks[0].old):
                raise PatchProblem(f"adds {distribution}/{path}, but not with one hunk of new lines")
            found[path] = FilePatch(path=path, new=new, hunks=hunks)
        elif _HUNK.match(line):
            raise PatchProblem(f"has a hunk in line {at + 1} that belongs to no file; make it again with `git diff`")
        else:
            at += 1  # git's own lines, a commit's message
    if not found:
        raise PatchProblem("changes no file; give a unified diff, as `git diff` prints it")
    return tuple(found.values())


def render(files: Iterable[FilePatch], distribution: str) -> str:
    """The same patch in git's spelling, without anything that was not read."""
    parts = []
    for file in files:
        name = f"{distribution}/{file.path}"
        parts += [f"--- {'/dev/null' if file.new else f'a/{name}'}", f"+++ b/{name}"]
        for hunk in file.hunks:
            new = sum(line[0] in " +" for line in hunk.lines)
            parts += [f"@@ -{hunk.start},{len(hunk.old)} +{_new_start(file, hunk, new)},{new} @@", *hunk.lines]
    return "\n".join(parts) + "\n"


def misfit(file: FilePatch, text: str) -> str | None:
    """Why the first hunk that does not fit `text` does not, in one clause, or None. A hunk fits where it says, line by
    line: lines that have moved are another version's, and whoever wrote the patch has to look at it again."""
    lines = text.split("\n")
    ends, length = lines[-1] == "", len(lines) - (lines[-1] == "")  # with a line break? how many lines?
    for hunk in file.hunks:
        old = hunk.old
        which = f"hunk {hunk.number} of {len(file.hunks)} (line {hunk.start})"
        start = hunk.start - 1 if old else hunk.start
        if start > length:
            return f"{which} does not fit: the installed file ends at line {length}"
        if start >= 0 and lines[start : start + len(old)] == old:
            if (fault := _misfit_at_end(hunk, at_end=start + len(old) == length, ends=ends)) is not None:
                return f"{which} does not fit: {fault}"
            continue
        moved = [n + 1 for n in range(len(lines) - len(old) + 1) if lines[n : n + len(old)] == old]
        if moved:
            return f"{which} does not fit: its lines are at line {moved[0]} of the installed file"
        if [line.rstrip("\r") for line in lines[start : start + len(old)]] == [line.rstrip("\r") for line in old]:
            return f"{which} does not fit: its lines end in another way (CR LF, or LF alone) than the installed file's"
        differs = next((n for n, line in enumerate(old) if lines[start + n : start + n + 1] != [line]), 0)
        return f"{which} does not fit: line {start + differs + 1} of the installed file is another one"
    return None


def _misfit_at_end(hunk: Hunk, at_end: bool, ends: bool) -> str | None:
    """What git writes behind a line without a break: it is of the file's last line, and of an old one it says that the
    installed file has no break there."""
    for before, mark in zip(hunk.lines, hunk.lines[1:], strict=False):
        if not mark.startswith("\\"):
            continue
        if not at_end:
            return "it ends a file without a line break where the installed one goes on"
        if before[0] in " -" and ends:
            return "the installed file ends with a line break"
    return None


def _new_start(file: FilePatch, hunk: Hunk, new: int) -> int:
    """The hunk's first line in the new text: the old one moved by what earlier hunks added. Git counts from the line
    before where a side has no lines."""
    grown = sum(sum(line[0] == "+" for line in h.lines) - sum(line[0] == "-" for line in h.lines)
                for h in file.hunks if h.number < hunk.number)  # fmt: skip
    return hunk.start + grown + (not hunk.old) - (not new)


def _has_text(lines: list[str], at: int) -> bool:
    """Does the new file that line index `at` tells have a hunk? Git writes none for an empty one."""
    for line in lines[at + 1 :]:
        if line.startswith(("--- ", "GIT binary patch")):
            return True
        if line.startswith("diff "):
            return False
    return False


def _hunks(lines: list[str], at: int, path: str) -> tuple[tuple[Hunk, ...], int]:
    """The hunks from line index `at` on, and the index behind them."""
    found: list[Hunk] = []
    while at < len(lines) and (header := _HUNK.match(lines[at])):
        old, new = (1 if header[n] is None else int(header[n]) for n in (2, 4))
        body: list[str] = []
        at += 1
        while old > 0 or new > 0:
            line = lines[at] if at < len(lines) else "end"
            line = f" {line}" if line in ("", "\r") else line  # editors strip the blank of an empty context line
            old, new = old - (line[0] in " -"), new - (line[0] in " +")
            if line[0] not in " -+\\" or old < 0 or new < 0:
                raise PatchProblem(f"breaks off in hunk {len(found) + 1} of {path}; make it again with `git diff`")
            body.append(line)
            at += 1
        if at < len(lines) and lines[at].startswith("\\"):
            body.append(lines[at])
            at += 1
        found.append(Hunk(number=len(found) + 1, start=int(header[1]), lines=tuple(body)))
    if not found:
        raise PatchProblem(f"names {path} without a change to it")
    return tuple(found), at


def _path(old: str, new: str, distribution: str) -> tuple[str, bool]:
    """(path inside the distribution, is it new) of a file's two header lines."""
    before, after = (name.split("\t")[0].rstrip() for name in (old, new))
    if after == "/dev/null":
        raise PatchProblem(f"deletes {before}; a source patch changes the text of files or adds files")
    path = _inside(after, distribution)
    if before == "/dev/null":
        return path, True
    if _inside(before, distribution) != path:
        raise PatchProblem(f"renames {before} to {after}; a source patch changes the text of files or adds files")
    return path, False


def _inside(name: str, distribution: str) -> str:
    plain = name[2:] if name.startswith(("a/", "b/")) and not name.startswith(f"{distribution}/") else name
    top, _, path = plain.partition("/")
    parts = path.split("/")
    if top != distribution or not path:
        scope = f"one patch is for one distribution, and its paths are written {distribution}/..."
        raise PatchProblem(f"touches {name}, which is not in {distribution}; {scope}")
    if name.startswith('"') or any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise PatchProblem(f"names {name}, which is no plain path inside {distribution}")
    last = PurePosixPath(path)
    if "__pycache__" in parts or any(suffix in COMPILED for suffix in last.suffixes):
        raise PatchProblem(f"touches {name}, a compiled file; a source patch changes text only")
    return path


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
