"""The installed trees before the first engine and after the last: is what the night laid things over what it was?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agents.context import Night
from agents.tuning.installed_trees import Looking, names, seen_after, seen_before
from contracts import EngineSpec
from ledger.schema import InstalledTrees


@contextmanager
def beside(night: Night, base: EngineSpec) -> Iterator[None]:
    """Hashes the trees beside what is done inside (the first engine's start) and writes them down after it. After a
    resume what the first start saw counts, and nothing is done. A start that broke off is not waited for. An image's
    files are not this machine's, and a container is thrown away with what was written in it: nothing is compared."""
    if before(night) is not None or base.container is not None:
        yield
        return
    looking = Looking(base.python, names(base, night.config.try_first))
    try:
        yield
    except BaseException:
        looking.give_up()
        raise
    seen = looking.result()
    if seen is not None:
        night.emit("installed_trees", seen_before(night.folder, *seen))


def compare(night: Night, base: EngineSpec) -> None:
    """Once more, engines gone. Changed files are a loud warning and no other exit code: the night's own work is done,
    and its verdicts stand or fall by what they say themselves."""
    known = before(night)
    if known is None:
        return
    seen = Looking(base.python, tuple(known.trees)).result()
    if seen is None:
        night.warn(f"{base.python} does not say where its packages are any more: the installed files are not compared")
        return
    after = seen_after(night.folder, known, *seen)
    night.emit("installed_trees", after)
    if not after.identical:
        night.warn(f"{after.changed_count} installed files changed during the night: {', '.join(after.changed[:3])}")


def before(night: Night) -> InstalledTrees | None:
    """What the night's first start saw."""
    for event in night.ledger.events:
        if event.kind == "installed_trees" and event.data["when"] == "before":
            return InstalledTrees.model_validate(event.data)
    return None
