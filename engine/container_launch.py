"""One launch in a container: what engine/container.py needs to know, gathered."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cards.installed import installed
from cards.visible import engine_cards
from contracts import Card, EngineSpec
from engine import command, container, container_card
from engine.caches import build_folder
from engine.own_plugins import LISTED
from engine.placement import Placement

SHARED = "modelinfos"  # night/artifacts/modelinfos, to which each spec's cache has a link


@dataclass(frozen=True)
class Boxed:
    line: list[str]
    env: dict[str, str]  # of the client
    cidfile: Path


def in_container(
    spec: EngineSpec,
    inner: list[str],
    placement: Placement,
    shims: tuple[Path, ...],
    cache: Path,
    folder: Path,
    launch_id: str,
    nonce: str,
    card: Card | None,
) -> Boxed:
    """`inner` is the engine's own command line, `cache` the spec's cache folder (night/artifacts/compile_cache/<spec>),
    `folder` the launch's (night/artifacts/launches/<launch>). Makes the folders that the container may write in."""
    assert spec.container is not None
    artifacts, build = cache.parent.parent, build_folder(spec, cache)
    listed = installed(spec.python, spec.container).vllm_plugins  # asked at the launch's start already, and kept
    of_image = {} if listed is None else {LISTED: listed}
    own = command.own_environment(spec, cache, shims, placement, of_image)
    env = container.inside_environment(own, cache)
    writable = [folder / "cwd", cache, build, artifacts / SHARED]
    for place in (*writable, cache / "home"):
        place.mkdir(parents=True, exist_ok=True)
    cidfile = folder / f"container-{nonce}.cid"  # a lost launch of the same id had another nonce
    identity = container.Identity(
        name=f"nightgate-{launch_id}-{nonce}", launch_id=launch_id, nonce=nonce, cidfile=str(cidfile),
        cwd=str(folder / "cwd"), uid=os.getuid(), gid=os.getgid(),
    )  # fmt: skip
    mounts = container.engine_mounts(spec, placement, shims, writable, artifacts.parent)
    access = container_card.access(spec.container, card, engine_cards(spec.flags))
    line = container.run_command(spec.container, inner, env, mounts, identity, access)
    return Boxed(line, container.client_environment(env, os.environ), cidfile)
