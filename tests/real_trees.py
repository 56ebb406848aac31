"""Real trees of vLLM and AITER, as published on PyPI, for tests that run those projects' own lookup code.

    python -m tests.real_trees        fetch what is missing into .cache/trees (130 MB to download, 90 MB kept)

Files are looked up in the package index that pip is configured for, and held to the checksums below. Only sources and
tables are kept. NIGHTGATE_REAL_TREES names another folder, which may also hold trees that are not on PyPI:
<folder>/aiter-<anything>/aiter is then tried as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("NIGHTGATE_REAL_TREES") or ROOT / ".cache" / "trees")
KEPT = (".py", ".json", ".csv", "install_mode")


@dataclass(frozen=True)
class Tree:
    """`package` lies in FOLDER/name."""

    name: str
    package: str
    project: str
    file: str
    sha256: str


TREES = (
    Tree("vllm-0.30.0", "vllm", "vllm", "vllm-0.30.0.tar.gz",
         "5f8f4e890c042ffa1c3e103f81c35e2d96f60a0a175ac43a4adbae7006bef62b"),
    Tree("vllm-0.33.0", "vllm", "vllm", "vllm-0.33.0.tar.gz",
         "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"),
    Tree("aiter-0.1.7", "aiter", "amd-aiter", "amd_aiter-0.1.7.post2.dev18-py3-none-any.whl",
         "fe139d74438217c35e87e3b961166bac8db2d381eadccb371da2e63615f05a31"),
)  # fmt: skip
PANDAS = "pandas==2.3.3"  # AITER reads its CSV with it; the engine's environment has none


def tree(name: str) -> Path:
    """The folder that the package lies in, as site-packages would be; skips the test where it was not fetched."""
    found = FOLDER / name
    if not found.is_dir():
        pytest.skip(f"no real tree {name} here: run `make trees`")
    return found


def aiter_trees() -> list[str]:
    """All AITER trees that are here, by name; the one of PyPI always, so that its absence shows as a skip."""
    more = sorted(p.parent.name for p in FOLDER.glob("aiter-*/aiter"))
    return list(dict.fromkeys(["aiter-0.1.7", *more]))


def fetch_all() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = 0
    for wanted in TREES:
        if not (FOLDER / wanted.name).is_dir():
            try:
                _fetch(wanted)
                print(f"fetched {wanted.name}")
            except (OSError, ValueError, KeyError) as error:
                print(f"{wanted.name} was not fetched, its tests will skip: {error}", file=sys.stderr)
                failed += 1
    if not (FOLDER / "pandas").is_dir():
        failed += _pandas()
    return 1 if failed else 0


def _fetch(wanted: Tree) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        archive, out = Path(scratch) / wanted.file, Path(scratch) / "tree"
        with urllib.request.urlopen(_url(wanted), timeout=60) as answer, archive.open("wb") as file:
            shutil.copyfileobj(answer, file)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != wanted.sha256:
            raise ValueError(f"{wanted.file} has another checksum than the one written down")
        if wanted.file.endswith(".whl"):
            _unpack_wheel(archive, out, wanted.package)
        else:
            _unpack_sdist(archive, out, wanted.package)
        os.rename(out, FOLDER / wanted.name)


def _url(wanted: Tree) -> str:
    """From the index's page of the project (PEP 691)."""
    page = f"{_index()}/{wanted.project}/"
    request = urllib.request.Request(page, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    return next(str(f["url"]) for f in files if f["filename"] == wanted.file)


def _index() -> str:
    """What pip is configured for, else pip's own default."""
    configured = _says("-m", "pip", "config", "get", "global.index-url")
    default = _says("-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)")
    return (os.environ.get("PIP_INDEX_URL") or configured or default).rstrip("/")


def _says(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False).stdout.strip()


def _unpack_wheel(archive: Path, out: Path, package: str) -> None:
    with zipfile.ZipFile(archive) as wheel:
        for name in wheel.namelist():
            if name.startswith(f"{package}/") and name.endswith(KEPT):
                wheel.extract(name, out)


def _unpack_sdist(archive: Path, out: Path, package: str) -> None:
    with tarfile.open(archive) as sdist:
        for member in sdist:
            _, _, inside = member.name.partition("/")
            if member.isfile() and inside.startswith(f"{package}/") and inside.endswith(KEPT):
                member.name = inside
                sdist.extract(member, out, filter="data")


def _pandas() -> int:
    target = ["--target", str(FOLDER / "pandas"), "--no-deps", "--only-binary", ":all:"]
    packages = [PANDAS, "python-dateutil", "pytz", "tzdata", "six"]
    return subprocess.run([sys.executable, "-m", "pip", "install", "-q", *target, *packages], check=False).returncode


if __name__ == "__main__":
    sys.exit(fetch_all())
