"""The night's overlay: a git repository whose HEAD is the incumbent. Keep is a commit, revert an exact restore.

engine.json holds what a night may change of an EngineSpec, one key a line, sorted: a commit's diff is the change. Rows
of tables and patches are files of their own beside it (overlay_files.py); keep commits them, revert takes them away.

git is called so that nothing of the user's reaches it: no global or system configuration (commit.gpgsign, hooks,
ignore files, templates), no GIT_* variables, own identity. --git-dir is always given: an overlay lies inside other
checkouts, and a damaged one must fail, not fall through to the repository around it, where `git clean` would take the
user's files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from pydantic import JsonValue, ValidationError

from agents.command import Problem
from agents.tuning.apply import ScopeError, exactly
from agents.tuning.levers.in_overlay import SECTIONS
from agents.tuning.overlay_files import files, overlay_of
from agents.tuning.placed import write_whole
from contracts import Change, EngineSpec, Frozen, Lever, Verdict

FILE = "engine.json"
_BRANCH = "night"
_NAME, _MAIL = "nightgate", "nightgate@localhost"
_LOCK_AGE_S = 5.0  # a lock this old is a dead git's: one night has one writer, and our own calls take well under 1 s


class OverlayError(Problem):
    """The overlay cannot be used. The message says what to do."""


class Tunable(Frozen):
    """The part of an EngineSpec that a night may change."""

    flags: dict[str, JsonValue] = {}
    env: dict[str, str] = {}
    compilation: dict[str, JsonValue] = {}
    overlay: dict[Lever, dict[str, JsonValue]] = {}
    plugin_paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: EngineSpec) -> Tunable:
        return cls(**{name: getattr(spec, name) for name in cls.model_fields})

    def onto(self, spec: EngineSpec) -> EngineSpec:
        """`spec` with this as its tunable part."""
        return EngineSpec(python=spec.python, model=spec.model, container=spec.container, **self.model_dump())

    def text(self, without: frozenset[str] = frozenset()) -> str:
        """JSON with one key a line, sorted."""
        parts = []
        for name, value in self.model_dump(mode="json", exclude=set(without)).items():
            if isinstance(value, dict):
                rows = [f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in sorted(value.items())]
            else:
                rows = [json.dumps(v) for v in value]
            inside = "\n    " + ",\n    ".join(rows) + "\n  " if rows else ""
            whole = f"{{{inside}}}" if isinstance(value, dict) else f"[{inside}]"
            parts.append(f"  {json.dumps(name)}: {whole}")
        return "{\n" + ",\n".join(parts) + "\n}\n"


class Stack(Frozen):
    """One commit of the overlay: the incumbent from there on. The first one has no change."""

    commit: str
    subject: str
    change: Change | None
    tunable: Tunable


class Overlay:
    """Opened with `create` (also after a resume) or `Overlay(folder)` for an existing one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, spec: EngineSpec) -> Overlay:
        """A new overlay whose first commit is `spec`, or the one that is there when it began with the same spec.
        Raises OverlayError for one that began with another."""
        folder = folder.resolve()
        overlay, wanted = cls(folder), Tunable.of(spec)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OverlayError(f"{folder}: {error.strerror}; choose a night folder that can be written") from None
        overlay._unlock()
        overlay._sweep()
        if not (folder / ".git" / "HEAD").exists():
            overlay._git("init", "--quiet", "--template=")
            overlay._git("symbolic-ref", "HEAD", f"refs/heads/{_BRANCH}")  # -b is unknown to git before 2.28
        if overlay._head() is None:
            overlay._write(wanted)
            overlay._commit("base: the engine as the night file describes it", f"Spec: {spec.id}\n")
        began = overlay._at(overlay._git("rev-list", "--max-parents=0", "HEAD").split()[0])
        if began.text() != wanted.text():
            raise OverlayError(f"{folder} began with another engine configuration; start a new night for this one")
        return overlay

    def keep(self, spec: EngineSpec, change: Change, verdict: Verdict) -> str:
        """Commits `spec` as the incumbent and returns the commit's hash. Keeping the incumbent again changes nothing.
        Raises OverlayError when `spec` is not the incumbent with exactly this change."""
        wanted, current = Tunable.of(spec), self.current()
        if wanted.text() == current.text() and self._git("status", "--porcelain", "-uall", "--", f":!{FILE}") == "":
            self._git("checkout", "--quiet", "HEAD", "--", FILE)
            return self.head()
        if wanted.text() != current.text():
            try:
                exactly(current.onto(spec), spec, change)
            except ScopeError as error:
                raise OverlayError(f"not kept: {error}") from None
        self._write(wanted)
        note = {"change": change.model_dump(mode="json"), "spec": spec.id}
        return self._commit(f"keep: {change}", f"{verdict.reason}\n\nNight-Note: {json.dumps(note, sort_keys=True)}\n")

    def revert(self) -> str:
        """Every file exactly as the last keep left it, everything else gone. Returns that commit's hash."""
        self._unlock()
        try:
            self._git("reset", "--hard", "--quiet", "HEAD")
        except OverlayError:  # a torn index: rebuild it, the commits are the truth
            (self.folder / ".git" / "index").unlink(missing_ok=True)
            self._git("reset", "--hard", "--quiet", "HEAD")
        self._git("clean", "-ffdxq")
        return self.head()

    def head(self) -> str:
        commit = self._head()
        if commit is None:
            raise OverlayError(f"{self.folder} holds no overlay; was the night's folder moved or emptied?")
        return commit

    def current(self) -> Tunable:
        """The incumbent's tunable part, from the last commit, not from the folder's files."""
        return self._at(self.head())

    def stacks(self) -> tuple[Stack, ...]:
        """Base first, incumbent last."""
        found = []
        for commit in self._git("rev-list", "--reverse", "--first-parent", "HEAD").split():
            subject, _, body = self._git("log", "-1", "--format=%s%n%b", commit).partition("\n")
            notes = [line.partition(": ")[2] for line in body.splitlines() if line.startswith("Night-Note: ")]
            change = Change.model_validate(json.loads(notes[-1])["change"]) if notes else None
            found.append(Stack(commit=commit, subject=subject, change=change, tunable=self._at(commit)))
        return tuple(found)

    # --- inside ---

    def _at(self, commit: str) -> Tunable:
        where = f"commit {commit[:12]} in {self.folder}"
        try:
            tunable = Tunable.model_validate_json(self._git("show", f"{commit}:{FILE}"))
        except ValidationError:
            raise OverlayError(f"{FILE} of {where} is damaged; start a new night") from None
        names = self._git("ls-tree", "-r", "-z", "--name-only", commit, "--", *SECTIONS).split("\0")
        try:
            held = overlay_of({name: self._blob(f"{commit}:{name}") for name in names if name})
        except ValueError:
            raise OverlayError(f"a table or patch of {where} is damaged; start a new night") from None
        return tunable.model_copy(update={"overlay": held}) if held else tunable

    def _blob(self, name: str) -> bytes:
        """A file of a commit, byte by byte."""
        done = self._run_bytes("cat-file", "blob", name)
        if done.returncode != 0:
            raise OverlayError(f"git cat-file failed in {self.folder}: {name} cannot be read")
        return done.stdout

    def _sweep(self) -> None:
        """Takes away a repository that git could not finish (a full disk, a kill), which nothing was ever put into."""
        inside = self.folder / ".git"
        if not inside.is_dir() or self._run("rev-parse", "--git-dir").returncode == 0:
            return
        held = (*(inside / "objects").rglob("*"), *(inside / "refs").rglob("*"), inside / "packed-refs")
        if not any(path.is_file() for path in held):  # a branch without its objects is damage, and kept changes lost
            shutil.rmtree(inside)

    def _head(self) -> str | None:
        done = self._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return done.stdout.strip() if done.returncode == 0 else None

    def _write(self, tunable: Tunable) -> None:
        """Each file whole or not at all; all of them together are whole once they are committed."""
        wanted = files(tunable.overlay) | {FILE: tunable.text(without=frozenset({"overlay"})).encode()}
        name = ""
        try:
            for section in SECTIONS:
                if (self.folder / section).exists():
                    shutil.rmtree(self.folder / section)
            for name, content in wanted.items():
                write_whole(self.folder / name, content)
        except OSError as error:
            path = error.filename or self.folder / name  # a write that finds no space names no file
            raise OverlayError(f"{path} cannot be written: {error.strerror}; free space there") from None

    def _commit(self, subject: str, body: str) -> str:
        self._unlock()
        self._git("add", "--all", "--force", ".")
        message = (" ".join(subject.split()) + "\n\n" + body).replace("\0", " ")
        self._git("commit", "--quiet", "--no-verify", "--cleanup=verbatim", "--file=-", stdin=message)
        return self.head()

    def _unlock(self) -> None:
        """Takes away locks that a killed git left. A younger lock may be a killed night's last git, still at work."""
        for lock in (self.folder / ".git").rglob("*.lock"):
            try:
                while time.time() - lock.stat().st_mtime < _LOCK_AGE_S:
                    time.sleep(0.2)
                lock.unlink()
            except FileNotFoundError:
                continue

    def _git(self, *arguments: str, stdin: str = "") -> str:
        done = self._run(*arguments, stdin=stdin)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise OverlayError(f"git {arguments[0]} failed in {self.folder}: {said[-1] if said else 'no reason given'}")
        return done.stdout

    def _run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = self._run_bytes(*arguments, stdin=stdin.encode("utf-8", "backslashreplace"))
        said = (part.decode("utf-8", "backslashreplace") for part in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, *said)

    def _run_bytes(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        where = [f"--git-dir={self.folder / '.git'}", f"--work-tree={self.folder}"]
        settings = [
            "commit.gpgsign=false",
            "core.hooksPath=/dev/null",
            "core.autocrlf=false",
            "core.fileMode=true",
            "core.protectNTFS=false",  # else a key with "git~1" or ".git " in it could not be added
            "core.protectHFS=false",
            "core.excludesFile=/dev/null",
            "core.attributesFile=/dev/null",
            "gc.auto=0",
            "core.quotePath=false",
        ]
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "TMPDIR", "LD_LIBRARY_PATH")}
        environment = kept | {
            "HOME": str(self.folder / ".git"),
            "XDG_CONFIG_HOME": str(self.folder / ".git"),  # git before 2.32
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
            "GIT_AUTHOR_NAME": _NAME,
            "GIT_AUTHOR_EMAIL": _MAIL,
            "GIT_COMMITTER_NAME": _NAME,
            "GIT_COMMITTER_EMAIL": _MAIL,
        }
        try:
            return subprocess.run(
                ["git", *where, *(part for s in settings for part in ("-c", s)), *arguments],
                input=stdin,
                capture_output=True,
                cwd=self.folder,
                env=environment,
                timeout=60,
                check=False,
            )
        except FileNotFoundError:
            if not self.folder.is_dir():
                gone = f"{self.folder} is gone, and with it the changes that were kept"
                raise OverlayError(f"{gone}: restore it and go on with --resume, or start a new night") from None
            raise OverlayError(
                "git is not installed; the night keeps its changes in a git repository (apt-get install git)"
            ) from None
        except subprocess.TimeoutExpired:
            what = f"git {arguments[0]} did not end within 60 s in {self.folder}"
            raise OverlayError(f"{what}; is the disk alive?") from None
