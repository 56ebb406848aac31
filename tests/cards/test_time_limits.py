"""What would end a night early, from /proc and /etc written down in the kernel's and systemd's formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from cards.time_limits import ends_early, kills_at_logout, systemd_seconds
from tests.cards.trees import write

NOW = 1_800_000_000.0


def process(root: Path, pid: int, parent: int, name: str, *command: str) -> None:
    write(root / f"proc/{pid}/status", f"Name:\t{name}\nPPid:\t{parent}\n")
    write(root / f"proc/{pid}/comm", f"{name}\n")
    write(root / f"proc/{pid}/cmdline", "\0".join(command or (name,)) + "\0")


def said(root: Path, env: dict[str, str] | None = None, minutes: float | None = 480) -> list[str]:
    return [f"{w}: {f}" for w, f in ends_early(root, env or {}, 100, 1000, "ann", minutes, NOW)]


def test_nothing_known_is_nothing_said(tmp_path: Path) -> None:
    assert said(tmp_path) == []


def test_slurm(tmp_path: Path) -> None:
    env = {"SLURM_JOB_END_TIME": str(int(NOW) + 7200), "SLURM_JOB_ID": "77"}
    assert said(tmp_path, env) == [
        "Slurm (job 77) ends all this in 120 minutes, and the night wants 480 minutes: ask for more time there, or "
        "lower minutes (--hours)"
    ]
    assert said(tmp_path, env, minutes=60) == []
    assert said(tmp_path, env, minutes=None)[0].startswith("Slurm (job 77) ends all this in 120 minutes: ask")


def test_a_systemd_unit_with_a_limit(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/user.slice/user-1000.slice/run-u12.service\n")
    write(tmp_path / "run/systemd/transient/run-u12.service", "[Service]\nRuntimeMaxSec=4h\n")
    assert said(tmp_path)[0].startswith("systemd (run-u12.service, RuntimeMaxSec) ends all this in 240 minutes")


@pytest.mark.parametrize(
    ("where", "path"),
    [
        ("run/systemd/transient/n.scope", "/user.slice/n.scope"),
        ("run/user/1000/systemd/transient/n.scope", "/user.slice/user@1000.service/app.slice/n.scope"),  # --user
        ("usr/lib/systemd/system/n.service", "/system.slice/n.service/payload"),  # a unit that delegates
        ("run/systemd/transient/n.scope.d/50-RuntimeMaxSec.conf", "/n.scope"),
    ],
)
def test_a_limit_is_found_where_systemd_keeps_it(where: str, path: str, tmp_path: Path) -> None:
    write(tmp_path / "var/lib/systemd/linger/ann", "")
    write(tmp_path / "proc/self/cgroup", f"0::{path}\n")
    write(tmp_path / where, "[Service]\nRuntimeMaxSec=2hours\n")
    assert [line.split(" ends")[0] for line in said(tmp_path)] == [
        f"systemd ({'n.service' if 'n.service' in where else 'n.scope'}, RuntimeMaxSec)"
    ]


@pytest.mark.parametrize("last", ["infinity", "", "0", "3d"])
def test_the_last_word_on_a_unit_counts(last: str, tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/n.service\n")
    write(tmp_path / "etc/systemd/system/n.service", "[Service]\nRuntimeMaxSec=1h\nRuntimeMaxSec=2h\n")
    write(tmp_path / "usr/lib/systemd/system/n.service", "[Service]\nRuntimeMaxSec=5min\n")  # hidden by the one in /etc
    assert [line.split(" ends")[1][:26] for line in said(tmp_path)] == [" all this in 120 minutes, "]
    write(tmp_path / "etc/systemd/system/n.service.d/site.conf", f"[Service]\nRuntimeMaxSec={last}\n")
    assert said(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("8h", 28800),
        ("1h 30min", 5400),
        ("90", 90),
        ("2d", 172800),
        ("2 hours 5 minutes 1sec", 7501),
        ("1M", 2629800),  # and not a minute
        ("500ms", 0.5),
        ("infinity", None),
        ("8 furlongs", None),
        ("-5", None),
        ("", None),
        ("1" * 60 + "!", None),
    ],
)
def test_time_spans_as_systemd_writes_them(text: str, seconds: float | None) -> None:
    assert systemd_seconds(text) == seconds


def test_a_shell_that_hangs_on_a_connection(tmp_path: Path) -> None:
    process(tmp_path, 100, 99, "python")
    process(tmp_path, 99, 98, "bash")
    process(tmp_path, 98, 1, "sshd", "sshd: ann@pts/0")
    process(tmp_path, 1, 0, "systemd")
    assert [line.split(":")[0] for line in said(tmp_path)] == [
        "this shell hangs on an ssh connection, and a night ends in order when that is lost (SIGHUP)"
    ]
    assert said(tmp_path, {"TMUX": "/tmp/tmux-1000/default,1,0"}) == []
    write(tmp_path / "proc/100/status", "Name:\tpython\nPPid:\t99\nSigIgn:\t0000000001001001\n")  # nohup python
    assert said(tmp_path) == []
    write(tmp_path / "proc/100/status", "Name:\tpython\nPPid:\t99\nSigIgn:\t0000000001001000\n")
    assert len(said(tmp_path)) == 1


@pytest.mark.parametrize(("between", "hangs"), [("bash", False), ("setsid", False), ("sudo", True), ("script", True)])
def test_a_session_of_its_own_does_not_hang_on_a_connection(between: str, hangs: bool, tmp_path: Path) -> None:
    """As `setsid --wait run_night.py` starts it; sudo and script give a session too, and pass the hang-up on."""
    for pid, name, session in ((100, "python", 100), (99, between, 97), (97, "bash", 97), (90, "sshd-session", 80)):
        parent = {100: 99, 99: 97, 97: 90, 90: 1}[pid]
        process(tmp_path, pid, parent, name)
        write(tmp_path / f"proc/{pid}/status", f"Name:\t{name}\nPPid:\t{parent}\nNSsid:\t{session}\n")
    assert bool(said(tmp_path)) == hangs


def test_logind_that_ends_everything_at_logout(tmp_path: Path) -> None:
    write(tmp_path / "etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\n")
    write(tmp_path / "proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
    assert not kills_at_logout(tmp_path, "ann") and said(tmp_path) == []
    write(tmp_path / "etc/systemd/logind.conf.d/site.conf", "[Login]\nKillUserProcesses=yes\n")
    assert kills_at_logout(tmp_path, "ann") and not kills_at_logout(tmp_path, "root")  # root is left out unless told
    assert said(tmp_path, {"TMUX": "x"}) == [
        "logind ends all processes of a user who logs out (KillUserProcesses=yes), those in tmux and screen too: "
        "`loginctl enable-linger ann`, then start the night in `systemd-run --user --scope tmux`"
    ]


def test_a_user_manager_that_ends_with_the_last_login(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n")
    assert said(tmp_path) == [
        "systemd ends what your user manager started when you log out: loginctl enable-linger ann"
    ]
    write(tmp_path / "var/lib/systemd/linger/ann", "")
    assert said(tmp_path) == []
