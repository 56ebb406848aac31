"""What is asked of docker or podman about a container that we started, and how it is ended. Only by its exact id, and
only when it carries our label.

The keeper (engine/keeper.py) ends a container while its loop or itself lives; this is for what outlived both.
"""

from __future__ import annotations

import json
import subprocess

from pydantic import JsonValue

from contracts import LaunchRecord
from engine.container import LABEL_NONCE
from engine.keeper import UNKILLABLE_S

ASK_S = 30.0  # milliseconds on an idle machine


def reference(record: LaunchRecord) -> tuple[str, str] | None:
    """(runtime, id) of a launch in a container."""
    runtime, _, name = (record.container_id or "").partition("://")
    return (runtime, name) if runtime and name else None


def inspect(runtime: str, name: str, template: str) -> str | None:
    """`inspect -f`; None where there is no such container, or nobody to ask."""
    return _ask(runtime, "inspect", "--type=container", "-f", template, name)


def end(record: LaunchRecord, grace_s: float) -> bool:
    """Ends the launch's container and takes it away. False: there is none of ours."""
    found = reference(record)
    if found is None:
        return False
    runtime, name = found
    if inspect(runtime, name, f'{{{{index .Config.Labels "{LABEL_NONCE}"}}}}') != record.nonce:
        return False
    seconds = max(1, round(grace_s))
    _ask(runtime, "stop", "-t", str(seconds), name, wait_s=seconds + UNKILLABLE_S)
    _ask(runtime, "kill", name)  # says that it does not run, when it was stopped
    _ask(runtime, "rm", "-f", name)
    return True


def image_of(record: LaunchRecord) -> dict[str, JsonValue]:
    """Which image runs, for the record of what was realised: its id, and the digests under which registries know it
    (none for an image that was built here)."""
    found = reference(record)
    if found is None:
        return {}
    runtime, name = found
    image = inspect(runtime, name, "{{.Image}}")
    digests = _ask(runtime, "image", "inspect", "-f", "{{json .RepoDigests}}", image) if image else None
    try:
        known = json.loads(digests) if digests else None
    except ValueError:
        known = None
    return {"container_image_id": image, "container_image_digests": known if isinstance(known, list) else None}


def _ask(runtime: str, *arguments: str, wait_s: float = ASK_S) -> str | None:
    try:
        done = subprocess.run([runtime, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=wait_s)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
