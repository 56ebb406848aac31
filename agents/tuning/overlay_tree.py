"""A tree that looks like an installed package, with some files of it replaced: for what upstream has no override for.

Folders are real and files are links. Python writes `__pycache__` beside the path by which it found a module, so through
a linked folder it would write into the installed tree. Compiled modules that are installed are linked too: Python
checks them against the time and size of the source, which a link shows, and replaces one by a rename, which takes the
link away and not what it points to. Without them every launch would compile thousands of files again.

Two things follow links and must not: a module that looks for its tables by os.path.realpath(__file__) (vLLM 0.32 does
for its MoE, FP8 and Mamba configurations) would find the installed ones. Modules that do are copied, times included.

What links do not hold off is a program that opens an installed file by its own name and writes into it. The night
hashes the installed trees for that (agents/tuning/installed_trees.py).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.tuning.placed import PlacementError

STAMP = ".nightgate-overlay.json"  # what the tree was made from; the last file to be written
_FORMAT = 1  # of trees; another one is built afresh
_CACHE = "__pycache__"


@dataclass(frozen=True)
class _Folder:
    path: str  # relative to the package; "" is the package itself
    files: tuple[str, ...]
    compiled: tuple[str, ...]  # names in its __pycache__


def overlay_tree(package: Path, replaced: Mapping[str, bytes], folder: Path) -> Path:
    """Makes `folder`/<the package's name> and returns `folder`: that is what goes on PYTHONPATH, before the installed.

    `package` is the installed folder (.../site-packages/vllm), `replaced` maps paths inside it (with /) to whole
    contents, of files that are there or new ones. The same arguments and the same installed files give the same tree,
    which is then left as it is; what was half made, or made from other files, is made again. vLLM 0.32 (3300 files and
    as many compiled ones) took 0.6 s the first time, patch included, and 0.08 s again (2 x86 cores, warm page cache,
    2026-11-30). Raises PlacementError for a new file that lies below an installed file, OSError where the disk is at
    fault.
    """
    package, folder = package.absolute(), folder.absolute()
    folders = list(_folders(package, "", ()))
    stamp = _stamp(package, folders, replaced)
    with contextlib.suppress(OSError):
        if (folder / STAMP).read_text() == stamp:
            return folder
    aside = folder.with_name(f".{folder.name}.new")
    for old in (aside, folder):  # nobody runs from a tree without the right stamp
        if old.exists():
            shutil.rmtree(old)
    _build(package, folders, replaced, aside / package.name)
    _link_beside(package, aside)
    (aside / STAMP).write_text(stamp)
    os.rename(aside, folder)
    return folder


def _folders(package: Path, path: str, above: tuple[str, ...]) -> Iterator[_Folder]:
    """Every folder with its files, sorted. A linked folder counts as a folder, unless it leads back up."""
    here = package / path
    real = os.path.realpath(here)
    if real in above:
        return
    files, inner, compiled = [], [], []
    with os.scandir(here) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.name == _CACHE:
                compiled = sorted(os.listdir(entry.path))
            elif entry.is_dir():
                inner.append(entry.name)
            else:
                files.append(entry.name)
    yield _Folder(path=path, files=tuple(files), compiled=tuple(compiled))
    for name in inner:
        yield from _folders(package, f"{path}/{name}" if path else name, (*above, real))


def _stamp(package: Path, folders: list[_Folder], replaced: Mapping[str, bytes]) -> str:
    """Of the names of all files, the times and sizes of Python sources, and the replaced contents."""
    digest = hashlib.sha256()
    for folder in folders:
        for name in folder.files:
            path = f"{folder.path}/{name}"
            seen = _seen(package / path.lstrip("/")) if name.endswith(".py") else None
            digest.update(f"{path}\0{seen.st_size if seen else ''}\0{seen.st_mtime_ns if seen else ''}\n".encode(
                errors="surrogateescape"))  # fmt: skip
    contents = {path: hashlib.sha256(content).hexdigest() for path, content in sorted(replaced.items())}
    return json.dumps(
        {"format": _FORMAT, "package": str(package), "files": digest.hexdigest(), "replaced": contents}, indent=1
    )


def _seen(source: Path) -> os.stat_result:
    """Of what a link points to; of a link to nothing (an editor's lock is one, ".#x.py") its own."""
    try:
        return os.stat(source)
    except FileNotFoundError:
        return os.lstat(source)


def _build(package: Path, folders: list[_Folder], replaced: Mapping[str, bytes], top: Path) -> None:
    for folder in folders:
        here, there = top / folder.path, package / folder.path
        here.mkdir(parents=True)
        prefix = f"{folder.path}/" if folder.path else ""
        linked = [name for name in folder.files if prefix + name not in replaced]
        for name in linked:
            if name.endswith(".py") and _looks_where_it_lies(there / name):
                shutil.copy2(there / name, here / name)
            else:
                os.symlink(there / name, here / name)
        sources = {name.removesuffix(".py") for name in linked if name.endswith(".py")}
        compiled = [name for name in folder.compiled if name.split(".")[0] in sources and name.endswith(".pyc")]
        if compiled:
            (here / _CACHE).mkdir()
            for name in compiled:
                os.symlink(there / _CACHE / name, here / _CACHE / name)
    for path, content in replaced.items():
        try:
            (top / path).parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise PlacementError(f"{package.name}/{path} cannot be added: a part of its path is a file") from None
        except OSError as error:
            raise _too_long(package, path, error) from None
        if os.path.isdir(top / path):
            raise PlacementError(f"{package.name}/{path} cannot be replaced: it is a folder")
        try:
            (top / path).write_bytes(content)
        except OSError as error:
            raise _too_long(package, path, error) from None


def _too_long(package: Path, path: str, error: OSError) -> Exception:
    """A name that no file can have is the change's fault; anything else stays the disk's."""
    if error.errno != errno.ENAMETOOLONG:
        return error
    return PlacementError(f"{package.name}/{path[:80]}... cannot be added: the name is too long; shorten it")


def _looks_where_it_lies(source: Path) -> bool:
    """Does this module follow links to find its own place? Broad: a copy too many costs a few kilobytes."""
    try:
        text = source.read_bytes()
    except FileNotFoundError:  # a link to nothing
        return False
    return b"__file__" in text and (b"realpath" in text or b"resolve(" in text)


def _link_beside(package: Path, folder: Path) -> None:
    """What is looked for beside a package, counted from the path by which it was found: the libraries of a wheel's
    compiled files ($ORIGIN/../vllm.libs), and AITER's assembled kernels and sources (jit/core.py: aiter_meta where it
    was installed, csrc, hsa and the like where it runs from a checkout). Without those AITER finds no kernel at all."""
    of_aiter = ("aiter_meta", "csrc", "hsa", "gradlib", "3rdparty") if package.name == "aiter" else ()
    named = [package.parent / name for name in of_aiter]
    for beside in [*sorted(package.parent.glob("*.libs")), *(path for path in named if path.is_dir())]:
        os.symlink(beside, folder / beside.name)
