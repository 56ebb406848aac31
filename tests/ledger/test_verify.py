"""verify finds any single change to a ledger, and says the first bad line in words."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.jsonschema import json_schema
from ledger.line import GENESIS, encode
from ledger.log import Ledger
from ledger.schema import KINDS, GateSealed, GateUnsealed, Warned
from ledger.verify import verify
from tests.ledger.nights import interrupted_night, running_night

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interrupted_night(tmp_path_factory.mktemp("night"))


@pytest.fixture(scope="module")
def whole(night: Path) -> bytes:
    return (night / "ledger.jsonl").read_bytes()


def verify_bytes(night: Path, changed: bytes, folder: Path) -> int | None:
    """The first bad line of the night with other bytes in its ledger; its head stays as it was."""
    (folder / "ledger.jsonl").write_bytes(changed)
    (folder / "ledger.head").write_bytes((night / "ledger.head").read_bytes())
    found = verify(folder)
    assert found.ok == (found.first_bad_line is None)
    assert found.ok or f"line {found.first_bad_line}" in found.reason
    return found.first_bad_line


def test_an_untouched_night_is_good(night: Path, whole: bytes, tmp_path: Path) -> None:
    assert verify(night).ok and verify(night / "ledger.jsonl").lines == whole.count(b"\n")
    assert verify_bytes(night, whole, tmp_path) is None


@QUICK
@given(data=st.data())
def test_any_changed_byte_is_found_in_its_line(data: st.DataObject, night: Path, whole: bytes, tmp_path: Path) -> None:
    place = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != whole[place]))
    line = whole[:place].count(b"\n") + 1
    assert verify_bytes(night, whole[:place] + bytes([byte]) + whole[place + 1 :], tmp_path) == line


@QUICK
@given(data=st.data())
def test_any_dropped_repeated_or_swapped_line_is_found(
    data: st.DataObject, night: Path, whole: bytes, tmp_path: Path
) -> None:
    lines = whole.splitlines(keepends=True)
    first = data.draw(st.integers(0, len(lines) - 1))
    second = data.draw(st.integers(0, len(lines) - 1).filter(lambda other: other != first))
    dropped = lines[:first] + lines[first + 1 :]
    repeated = lines[:first] + [lines[first]] + lines[first:]
    moved = lines[:]
    moved[first], moved[second] = moved[second], moved[first]
    assert verify_bytes(night, b"".join(dropped), tmp_path) == first + 1
    assert verify_bytes(night, b"".join(repeated), tmp_path) == first + 2
    assert verify_bytes(night, b"".join(moved), tmp_path) == min(first, second) + 1


@QUICK
@given(cut=st.integers(1, 20_000), data=st.data())
def test_any_cut_or_added_bytes_are_found(
    cut: int, data: st.DataObject, night: Path, whole: bytes, tmp_path: Path
) -> None:
    assert verify_bytes(night, whole[:-cut], tmp_path) is not None
    place = data.draw(st.integers(0, len(whole)))
    assert verify_bytes(night, whole[:place] + data.draw(st.binary(min_size=1)) + whole[place:], tmp_path) is not None


def test_a_change_that_means_the_same_is_a_change(night: Path, whole: bytes, tmp_path: Path) -> None:
    assert verify_bytes(night, whole.replace(b'"seq":3}', b'"seq": 3}'), tmp_path) == 3
    assert verify_bytes(night, whole.replace(b"x86_64", b"x86\\u005f64", 1), tmp_path) is not None


def test_a_rewritten_chain_is_found_by_what_the_schema_and_the_head_remember(tmp_path: Path) -> None:
    with Ledger.create(tmp_path) as ledger:
        for _ in range(3):
            ledger.append("warned", Warned(message="true"))
    forged, prev = b"", GENESIS
    for seq in (1, 2, 3):
        event, raw = encode(seq, "2026-11-29T00:00:00+00:00", "warned", Warned(message="forged"), prev)
        forged, prev = forged + raw, event.hash
    (tmp_path / "ledger.jsonl").write_bytes(forged)
    assert "ledger.head" in verify(tmp_path).reason and verify(tmp_path).first_bad_line == 3
    (tmp_path / "ledger.head").unlink()
    assert verify(tmp_path).ok and "no ledger.head" in verify(tmp_path).reason, "without it, it says what it cannot see"


def test_the_reason_is_in_words(night: Path, whole: bytes, tmp_path: Path) -> None:
    lines = whole.splitlines(keepends=True)

    def reason(*parts: bytes) -> str:
        verify_bytes(night, b"".join(parts), tmp_path)
        return verify(tmp_path).reason

    assert reason(*lines[:4], *lines[5:]) == (
        "line 5: it is number 6 where 5 belongs: lines were dropped, repeated or swapped"
    )
    assert "it is missing" in reason(*lines[:-1])
    assert "not JSON" in reason(lines[0], b"[" * 100_000 + b"\n")
    assert "torn" in reason(*lines[:2], lines[2][:-1])
    assert "other fields" in reason(b'{"a":1}\n')
    unknown = lines[0].replace(b'"kind":"night_started"', b'"kind":"night_begun"')
    assert "does not match its hash" in reason(unknown)


def test_another_secret_than_the_sealed_one_is_found(tmp_path: Path) -> None:
    """The chain is whole, but the gate's secret prompts were not made from what was promised at the start."""
    with Ledger.create(tmp_path) as ledger:
        ledger.append("gate_sealed", GateSealed(secret_sha256=sha256(b"a" * 32).hexdigest()))
        ledger.append("gate_unsealed", GateUnsealed(secret="a" * 32))
        assert verify(tmp_path).ok
        ledger.append("gate_unsealed", GateUnsealed(secret="b" * 32))
        ledger.append("gate_sealed", GateSealed(secret_sha256=sha256(b"b" * 32).hexdigest()))  # too late a promise
    assert verify(tmp_path).first_bad_line == 3 and "its secret is not the one" in verify(tmp_path).reason


def test_odd_paths_and_empty_nights(tmp_path: Path) -> None:
    assert "cannot read" in verify(tmp_path / "nothing").reason and not verify(tmp_path / "nothing").ok
    with Ledger.create(tmp_path):
        assert verify(tmp_path).ok and verify(tmp_path).lines == 0


def test_a_running_night_can_be_verified_in_the_middle_of_a_line(tmp_path: Path) -> None:
    night = running_night(tmp_path)
    with (tmp_path / "ledger.jsonl").open("ab") as file:
        file.write(b'{"at":')
    assert verify(tmp_path).ok
    night.ledger.close()
    assert verify(tmp_path).ok, "closing took the partial line back"


def test_a_huge_ledger_is_streamed(tmp_path: Path) -> None:
    prev, text = GENESIS, "x" * 20_000
    with (tmp_path / "ledger.jsonl").open("wb") as file:
        for seq in range(1, 601):
            event, raw = encode(seq, "2026-11-29T00:00:00+00:00", "warned", Warned(message=text), prev)
            prev = event.hash
            file.write(raw)
    tracemalloc.start()
    try:
        assert verify(tmp_path).lines == 600
        assert tracemalloc.get_traced_memory()[1] < 2 << 20, "12 MB of ledger, in less than 2 MB of memory"
    finally:
        tracemalloc.stop()


def test_the_json_schema_names_every_kind_and_every_field(tmp_path: Path) -> None:
    schema = json_schema()
    assert {branch["properties"]["kind"]["const"] for branch in schema["oneOf"]} == set(KINDS)
    for branch in schema["oneOf"]:
        name = branch["properties"]["data"]["$ref"].removeprefix("#/$defs/")
        assert set(schema["$defs"][name]["properties"]) == set(
            KINDS[branch["properties"]["kind"]["const"]].model_fields
        )
    assert set(schema["required"]) == {"seq", "at", "kind", "data", "prev", "hash"}
