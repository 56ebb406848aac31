"""What a change says of its values: one short line, the same on the console, in the ledger's reports and in commits."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from contracts import Change, Lever
from ledger.words import change_words

ROW: JsonValue = {"BLOCK_SIZE_M": 16, "num_warps": 4}
PATCH = "--- a/vllm/envs.py\n+++ b/vllm/envs.py\n@@ -1 +1 @@\n-A = 1\n+A = 2\n"


@pytest.mark.parametrize(
    ("lever", "value", "words"),
    [
        (Lever.ENGINE_FLAG, None, "default"),
        (Lever.ENGINE_FLAG, False, "false"),
        (Lever.ENGINE_FLAG, 0.9, "0.9"),
        (Lever.ENVIRONMENT, "0-1", "0-1"),
        (Lever.COMPILATION, [1, 2, 4], "[1, 2, 4]"),
        (Lever.COMPILATION, [8 * n for n in range(1, 65)], "64 values: 8, 16, 24, ..., 512"),
        (Lever.MOE_TABLE, ROW, '{"BLOCK_SIZE_M": 16, "num_warps": 4}'),
        (Lever.MOE_TABLE, {"128": ROW, "16": ROW, "64": ROW}, "3 rows: 16, 64, 128"),
        (Lever.MOE_TABLE, {str(2**n): ROW for n in range(12)}, "12 rows: 1, 2, 4, ..."),
        (Lever.SOURCE_PATCH, PATCH, "vllm/envs.py +1/-1"),
    ],
)
def test_the_same_words_everywhere(lever: Lever, value: JsonValue, words: str) -> None:
    unset = "not patched" if lever is Lever.SOURCE_PATCH else "default"
    change = Change(lever=lever, key="key", after=value)
    assert str(change) == f"{lever}: key: {unset} -> {words}"
    assert change_words(change) == f"key: {unset} → {words}"


@pytest.mark.parametrize("value", ["x" * 5000, {"a": "x" * 5000}, {"x" * 5000: ROW, "b": ROW}, ["x" * 5000] * 40])
def test_no_value_floods_a_line(value: JsonValue) -> None:
    words = str(Change(lever=Lever.ENGINE_FLAG, key="key", after=value))
    assert words.endswith(" ...") and len(words) < 200
