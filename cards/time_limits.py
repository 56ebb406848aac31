"""What would end a night before its time: batch systems, a `timeout` above us, systemd, a terminal that hangs up.

Pure over /proc, /etc and /run of a root, and the environment. What cannot be seen from here (a batch system that tells
no end, an administrator's cron job) is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cards.kernel_files import entries, read_fields, read_line, there

KEEPERS = ("tmux", "tmux: server", "screen", "dtach", "abduco", "zellij", "mosh-server", "SCREEN")
UNITS = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "hr": 3600,
    "d": 86400,
    "day": 86400,
    "w": 604800,
}
TIMEOUT_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Ancestor:
    """A process above this one. `session`: its session id, None where the kernel does not tell it."""

    def __init__(self, pid: int, name: str, command: list[str], session: str | None = None) -> None:
        self.pid, self.name, self.command, self.session = pid, name, command, session


def ancestors(root: Path, pid: int) -> list[Ancestor]:
    """The parents of `pid`, nearest first, up to init; what may not be read ends the list."""
    found: list[Ancestor] = []
    for _ in range(64):
        fields = read_fields(root / f"proc/{pid}/status")
        parent = fields.get("PPid", "0")
        if not parent.isdigit() or int(parent) == 0:
            break
        pid = int(parent)
        raw = read_line(root / f"proc/{pid}/cmdline") or ""
        name = read_line(root / f"proc/{pid}/comm") or ""
        found.append(Ancestor(pid, name, [part for part in raw.split("\0") if part], _session(root, pid)))
    return found


def _session(root: Path, pid: int) -> str | None:
    """NSsid: one number for each pid namespace that the process is in, the innermost last (proc_pid_status(5))."""
    told = read_fields(root / f"proc/{pid}/status").get("NSsid", "").split()
    return told[-1] if told else None


def ends_early(
    root: Path, env: Mapping[str, str], pid: int, uid: int, user: str, minutes: float | None, now: float
) -> Iterator[tuple[str, str]]:
    """(what would end the night, what to do). `minutes`: the night's budget; None: not known, so every limit is told.
    `now`: seconds since the epoch."""
    wanted = None if minutes is None else minutes * 60
    above = ancestors(root, pid)
    for what, left in (*_batch(env, now), *_timeouts(above, _session(root, pid)), *_service(root)):
        if wanted is None or left < wanted:
            asked = "" if wanted is None else f", and the night wants {wanted / 60:.0f} minutes"
            yield (
                f"{what} ends all this in {max(0, left) / 60:.0f} minutes{asked}",
                "ask for more time there, or lower minutes (--hours)",
            )
    yield from _logout(root, env, pid, above, uid, user)


def _batch(env: Mapping[str, str], now: float) -> Iterator[tuple[str, float]]:
    """Slurm tells each job when it will be ended (sbatch's output environment: SLURM_JOB_END_TIME, since 22.05)."""
    end = env.get("SLURM_JOB_END_TIME", "")
    if re.fullmatch(r"\d{1,18}", end, re.ASCII):
        yield f"Slurm (job {env.get('SLURM_JOB_ID', 'unknown')})", int(end) - now


def _timeouts(above: list[Ancestor], session: str | None) -> Iterator[tuple[str, float]]:
    """coreutils' timeout above us; the whole duration, since what is gone of it is not told. It ends its child and its
    own process group: a night that setsid took out of its `session` is reached as its child alone."""
    for process in above:
        out_of_reach = None not in (session, process.session) and session != process.session
        if process.name != "timeout" or (out_of_reach and process is not above[0]):
            continue
        takes_value = False  # "timeout -k 10 300 COMMAND": the 10 is -k's
        for word in process.command[1:]:
            skip, takes_value = takes_value, word in ("-k", "--kill-after", "-s", "--signal")
            match = None if skip else re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", word)
            if match:
                yield (
                    f"`timeout {word}` (pid {process.pid}) above this shell",
                    float(match[1]) * TIMEOUT_UNITS[match[2]],
                )
                break


def _service(root: Path) -> Iterator[tuple[str, float]]:
    """RuntimeMaxSec of the systemd unit that we are in, as systemd-run and unit files set it."""
    for line in (read_line(root / "proc/self/cgroup") or "").splitlines():
        unit = line.rpartition("/")[2]
        if not unit.endswith((".service", ".scope")):
            continue
        for folder in ("run/systemd/transient", "run/systemd/system", "etc/systemd/system"):
            for place in (root / folder / unit, *entries(root / folder / f"{unit}.d", "*.conf")):
                found = re.search(r"^RuntimeMaxSec=(.+)$", read_line(place) or "", re.MULTILINE)
                seconds = systemd_seconds(found[1]) if found else None
                if seconds is not None:
                    yield f"systemd ({unit}, RuntimeMaxSec)", seconds


def systemd_seconds(text: str) -> float | None:
    """ "8h", "1h 30min", "90" (seconds); None for "infinity" and what is no time span."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if not parts or any(unit and unit not in UNITS for _, unit in parts):
        return None
    return sum(float(number) * UNITS.get(unit or "s", 1) for number, unit in parts)


def _logout(
    root: Path, env: Mapping[str, str], pid: int, above: list[Ancestor], uid: int, user: str
) -> Iterator[tuple[str, str]]:
    """Only said in a remote shell, and of what logind would end."""
    group = read_line(root / "proc/self/cgroup") or ""
    kept = any(p.name in KEEPERS for p in above) or "TMUX" in env or "STY" in env or ignores_hangup(root, pid)
    if f"user@{uid}.service" in group and not there(root / "var/lib/systemd/linger" / user):
        what = "systemd ends what your user manager started when you log out"
        yield what, f"loginctl enable-linger {user}"
    elif "/session-" in group and kills_at_logout(root, user):
        what = "logind ends all processes of a user who logs out (KillUserProcesses=yes), those in tmux and screen too"
        yield what, f"`loginctl enable-linger {user}`, then start the night in `systemd-run --user --scope tmux`"
    elif any(p.name.startswith("sshd") for p in above) and not kept:
        what = "this shell hangs on an ssh connection, and a night ends in order when that is lost (SIGHUP)"
        yield what, "start the night in tmux or screen, or with nohup"


def ignores_hangup(root: Path, pid: int) -> bool:
    """SIGHUP, number 1, is the lowest bit of SigIgn (proc_pid_status(5)). nohup starts its command so."""
    mask = read_fields(root / f"proc/{pid}/status").get("SigIgn", "")
    return re.fullmatch(r"[0-9a-f]+", mask) is not None and int(mask, 16) & 1 == 1


def kills_at_logout(root: Path, user: str) -> bool:
    """logind.conf and its drop-ins, the last word counting; KillExcludeUsers is root unless it is set
    (systemd's logind.conf(5))."""
    answer, excluded = False, ["root"]
    places = [root / "etc/systemd/logind.conf"]
    for folder in ("usr/lib/systemd", "run/systemd", "etc/systemd"):
        places += entries(root / folder / "logind.conf.d", "*.conf")
    for place in places:
        for key, value in re.findall(r"^\s*(Kill\w+)\s*=\s*(.*)$", read_line(place) or "", re.MULTILINE):
            if key == "KillUserProcesses":
                answer = value.strip().lower() in ("yes", "true", "1", "on")
            elif key == "KillExcludeUsers":
                excluded = value.split()
    return answer and user not in excluded
