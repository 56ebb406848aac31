"""What a refused change leaves of its overlay tree: the files that it laid, at the path that its evidence names.

A tree is links to everything that is installed (vLLM 0.32: 6700 of them, 27 MB on disk), and only the change's own
launches need it. Its tables, patched files and new ones stay where they were; links, copies and what Python compiled
are taken away. A launch that asks for the same configuration again builds the tree afresh (overlay_tree.py), so nothing
that a resume needs is lost.

Only below artifacts/overlays of the night's own folder is anything removed. Every folder is opened by its name in the
one above it and never through a link: what is behind one stays, and a link is removed without what it points to.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from agents.tuning.overlay_tree import STAMP

# The stamp under another name: whoever finds it goes on where the last one was killed, and overlay_tree() finds none.
THINNED = ".nightgate-thinned.json"
_SPEC_ID = re.compile(r"[0-9a-f]{12}")  # contracts' content_hash: nothing else below overlays/ is ours
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

Wanted = Callable[[str], bool]


def thin_refused(night_folder: Path, kept: Collection[str]) -> tuple[str, ...]:
    """Thins the trees of every configuration under `night_folder` that is not in `kept` (EngineSpec ids), profiled
    ones and what a kill left half made among them. Engines that run from them must be down. Returns the ids that had a
    tree, sorted; safe to run twice, and after a kill anywhere. vLLM 0.32's tree took
    0.5, 1.0 and 12.5 s, on a disk that others used (2 x86 cores, 2026-11-30). Raises OSError, the first one, where the
    disk is at fault or a tree is not as it was built; the other trees are thinned all the same."""
    done: list[str] = []
    faults: list[OSError] = []
    with _opened(night_folder, ("artifacts", "overlays")) as overlays:
        if overlays is not None:
            ids = [name for name in sorted(os.listdir(overlays)) if _SPEC_ID.fullmatch(name) and name not in kept]
            done = [spec_id for spec_id in ids if _thin_all(overlays, spec_id, faults)]
    if faults:
        raise faults[0]
    return tuple(done)


def _thin_all(overlays: int, spec_id: str, faults: list[OSError]) -> bool:
    found = False
    with _below(overlays, (spec_id, "trees")) as trees:
        if trees is not None:
            for name in os.listdir(trees):
                try:
                    found |= _thin(trees, name)
                except OSError as fault:
                    faults.append(fault)
                except RecursionError:  # no tree of ours: a thousand folders in each other
                    faults.append(OSError(errno.ELOOP, "folders lie too deep in each other", f"{spec_id}/trees/{name}"))
    return found


def _thin(trees: int, name: str) -> bool:
    """One distribution's tree. The stamp goes first: from then on nobody takes it for a whole one. A folder that has
    neither name of it is what a kill left of a tree being built or replaced, and goes altogether."""
    with _below(trees, (name,)) as tree:
        if tree is None:
            return False
        whole = STAMP in os.listdir(tree)
        if whole:
            os.rename(STAMP, THINNED, src_dir_fd=tree, dst_dir_fd=tree)
        laid = None if name.startswith(".") else _laid(tree)  # with a dot: overlay_tree's, until it is whole
        kept = set() if laid is None else {THINNED, *laid}
        _remove(tree, "", lambda path: path in kept)
    if laid is None:
        os.rmdir(name, dir_fd=trees)
    return whole or laid is None


def _laid(tree: int) -> set[str] | None:
    """The files that the change laid, relative to the tree; None where no stamp tells."""
    try:
        if not stat.S_ISREG(os.lstat(THINNED, dir_fd=tree).st_mode):  # a pipe would be waited for
            return None
        file = os.open(THINNED, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=tree)
    except FileNotFoundError:
        return None
    try:
        with open(file, encoding="utf-8") as text:
            stamp = json.load(text)
        return {f"{Path(stamp['package']).name}/{path}" for path in stamp["replaced"]}
    except (ValueError, KeyError, TypeError, RecursionError):  # torn by a power cut, or not ours
        return None


def _remove(folder: int, path: str, wanted: Wanted) -> bool:
    """Everything below but what is wanted, and folders that are empty then. Is anything left?"""
    left = False
    for name in os.listdir(folder):
        inside = f"{path}{name}"
        if wanted(inside):
            left = True
        elif stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
            with _below(folder, (name,)) as there:
                full = there is None or _remove(there, f"{inside}/", wanted)
            if full:
                left = True
            else:
                os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    return left


@contextmanager
def _opened(top: Path, names: tuple[str, ...]) -> Iterator[int | None]:
    """Folder `top`/names...; `top` itself may be reached through links, for it is the user's choice."""
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _below(folder, names) as found:
            yield found
    finally:
        os.close(folder)


@contextmanager
def _below(folder: int, names: tuple[str, ...]) -> Iterator[int | None]:
    """None where one of the names is not there, is a link, or is no folder."""
    held: list[int] = []
    found: int | None = folder
    try:
        for name in names:
            try:
                held.append(os.open(name, _FOLDER, dir_fd=held[-1] if held else folder))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
                found = None
                break
            found = held[-1]
        yield found
    finally:
        for opened in held:
            os.close(opened)
