"""spec.overlay as files beside engine.json, one for each table row and patch: a commit's diff is then the change as a
person would write it, and a patch is ready for `git apply`. Pure: paths and contents, no disk.

overlay/<lever>/<key>.patch holds a patch as it is, <key>.json any other value. A key's slashes are folders; what a
path cannot hold of it is written %XX, and a name too long for a file system goes on behind "%/" (a row of AITER's fused
MoE has a key of 260 characters), so that each key has one path and each path one key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote, unquote

from pydantic import JsonValue

from contracts import Lever

_SAFE = " #=,+@()[]{}!&;'"
_ENDS = (".json", ".patch")
_LONGEST = 200  # bytes of one name: file systems take 255, and the name gets an ending and one while it is written


def files(overlay: Mapping[Lever, Mapping[str, JsonValue]]) -> dict[str, bytes]:
    """Path relative to the overlay's folder -> content."""
    found: dict[str, bytes] = {}
    for lever, section in overlay.items():
        for key, value in section.items():
            path = f"{lever.value}/{_path(key)}"
            if lever is Lever.SOURCE_PATCH and isinstance(value, str):
                found[f"{path}.patch"] = value.encode(errors="surrogatepass")
            else:
                found[f"{path}.json"] = (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
    return found


def overlay_of(held: Mapping[str, bytes]) -> dict[Lever, dict[str, JsonValue]]:
    """What `files` made these from; other files count for nothing. Raises ValueError for a damaged one."""
    overlay: dict[Lever, dict[str, JsonValue]] = {}
    for path, content in sorted(held.items()):
        folder, _, rest = path.partition("/")
        if folder not in set(Lever) or not rest.endswith(_ENDS):
            continue
        stem, _, end = rest.rpartition(".")
        value = content.decode(errors="surrogatepass") if end == "patch" else json.loads(content)
        overlay.setdefault(Lever(folder), {})[_key(stem)] = value
    return overlay


def _path(key: str) -> str:
    *folders, name = (quote(part, safe=_SAFE, errors="surrogatepass") for part in key.split("/"))
    # A folder that is called like a file of ours would stand in its way ("a.json/b" beside "a").
    parts = [part for folder in folders for part in _pieces(_plain(folder), folder=True)]
    return "/".join([*parts, *_pieces(name, folder=False)])


def _plain(folder: str) -> str:
    if folder.endswith(_ENDS) or folder.lower() in ("", ".", "..", ".git"):
        return folder.replace(".", "%2E") or "%"
    return folder


def _pieces(name: str, folder: bool) -> list[str]:
    """The name, or folders of a part of it each, with a "%" behind, and the rest. A "%" ends no name by itself."""
    found = []
    while len(name) > _LONGEST:
        found.append(name[:_LONGEST] + "%")
        name = name[_LONGEST:]
    return [*found, _plain(name) if folder and found else name]


def _key(path: str) -> str:
    found = [""]
    for part in path.split("/"):
        whole = part == "%" or not part.endswith("%")
        found[-1] += "" if part == "%" else part if whole else part[:-1]
        found += [""] if whole else []
    return "/".join(unquote(part, errors="surrogatepass") for part in found[:-1])
