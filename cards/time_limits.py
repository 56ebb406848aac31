"""What would end a night before its time: batch systems, a `timeout` above us, systemd, a terminal that hangs up.

Pure over /proc, /etc and /run of a root, and the environment. What cannot be seen from here (a batch system that tells
no end, an administrator's cron job) is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cards.kernel_files import entries, read_line, there
from cards.timeouts import PASS_ON, Process, ancestors, timeouts

KEEPERS = ("tmux", "tmux: server", "screen", "dtach", "abduco", "zellij", "mosh-server", "SCREEN")
# systemd.time(7)
SPANS = {
    1e-6: ("usec", "us", "μs", "µs"),
    0.001: ("msec", "ms"),
    1: ("seconds", "second", "sec", "s"),
    60: ("minutes", "minute", "min", "m"),
    3600: ("hours", "hour", "hr", "h"),
    86400: ("days", "day", "d"),
    604800: ("weeks", "week", "w"),
    2629800: ("months", "month", "M"),
    31557600: ("years", "year", "y"),
}
UNITS = {name: seconds for seconds, names in SPANS.items() for name in names}


def ends_early(
    root: Path, env: Mapping[str, str], pid: int, uid: int, user: str, minutes: float | None, now: float
) -> Iterator[tuple[str, str]]:
    """(what would end the night, what to do). `minutes`: the night's budget; None: not known, so every limit is told.
    `now`: seconds since the epoch."""
    wanted = None if minutes is None else minutes * 60
    above = ancestors(root, pid)
    for what, left in (*_batch(env, now), *timeouts(root, [Process(root, pid), *above]), *service(root, uid)):
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


def service(root: Path, uid: int) -> Iterator[tuple[str, float]]:
    """RuntimeMaxSec of the systemd units that we are in, as systemd-run and unit files set it: the first place that has
    the unit's file, then its drop-ins, the last word counting (systemd.unit(5)). What is gone of it is not told."""
    path = "/".join((read_line(root / "proc/self/cgroup") or "").splitlines()).split("/")
    for unit in dict.fromkeys(part for part in path if part.endswith((".service", ".scope"))):
        said: str | None = None
        places = [root / folder for folder in unit_folders(uid)]
        files = [folder / unit for folder in places if there(folder / unit)][:1]
        drops = {drop.name: drop for folder in reversed(places) for drop in entries(folder / f"{unit}.d", "*.conf")}
        for place in (*files, *(drops[name] for name in sorted(drops))):
            for value in re.findall(r"^\s*RuntimeMaxSec\s*=(.*)$", read_line(place) or "", re.MULTILINE):
                said = value
        seconds = systemd_seconds(said or "")
        if seconds:  # 0 is none
            yield f"systemd ({unit}, RuntimeMaxSec)", seconds


def unit_folders(uid: int) -> tuple[str, ...]:
    """Where systemd looks for units that may hold a night, the first winning; `systemd-run --user` writes into the
    second."""
    return (
        "run/systemd/transient",
        f"run/user/{uid}/systemd/transient",
        "etc/systemd/system",
        "run/systemd/system",
        "usr/lib/systemd/system",
    )


def systemd_seconds(text: str) -> float | None:
    """ "8h", "1h 30min", "90" (seconds); None for "infinity" and what is no time span."""
    span = r"(\d+(?:\.\d+)?)\s*([A-Za-zµμ]*)\s*"
    parts = re.findall(span, text)
    if not parts or re.sub(span, "", text).strip():
        return None
    if any(unit and unit not in UNITS for _, unit in parts):
        return None
    return sum(float(number) * UNITS[unit or "s"] for number, unit in parts)


def _logout(
    root: Path, env: Mapping[str, str], pid: int, above: list[Process], uid: int, user: str
) -> Iterator[tuple[str, str]]:
    """Only said in a remote shell, and of what logind would end."""
    group = read_line(root / "proc/self/cgroup") or ""
    kept = any(p.name in KEEPERS for p in above) or "TMUX" in env or "STY" in env or Process(root, pid).ignores_hangup
    if f"user@{uid}.service" in group and not there(root / "var/lib/systemd/linger" / user):
        what = "systemd ends what your user manager started when you log out"
        yield what, f"loginctl enable-linger {user}"
    elif "/session-" in group and kills_at_logout(root, user):
        what = "logind ends all processes of a user who logs out (KillUserProcesses=yes), those in tmux and screen too"
        yield what, f"`loginctl enable-linger {user}`, then start the night in `systemd-run --user --scope tmux`"
    elif hangs_on([Process(root, pid), *above]) and not kept:
        what = "this shell hangs on an ssh connection, and a night ends in order when that is lost (SIGHUP)"
        yield what, "start the night in tmux or screen, or with nohup"


def hangs_on(chain: list[Process]) -> bool:
    """Is there an sshd above chain[0], each next process being the last one's parent, and no new session in between? A
    terminal's end is told in its own session (credentials(7)), and further by who passes signals on."""
    for child, parent in zip(chain, chain[1:], strict=False):
        if parent.name.startswith("sshd"):
            return True
        apart = None not in (child.session, parent.session) and child.session != parent.session
        if apart and parent.name not in PASS_ON:
            return False
    return False


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
