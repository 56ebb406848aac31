"""What every noun is made of."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel, ConfigDict, JsonValue


class Frozen(BaseModel):
    """Plain, frozen, and strict about its keys: an unknown key is an error, not a comment."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def content_hash(value: JsonValue, length: int = 12) -> str:
    """First `length` hex digits of the SHA-256 of the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # surrogatepass: the name of a file that is no UTF-8, or "\ud800" in a source, counts as it stands.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]
