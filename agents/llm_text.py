"""What may be kept of a text that a model or its server wrote: no key, no control characters, bounded JSON. Pure."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

HIDDEN = "[key]"  # what stands where a key stood
LONG_KEY = 8  # characters; a shorter one ("EMPTY", "x") is hidden only where it stands as a word of its own
MOST_DEPTH = 12  # of JSON that a model writes
MOST_STARTS = 50  # places where an object may begin that are tried

# Control, format (zero width, direction), half surrogates, private use, separators of lines and paragraphs: none of
# them has business on a terminal.
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def visible(text: str) -> str:
    """Without characters that steer a terminal or cannot be seen; newlines and tabs stay."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _UNSEEN)


def without_keys(text: str, keys: Iterable[str]) -> str:
    """`text` with each key, in any case and also percent-encoded, replaced by HIDDEN."""
    for key in keys:
        for form in dict.fromkeys((key, quote(key, safe=""))):
            pattern = re.escape(form)
            text = re.sub(pattern if len(key) >= LONG_KEY else rf"(?<!\w){pattern}(?!\w)", HIDDEN, text, flags=re.I)
    return text


def safe(text: str, keys: Iterable[str] = ()) -> str:
    """Visible, then without keys: in this order, so that a key with an unseen character in it is found too."""
    return without_keys(visible(text), keys)


def one_line(text: str, most: int = 300) -> str:
    """Visible, on one line, cut to `most` characters. Keys have to be out of it before: half a key is not found."""
    line = " ".join(visible(text).split())
    return line if len(line) <= most else line[: most - 3] + "..."


def read_object(text: str, keys: Iterable[str] = ()) -> dict[str, Any] | None:
    """The JSON object that `text` is, else the first one in it, with all of its texts safe; None where there is none
    (numbers that are not finite and deeper than MOST_DEPTH count as none)."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    starts = [m.start() for m, _ in zip(re.finditer(r"\{", text), range(MOST_STARTS), strict=False)]
    for start in starts:
        try:
            found, _ = decoder.raw_decode(text, start)
            if isinstance(found, dict):
                clean = _safe_json(found, tuple(keys), 0)
                return clean if isinstance(clean, dict) else None
        except (ValueError, RecursionError):
            continue
    return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _safe_json(value: Any, keys: tuple[str, ...], depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return safe(value, keys)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number without end")
    if isinstance(value, list):
        return [_safe_json(v, keys, depth + 1) for v in value]
    if isinstance(value, dict):
        return {safe(k, keys): _safe_json(v, keys, depth + 1) for k, v in value.items()}
    return value
