"""spec.overlay as files beside engine.json, one for each table row and patch: a commit's diff is then the change as a
person would write it, and a patch is ready for `git apply`. Pure: paths and contents, no disk.

overlay/<lever>/<key>.patch holds a patch as it is, <key>.json any other value. A key's slashes are folders; what a
path cannot hold of it is written %XX, so that each key has one path and each path one key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote, unquote

from pydantic import JsonValue

from contracts import Lever

_SAFE = " #=,+@()[]{}!&;'"
_ENDS = (".json", ".patch")


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
    return "/".join([*(_plain(part) for part in folders), name])


def _plain(folder: str) -> str:
    if folder.endswith(_ENDS) or folder.lower() in ("", ".", "..", ".git"):
        return folder.replace(".", "%2E") or "%"
    return folder


def _key(path: str) -> str:
    return "/".join("" if part == "%" else unquote(part, errors="surrogatepass") for part in path.split("/"))
