"""The JSON Schema of a ledger line, for readers in other languages."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from contracts import Event
from ledger.schema import KINDS


def json_schema() -> dict[str, Any]:
    """One schema for any line of a ledger: which data belongs to a line is told by its `kind`."""
    refs, shared = models_json_schema([(model, "serialization") for model in KINDS.values()])
    event = Event.model_json_schema()
    event["properties"]["kind"] = {"enum": list(KINDS)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a nightgate ledger",
        "description": (
            "hash: SHA-256 of the line's canonical JSON (sorted keys, no spaces, UTF-8) without the field hash. "
            "prev: the hash of the line before, 64 zeros in the first. seq: the line's number from 1. at: UTC."
        ),
        **{key: event[key] for key in ("type", "properties", "required", "additionalProperties")},
        "oneOf": [
            {"properties": {"kind": {"const": kind}, "data": refs[model, "serialization"]}}
            for kind, model in KINDS.items()
        ],
        "$defs": shared["$defs"],
    }
