"""Which of a patch's functions ran, from the lines of the watcher. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import JsonValue

from agents.tuning.seen import Seen, of_kind
from contracts import Frozen


class Ran(Frozen):
    """Of all files of one patch that an arm's processes imported; a function is named without its file."""

    words: dict[str, dict[str, JsonValue]]  # path in the patch -> function -> how it was seen, or that it was not
    seen: dict[str, str]  # function -> "called", "traced by torch.compile", "compiled by Triton"
    not_seen: tuple[str, ...]
    unseen: tuple[str, ...]  # those that the watcher cannot see
    module: bool  # code outside of functions is changed
    more: bool  # there are functions that were not listed


def ran(patch: str, wanted: Iterable[str], lines: tuple[Seen, ...]) -> Ran | None:
    """None where no process told of this patch: an older watcher, or its list could not be read."""
    heads, watched = list[dict[str, object]](), dict[tuple[str, str], bool]()
    paths = tuple(wanted)
    for data in of_kind(lines, "code"):
        file, name = str(data.get("file")), data.get("function")
        path = next((path for path in paths if file.endswith(f"/{path}")), None)
        if data.get("patch") != patch or path is None:
            continue
        if name is None:
            heads.append(data)
        else:
            watched[path, str(name)] = bool(data.get("watched")) and watched.get((path, str(name)), True)
    if not heads and not watched:
        return None
    how = dict[tuple[str, str], str]()
    for data in of_kind(lines, "called"):
        for path, name in watched:
            if name == data.get("function") and str(data.get("file")).endswith(f"/{path}"):
                how.setdefault((path, name), str(data.get("how")))
    words: dict[str, dict[str, JsonValue]] = {}
    for at, visible in watched.items():
        words.setdefault(at[0], {})[at[1]] = how.get(at) or ("not called" if visible else "cannot be seen")
    return Ran(
        words=words,
        seen={name: how[path, name] for path, name in watched if (path, name) in how},
        not_seen=tuple(name for (path, name), visible in watched.items() if visible and (path, name) not in how),
        unseen=tuple(name for (path, name), visible in watched.items() if not visible and (path, name) not in how),
        module=any(bool(head.get("module")) for head in heads),
        more=any(bool(head.get("more")) for head in heads),
    )
