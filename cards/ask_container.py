"""One question to the interpreter inside an image: `docker run --rm ... python -c`. Pure, but for the user's numbers.

Options are those of docker-run(1) (Docker 20.10 and later) and podman-run(1) (4.2 and later). Neither program was at
hand: what is checked is the line, and a recording stand-in that obeys it.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from contracts import Container


def bind(source: Path | str, target: Path | str | None = None, read_only: bool = False) -> str:
    """The value of one `--mount`: a bind, at the same path inside unless `target` says another. Unlike `-v` it is
    refused when the source does not exist (-v would make a folder there, as root), and a colon is no separator."""
    row = ["type=bind", f"source={source}", f"target={target or source}", *(["readonly"] if read_only else [])]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(row)  # both programs read it as one CSV record
    return text.getvalue()


def user_options(runtime: str, uid: int, gid: int) -> list[str]:
    """So that files which the container writes are ours. Podman without root maps the user itself."""
    if runtime == "podman" and uid != 0:
        return ["--userns=keep-id"]
    return ["--user", f"{uid}:{gid}"]


def question(
    container: Container, code: str, arguments: tuple[str, ...] = (), binds: tuple[str, ...] = ()
) -> list[str]:
    """Runs `code` in the image's interpreter: no card, no network, nothing of the host but `binds` (see bind())."""
    return [
        container.runtime, "run", "--rm", "--pull=never", "--network=none", "--log-driver=none",
        *user_options(container.runtime, os.getuid(), os.getgid()), "-e", "HOME=/tmp", "-w", "/",
        *(part for value in binds for part in ("--mount", value)),
        "--entrypoint", container.python, container.image, "-c", code, *arguments,
    ]  # fmt: skip
