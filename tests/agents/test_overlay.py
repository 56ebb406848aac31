"""The night's overlay, with a real git."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue

from agents.tuning import overlay as overlay_module
from agents.tuning.apply import apply
from agents.tuning.overlay import FILE, Overlay, OverlayError, Tunable
from agents.tuning.overlay_files import files as overlay_files
from agents.tuning.overlay_files import overlay_of
from contracts import Change, EngineSpec, Lever, Verdict, VerdictWord
from tests.agents.examples import spec
from tests.agents.test_source_patch import LIMIT

BASE = spec(flags={"max-num-seqs": 4, "enforce-eager": True}, env={"OMP_NUM_THREADS": "2"}, plugin_paths=("/plugin",))
SEQS = Change(lever=Lever.ENGINE_FLAG, key="max-num-seqs", before=4, after=16)
EAGER = Change(lever=Lever.ENGINE_FLAG, key="enforce-eager", before=True, after=None)
KEEP = Verdict(word=VerdictWord.KEEP, reason="1.42 times as fast, 95 % interval 1.30 to 1.55")


@pytest.fixture
def overlay(tmp_path: Path) -> Overlay:
    return Overlay.create(tmp_path / "overlay", BASE)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def test_a_night_of_two_keeps(overlay: Overlay) -> None:
    first = apply(BASE, SEQS)
    one = overlay.keep(first, SEQS, KEEP)
    second = apply(first, EAGER)
    two = overlay.keep(second, EAGER, KEEP)
    stacks = overlay.stacks()
    assert [s.change for s in stacks] == [None, SEQS, EAGER]
    assert [s.commit for s in stacks[1:]] == [one, two]
    assert overlay.current().onto(BASE) == second
    assert stacks[0].tunable.onto(BASE) == BASE


def test_the_commit_says_what_and_why(overlay: Overlay) -> None:
    commit = overlay.keep(apply(BASE, SEQS), SEQS, KEEP)
    message = git(overlay.folder, "log", "-1", "--format=%B", commit)
    assert message.startswith(f"keep: {SEQS}\n\n{KEEP.reason}\n")
    diff = git(overlay.folder, "show", "--format=", "--unified=0", commit)
    assert [line for line in diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")] == [
        '-    "max-num-seqs": 4',
        '+    "max-num-seqs": 16',
    ]


def test_everything_may_run_twice(overlay: Overlay) -> None:
    again = Overlay.create(overlay.folder, BASE)
    assert again.head() == overlay.head()
    first = apply(BASE, SEQS)
    assert overlay.keep(first, SEQS, KEEP) == overlay.keep(first, SEQS, KEEP)
    assert len(overlay.stacks()) == 2
    assert overlay.revert() == overlay.revert() == overlay.head()
    assert Overlay.create(overlay.folder, BASE).current().onto(BASE) == first  # a resume after a keep


def test_revert_is_exact(overlay: Overlay) -> None:
    (overlay.folder / "tables").mkdir()
    (overlay.folder / "tables" / "kept.json").write_text("{}")
    commit = overlay.keep(apply(BASE, SEQS), SEQS, KEEP)
    before = {p.relative_to(overlay.folder): p.read_bytes() for p in files(overlay.folder)}
    (overlay.folder / FILE).write_text("nonsense")
    (overlay.folder / "tables" / "kept.json").unlink()
    (overlay.folder / "tables" / "new.json").write_text("{}")
    (overlay.folder / ".gitignore").write_text("*")
    (overlay.folder / "ignored.txt").write_text("x")
    nested = overlay.folder / "nested"
    nested.mkdir()
    git(nested, "init", "--quiet")
    git(overlay.folder, "add", ".gitignore", "-f")  # also what is already in the index
    assert overlay.revert() == commit
    assert {p.relative_to(overlay.folder): p.read_bytes() for p in files(overlay.folder)} == before
    assert not nested.exists()


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and ".git" not in p.relative_to(folder).parts)


def test_a_keep_of_something_else_is_refused(overlay: Overlay) -> None:
    both = apply(apply(BASE, SEQS), EAGER)
    with pytest.raises(OverlayError, match="they also differ in engine_flag: enforce-eager"):
        overlay.keep(both, SEQS, KEEP)
    assert len(overlay.stacks()) == 1


def test_values_that_python_takes_for_equal_are_two(overlay: Overlay, tmp_path: Path) -> None:
    one = spec(flags={"a": 1})
    other = Overlay.create(tmp_path / "other", one)
    change = Change(lever=Lever.ENGINE_FLAG, key="a", before=1, after=True)
    other.keep(apply(one, change), change, KEEP)
    assert len(other.stacks()) == 2
    assert other.current().flags["a"] is True


def test_another_night_is_not_continued(overlay: Overlay) -> None:
    with pytest.raises(OverlayError, match="began with another engine configuration"):
        Overlay.create(overlay.folder, spec(flags={"max-num-seqs": 5}))


def test_nothing_of_the_users_git_gets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who signs commits, has a global hook, an ignore file and no name, and starts the night from a hook."""
    home, hooks = tmp_path / "home", tmp_path / "hooks"
    home.mkdir()
    hooks.mkdir()
    (home / "template" / "hooks").mkdir(parents=True)
    for hook in (hooks / "pre-commit", home / "template" / "hooks" / "pre-commit"):
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[commit]\ngpgsign = true\n[user]\nsigningkey = nobody\nuseConfigOnly = true\n[core]\nhooksPath = {hooks}\n"
        f"excludesFile = {home}/ignore\n[init]\ntemplateDir = {home}/template\n"
    )
    (home / "ignore").write_text("*.json\n")
    other = tmp_path / "the_users_repository"
    other.mkdir()
    git(other, "init", "--quiet")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "commit.gpgsign")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    overlay = Overlay.create(tmp_path / "overlay", BASE)
    overlay.keep(apply(BASE, SEQS), SEQS, KEEP)
    assert len(overlay.stacks()) == 2
    monkeypatch.undo()
    assert "nightgate" in git(overlay.folder, "log", "-1", "--format=%an %cn")
    assert git(overlay.folder, "log", "-1", "--format=%G?").strip() == "N"
    assert not (other / ".git" / "index").exists()


def test_a_damaged_overlay_never_falls_through_to_the_repository_around_it(tmp_path: Path) -> None:
    around = tmp_path / "checkout"
    around.mkdir()
    git(around, "init", "--quiet")
    (around / "precious.txt").write_text("not committed yet")
    overlay = Overlay.create(around / "logs" / "overlay", BASE)
    subprocess.run(["rm", "-rf", str(overlay.folder / ".git")], check=True)
    for action in (overlay.revert, overlay.head, overlay.current, overlay.stacks):
        with pytest.raises(OverlayError):
            action()
    assert (around / "precious.txt").exists()
    assert not (around / ".git" / "index").exists()


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "refs/heads/night.lock"])
def test_locks_of_a_killed_git(overlay: Overlay, lock: str) -> None:
    path = overlay.folder / ".git" / lock
    path.touch()
    os.utime(path, (1, 1))
    overlay.keep(apply(BASE, SEQS), SEQS, KEEP)
    assert len(overlay.stacks()) == 2


def test_a_torn_index(overlay: Overlay) -> None:
    (overlay.folder / ".git" / "index").write_bytes(b"DIRC torn")
    assert overlay.revert() == overlay.head()
    assert Tunable.model_validate_json((overlay.folder / FILE).read_text()) == Tunable.of(BASE)


@pytest.mark.parametrize("left", ["an empty folder", "init only", "a half-written file"])
def test_killed_while_it_was_being_made(tmp_path: Path, left: str) -> None:
    folder = tmp_path / "overlay"
    folder.mkdir()
    if left != "an empty folder":
        git(folder, "init", "--quiet")
    if left == "a half-written file":
        (folder / f".{FILE}.new").write_text('{"fla')
    overlay = Overlay.create(folder, BASE)
    assert overlay.current() == Tunable.of(BASE)
    overlay.revert()
    assert [p.name for p in files(folder)] == [FILE]


def test_strange_reasons(overlay: Overlay) -> None:
    reason = "first\n\nNight-Note: {}\n\n# not a comment\nschnell \udce4 \0 \u2028 end"
    overlay.keep(apply(BASE, SEQS), SEQS, Verdict(word=VerdictWord.KEEP, reason=reason))
    assert overlay.stacks()[-1].change == SEQS
    assert "# not a comment" in git(overlay.folder, "log", "-1", "--format=%B")


def test_no_git(overlay: Overlay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OverlayError, match="git is not installed"):
        overlay.head()


def test_a_deleted_overlay_is_not_blamed_on_git(overlay: Overlay) -> None:
    shutil.rmtree(overlay.folder)
    with pytest.raises(OverlayError, match="is gone, and with it the changes that were kept: restore it"):
        overlay.revert()


# --- tables and patches are files of their own ---

ROW = "gemm/gfx950-GEMM-A16W16.json#M_LEQ_64"
TILES = {"BLOCK_SIZE_M": 64, "num_warps": 4, "waves_per_eu": 0.5}


def with_row(engine: EngineSpec, value: object) -> EngineSpec:
    return engine.model_copy(update={"overlay": {**engine.overlay, Lever.AITER_JSON: {ROW: value}}})


def test_a_kept_patch_is_a_file_that_git_can_apply(overlay: Overlay) -> None:
    change = Change(lever=Lever.SOURCE_PATCH, key="toy/limit", after=LIMIT)
    patched = apply(BASE, change)
    commit = overlay.keep(patched, change, KEEP)
    assert (overlay.folder / "source_patch/toy/limit.patch").read_text() == LIMIT
    assert git(overlay.folder, "show", "--format=%s", "--name-only", commit).split("\n", 1) == [
        "keep: source_patch: toy/limit: not patched -> toy/limits.py +1/-1", "\nsource_patch/toy/limit.patch\n",
    ]  # fmt: skip
    assert overlay.current().onto(BASE) == patched
    assert overlay.keep(patched, change, KEEP) == commit  # twice is once
    back = Change(lever=Lever.SOURCE_PATCH, key="toy/limit", before=LIMIT)
    overlay.keep(apply(patched, back), back, KEEP)
    assert overlay.current().onto(BASE) == BASE and not (overlay.folder / "source_patch").exists()
    assert [s.tunable.onto(BASE) == patched for s in overlay.stacks()] == [False, True, False]


def test_tables_of_the_night_file_are_in_the_first_commit(tmp_path: Path) -> None:
    base = with_row(spec(), TILES)
    overlay = Overlay.create(tmp_path / "overlay", base)
    path = f"aiter_json/{ROW}.json"
    assert git(overlay.folder, "ls-files").splitlines() == [path, FILE]
    assert "overlay" not in (overlay.folder / FILE).read_text()
    assert Overlay.create(tmp_path / "overlay", base).current().onto(base) == base
    with pytest.raises(OverlayError, match="began with another engine configuration"):
        Overlay.create(tmp_path / "overlay", with_row(spec(), {**TILES, "num_warps": 8}))
    (overlay.folder / path).write_text("{}")
    (overlay.folder / "aiter_json" / "more.json").write_text("1")
    overlay.revert()
    assert overlay.current().onto(base) == base and overlay_of(read(overlay.folder)) == base.overlay
    assert not (overlay.folder / "aiter_json" / "more.json").exists()


def read(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in files(folder)}


# As the installed AITER e4048607 has it: 260 characters.
FMOE = (
    "tuned_fmoe#gfx=gfx942,cu_num=80,token=16384,model_dim=7168,inter_dim=512,expert=256,topk=8,"
    "act_type=ActivationType.Silu,doweight_stage1=1,dtype=torch.bfloat16,q_dtype_a=torch.float8_e4m3fnuz,"
    "q_dtype_w=torch.float8_e4m3fnuz,q_type=QuantType.per_1x128,use_g1u1=1"
)


def test_a_row_with_a_key_longer_than_a_files_name_is_kept(tmp_path: Path) -> None:
    overlay = Overlay.create(tmp_path / "overlay", BASE)
    change = Change(lever=Lever.AITER_CSV, key=FMOE, after={"ksplit": 2})
    overlay.keep(apply(BASE, change), change, KEEP)
    assert len(FMOE) == 260 and overlay.current().onto(BASE) == apply(BASE, change)


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """For this process and what it starts: writing more than `size` bytes into a file fails, as on a full disk."""
    held, before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, held)


def test_a_keep_that_finds_no_space_names_the_file_and_can_be_done_again(overlay: Overlay) -> None:
    change = Change(lever=Lever.SOURCE_PATCH, key="toy/limit", after=LIMIT * 20)
    with no_file_beyond(1000), pytest.raises(OverlayError, match="source_patch/toy/limit.patch cannot be written"):
        overlay.keep(apply(BASE, change), change, KEEP)
    assert overlay.current().onto(BASE) == BASE
    overlay.keep(apply(BASE, change), change, KEEP)
    assert overlay.current().onto(BASE) == apply(BASE, change)


@pytest.mark.parametrize("limit", [0, 10, 30, 100])
def test_a_disk_that_was_full_while_it_was_being_made(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file may grow beyond `limit` bytes: git leaves half a repository, and the next start makes it whole."""
    monkeypatch.setattr(overlay_module, "_LOCK_AGE_S", 0.3)  # as if that git had died some seconds ago
    with no_file_beyond(limit), pytest.raises(OverlayError):
        Overlay.create(tmp_path / "overlay", BASE)
    assert Overlay.create(tmp_path / "overlay", BASE).current().onto(BASE) == BASE


def test_a_section_without_a_key_is_no_section(tmp_path: Path) -> None:
    """A night file may say `overlay: {source_patch: {}}`."""
    empty = spec(overlay={Lever.SOURCE_PATCH: {}})
    assert empty == spec() and empty.id == spec().id
    assert Overlay.create(tmp_path / "overlay", empty).current().onto(empty) == empty


def test_a_damaged_table_is_said(tmp_path: Path) -> None:
    overlay = Overlay.create(tmp_path / "overlay", with_row(spec(), TILES))
    (overlay.folder / f"aiter_json/{ROW}.json").write_text('{"BLOCK')
    git(overlay.folder, "-c", "user.name=x", "-c", "user.email=x", "commit", "--all", "--quiet", "-m", "x")
    with pytest.raises(OverlayError, match="a table or patch of commit .* is damaged"):
        overlay.current()


@pytest.mark.parametrize(
    "key",
    ["a", "a/b", "a.json", "a.json/b", "a.patch/b", "a//b", "../../etc", "./x", ".git/config", ".GIT/x", "/abs", "x/",
     "%", "%41", "a b#c", "a:b", "a\\b", "ü", "a\nb", "E=8,N=128,device_name=AMD_Instinct_MI355X.json#64",
     "git~1/x", ".git /x", ".git./x", "y" * 900, f"{'y' * 200}.git/x", f"{'y' * 199}./{'%' * 300}/z", FMOE],
)  # fmt: skip
def test_every_key_has_a_path_of_its_own(key: str, tmp_path: Path) -> None:
    """All of them at once, too: no file stands in the way of another's folder."""
    odd = ["a", "a/b", "a.json", "a.json/b", "a.patch/b", "a//b", "%", "%41", "A"]
    held: dict[Lever, dict[str, JsonValue]] = {Lever.AITER_JSON: {k: {"row": k} for k in {key, *odd}}}
    paths = overlay_files(held)
    assert overlay_of(paths) == held
    assert all(".." not in path.split("/") and not path.startswith("/") for path in paths)
    base = spec(overlay=held)
    overlay = Overlay.create(tmp_path / "overlay", base)
    assert overlay.current().onto(base) == base


@pytest.mark.parametrize("text", ["a\r\nb\r\n", "no end", "", "\n\n", "\u2028 \x0c", "ü\n"])
def test_a_patch_comes_back_byte_by_byte(tmp_path: Path, text: str) -> None:
    base = spec(overlay={Lever.SOURCE_PATCH: {"toy/x": text}})
    assert Overlay.create(tmp_path / "overlay", base).current().onto(base) == base


@pytest.mark.parametrize("value", [1, 1.0, "1", True, [1, {"a": None}], {}, [], "text\n", {"b": 1, "a": 2}])
def test_values_come_back_as_they_were(tmp_path: Path, value: object) -> None:
    base = with_row(spec(), value)
    held = Overlay.create(tmp_path / "overlay", base).current().overlay[Lever.AITER_JSON][ROW]
    assert held == value and type(held) is type(value)
