"""The version of a checkout by its git tags. The checkout is somebody else's: git reads it, and runs nothing for it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

# A repository's own configuration may name commands. `git describe` runs one where an object is missing that a
# "promisor" remote would have (core.sshCommand, ext::, helpers; seen with git 2.39.5). The second is known to git 2.44
# and later, and the security releases of 2024; the first, which allows no way of fetching, to all since 2.3.
NOTHING_FETCHED = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


def git_version(checkout: Path) -> str:
    """The nearest tag and how many commits came after it: "0.23.1rc0", "0.23.1rc0+12.gff063e44e"; "" without a tag,
    and where `checkout` is no repository itself."""
    above = str(checkout.resolve().parent)
    if not (checkout / ".git").exists() or os.pathsep in above:  # no such folder can be named as where to stop
        return ""
    # Of a shell inside a hook of git: GIT_DIR, which would be read in this one's place.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(checkout), "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=own | NOTHING_FETCHED | {"GIT_CEILING_DIRECTORIES": above},  # a broken .git is not the parent's
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.fullmatch(r"v(\d.*)-(\d+)-(g[0-9a-f]+)", done.stdout.decode("utf-8", errors="replace").strip())
    if match is None:
        return ""
    return match[1] if match[2] == "0" else f"{match[1]}+{match[2]}.{match[3]}"
