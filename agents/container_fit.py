"""Can an engine's container be started here: the runtime, whoever answers for it, and the image?"""

from __future__ import annotations

import os
import shutil
import subprocess

from contracts import Container

ASK_S = 20.0  # milliseconds on an idle machine


def problem(container: Container, inside: str | None = None) -> tuple[str, str] | None:
    """(what is wrong, what to do), or None. `inside`: the kind of container that nightgate itself is in. Nothing is
    pulled and no container is made."""
    runtime, image = container.runtime, container.image
    other = "podman" if runtime == "docker" else "docker"
    if shutil.which(runtime) is None:
        instead = f", or set engine.container.runtime to {other}" if shutil.which(other) else ""
        return f"engine.container: {runtime} is not installed", _from_the_host(inside) or f"install it{instead}"
    away = os.environ.get("DOCKER_HOST" if runtime == "docker" else "CONTAINER_HOST", "")
    if away.startswith(("tcp://", "ssh://", "http")):
        what = f"engine.container: {runtime} speaks to another machine ({away})"
        return what, "unset it: an engine is only trusted where its process and its port can be seen"
    listed = [("mounts", text.split(":")[0]) for text in container.mounts]
    listed += [("devices", text.split(":")[0]) for text in container.devices if text.startswith("/")]
    for key, path in listed:
        if not os.path.exists(path):
            return f"engine.container.{key}: {path} is not on this host", "correct the path, or leave it out"
    version = "{{.Server.Version}}" if runtime == "docker" else "{{.Client.Version}}"
    code, said = _ask(runtime, "version", "--format", version)
    if code != 0:
        fix = "start its service, or add this user to the group docker" if runtime == "docker" else "see its own words"
        return f"engine.container: {runtime} does not answer ({said})", _from_the_host(inside) or fix
    code, said = _ask(runtime, "image", "inspect", "-f", "{{.Id}}", image)
    if code != 0:
        return f"engine.container: the image {image} is not here ({said})", f"fetch it: {runtime} pull {image}"
    return None


def _from_the_host(inside: str | None) -> str:
    if inside is None:
        return ""
    return (
        f"nightgate is in a container ({inside}) itself: start it on the host; or leave engine.container out and name "
        "this image's interpreter in NIGHTGATE_ENGINE_PYTHON"
    )


def _ask(*line: str) -> tuple[int, str]:
    """Exit code, and the last line that it said."""
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=ASK_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, f"nothing within {ASK_S:.0f} s"
    except OSError as error:
        return 127, error.strerror or str(error)
    said = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    return done.returncode, said[-1][:160] if said else "no words"
