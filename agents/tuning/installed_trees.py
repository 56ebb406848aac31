"""Are the installed files after a night what they were before it? Each file's SHA-256, and one over all of them.

Left out: __pycache__ and *.pyc, which Python itself writes beside what it imports, with or without a night. A link
counts by where it points, not by what is there. Reading and hashing vLLM 0.32 (3300 files, 466 MB) takes 0.8 s on a
warm page cache (2 x86 cores, 2026-11-30), more on a cold one; it is done beside the first engine's start, so that the
night does not wait for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from agents.tuning.packages import package_folder
from agents.tuning.placed import PlacementError, write_whole
from agents.tuning.placing import distributions
from contracts import EngineSpec, Lever, TryItem
from ledger.schema import InstalledTrees, TreeState

LEFT_OUT = "__pycache__ and *.pyc"
ALWAYS = ("vllm", "aiter")  # what the levers know; an interpreter without one of them has nothing to hash
MOST_NAMES = 20  # in the ledger; all of them are in artifacts/
_CHUNK = 1 << 20

Hashes = dict[str, str]  # path, from the package's name on, with / -> SHA-256, or what it is instead of a file


@dataclass(frozen=True)
class Tree:
    hashes: Hashes
    bytes: int

    @property
    def state(self) -> TreeState:
        """The digest is over lines "path<NUL>hash", sorted by path."""
        whole = hashlib.sha256()
        for path, digest in sorted(self.hashes.items()):
            whole.update(f"{path}\0{digest}\n".encode(errors="surrogateescape"))
        return TreeState(files=len(self.hashes), bytes=self.bytes, digest=whole.hexdigest())


def names(spec: EngineSpec, tries: Sequence[TryItem] = ()) -> tuple[str, ...]:
    """The distributions that the levers of a night may lie over: those that they know, what the engine's overlay names,
    and what the patches that a person has listed name."""
    listed = {item.key.partition("/")[0] for item in tries if item.lever is Lever.SOURCE_PATCH}
    return tuple(dict.fromkeys((*ALWAYS, *sorted(distributions(spec) | listed))))


def look(python: str, wanted: Collection[str], stop: Event | None = None) -> dict[str, Tree]:
    """The trees of those packages that the interpreter has. Raises PlacementError where it does not answer."""
    found = {name: package_folder(python, name) for name in wanted}
    return {name: hash_tree(folder, stop) for name, folder in found.items() if folder is not None}


def hash_tree(package: Path, stop: Event | None = None) -> Tree:
    """All files below `package`, which counts under its own name. What cannot be read is noted as that. Raises
    CancelledError once `stop` is set."""
    hashes, total = {}, 0
    for path in _files(package):
        if stop is not None and stop.is_set():
            raise CancelledError
        name = f"{package.name}/{path.relative_to(package).as_posix()}"
        try:
            if path.is_symlink():
                hashes[name] = f"link to {os.readlink(path)}"
                continue
            if not path.is_file():  # a pipe or a socket: reading would wait for ever
                hashes[name] = "no regular file"
                continue
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    total += len(chunk)
            hashes[name] = digest.hexdigest()
        except OSError:
            hashes[name] = "unreadable"
    return Tree(hashes=hashes, bytes=total)


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Sorted by path: "vllm/envs.py (changed)", "... (new)", "... (gone)"."""
    words = {
        path: "new" if path not in before else "gone" if path not in after else "changed"
        for path in {*before, *after}
        if before.get(path) != after.get(path)
    }
    return [f"{path} ({words[path]})" for path in sorted(words)]


def seen_before(folder: Path, trees: Mapping[str, Tree], seconds: float) -> InstalledTrees:
    """The ledger's line for what `look` found at the start; each file's hash goes to artifacts/. Raises OSError."""
    path = _keep(folder, "before", trees)
    states = {name: tree.state for name, tree in trees.items()}
    return InstalledTrees(when="before", trees=states, left_out=LEFT_OUT, path=path, seconds=seconds)


def seen_after(folder: Path, before: InstalledTrees, trees: Mapping[str, Tree], seconds: float) -> InstalledTrees:
    """The same at the end, compared with `before`. Raises OSError."""
    path = _keep(folder, "after", trees)
    states = {name: tree.state for name, tree in trees.items()}
    changed = differences(_kept(folder, before), _all(trees)) if states != before.trees else []
    return InstalledTrees(
        when="after", trees=states, left_out=LEFT_OUT, path=path, seconds=seconds, identical=states == before.trees,
        changed=tuple(changed[:MOST_NAMES]), changed_count=len(changed),
    )  # fmt: skip


class Looking:
    """`look` in a thread of its own, begun when this is made. `result` waits for it."""

    def __init__(self, python: str, wanted: Collection[str]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="installed-trees")
        self._began = time.monotonic()
        self._stop = Event()
        self._future: Future[tuple[dict[str, Tree], float]] = self._pool.submit(self._look, python, wanted)

    def _look(self, python: str, wanted: Collection[str]) -> tuple[dict[str, Tree], float]:
        found = look(python, wanted, self._stop)
        return found, time.monotonic() - self._began

    def give_up(self) -> None:
        """Nobody will ask for the result any more."""
        self._stop.set()
        self._pool.shutdown(wait=False)

    def result(self) -> tuple[dict[str, Tree], float] | None:
        """(trees, seconds that it took), or None where the interpreter does not answer: the night will say so."""
        try:
            return self._future.result()
        except PlacementError:
            return None
        finally:
            self._pool.shutdown(wait=False)


def _files(folder: Path) -> Iterator[Path]:
    """Links to folders count as files: what they lead to is not ours."""
    for here, folders, files in os.walk(folder):
        top = Path(here)
        yield from (top / name for name in files if not name.endswith(".pyc"))
        yield from (top / name for name in folders if (top / name).is_symlink())
        folders[:] = [name for name in folders if name != "__pycache__"]


def _all(trees: Mapping[str, Tree]) -> Hashes:
    return {path: digest for tree in trees.values() for path, digest in tree.hashes.items()}


def _keep(folder: Path, when: str, trees: Mapping[str, Tree]) -> str:
    path = f"artifacts/installed_trees-{when}.json"
    write_whole(folder / path, json.dumps(_all(trees), indent=0, sort_keys=True).encode())
    return path


def _kept(folder: Path, before: InstalledTrees) -> Hashes:
    """{} where the file is gone: then every file is told as new, which is loud enough."""
    try:
        held: Hashes = json.loads((folder / before.path).read_bytes())
    except (OSError, ValueError):
        return {}
    return held
