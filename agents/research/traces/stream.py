"""A JSON file of any size as a stream of its values, in bounded memory. Plain or gzip; a file that is cut off or broken
gives what stood before the break, and then StreamBroken.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from agents.research.regular_file import open_regular

CHUNK_BYTES = 1 << 20
PACKED_BYTES = 8 << 10  # of gzip at a time: where it is damaged, what this much held is lost
MOST_BYTES = 4 << 30  # unpacked; a gzip bomb or a week of tracing ends here
MOST_VALUE_CHARS = 16 << 20  # one event or one metadata value; a torch event has about 300, one with stacks 10,000
_space: Callable[[str, int], re.Match[str]] = re.compile(r"[ \t\r\n]*").match  # type: ignore[assignment]

Path_ = tuple[str, ...]  # keys from the root; "*" stands for an element of a list


class StreamBroken(ValueError):
    """The file ends early or is not what it should be. One line."""


def open_bytes(path: Path) -> Iterator[bytes]:
    """The file's bytes, unpacked where they are gzip (by content, not by name). Raises OSError, and StreamBroken after
    the last byte that could be had."""
    given = 0
    with open_regular(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        size = PACKED_BYTES if packed else CHUNK_BYTES
        pieces = iter(lambda: file.read(size), b"")
        for piece in _unpacked(pieces) if packed else pieces:
            given += len(piece)
            yield piece
            if given > MOST_BYTES:
                raise StreamBroken(f"longer than {MOST_BYTES >> 30} GiB; only that much was read")


def _unpacked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    for piece in pieces:
        while piece:
            if unpack.eof:  # a gzip file may hold several members
                unpack = zlib.decompressobj(wbits=31)
            try:
                yield unpack.decompress(piece, CHUNK_BYTES)
            except zlib.error as error:
                raise StreamBroken(f"the gzip data is damaged ({error})") from None
            piece = unpack.unused_data or unpack.unconsumed_tail
    if not unpack.eof:
        yield unpack.flush()
        raise StreamBroken("the gzip data is cut off")


class Text:
    """A window that slides over the text."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        self._raw = json.JSONDecoder().raw_decode
        self.text = ""
        self.at = 0
        self.before = 0  # characters dropped in front of the window
        self.ended = False
        self.fault = ""  # why the bytes ended, if not in peace

    def more(self) -> bool:
        """At least doubles what is left of the window. False where nothing more came."""
        left = self.text[self.at :]
        self.before += self.at
        parts, size = [left], 0
        while not self.ended and size < max(len(left), 1):
            try:
                piece = next(self._pieces, None)
            except StreamBroken as broken:
                self.fault, piece = str(broken), None
            self.ended = piece is None
            parts.append(self._decode(piece or b"", self.ended))
            size += len(parts[-1])
        self.text, self.at = "".join(parts), 0
        return size > 0

    def peek(self) -> str:
        """The next character that is not white space, or "" at the end."""
        while True:
            self.at = _space(self.text, self.at).end()
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def value(self) -> Any:
        """The next value, whole. Call after peek()."""
        while True:
            try:
                value, end = self._raw(self.text, self.at)
            except RecursionError:
                raise self.broken("nested too deep") from None
            except ValueError:  # cut by the window's edge, or not JSON: tell by looking further
                if len(self.text) - self.at > MOST_VALUE_CHARS:
                    raise self.broken("not JSON") from None
                if not self.more():
                    raise self.broken("cut off or no JSON") from None
            else:
                took = end - self.at
                if end + 3 > len(self.text) and isinstance(value, int | float) and self.more():
                    continue  # "12" may go on as "123", "12." as "12.5", "12e+" as "12e+3"
                self.at += took
                return value

    def broken(self, what: str) -> StreamBroken:
        return StreamBroken(f"{self.fault or what} after {self.before + self.at} characters")


def walk(text: Text, opens: Callable[[Path_], bool], path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """(path, value) of everything below the containers that `opens` says to go into; anything else is decoded whole,
    and must be under MOST_VALUE_CHARS. A comma before a closing bracket is let pass. Raises StreamBroken."""
    first = text.peek()
    if first not in ("[", "{") or not opens(path):
        if not first:
            raise text.broken("ends early")
        yield path, text.value()
        return
    text.at += 1
    closing, here = ("]", (*path, "*")) if first == "[" else ("}", path)
    enters = first == "{" or opens(here)
    while (char := text.peek()) != closing:
        if first == "{":
            key = text.value() if char == '"' else None
            if not isinstance(key, str) or text.peek() != ":":
                raise text.broken("not JSON")
            text.at += 1
            here = (*path, key)
            text.peek()
        if enters:
            yield from walk(text, opens, here)
        else:
            if not char:
                raise text.broken("ends early")
            yield here, text.value()
        char = text.peek()
        if char == ",":
            text.at += 1
        elif char != closing:
            raise text.broken("not JSON" if char else "ends early")
    text.at += 1
