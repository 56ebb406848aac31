"""Traces that are cut off, damaged or no traces: what can be read counts, a line says the rest, nothing crashes."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from agents.research.readers.traces import look
from agents.research.traces import stream
from agents.research.traces.events import nanoseconds
from agents.research.traces.read import TraceError, read_trace
from agents.research.traces.stream import StreamBroken, Text, walk
from tests.agents.examples import dossier
from tests.agents.traces_example import gpu, night, text, write


def values(pieces: list[bytes], depth: int = 9) -> list[Any]:
    return list(walk(Text(pieces), lambda path: len(path) < depth))


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_a_value_may_be_cut_anywhere_by_the_pieces(size: int) -> None:
    raw = ' {"a": [1, 23.5e1, "x\\"]\\u00e4ä", {"b": [] , "c": {}}], "d" :null,\n"e":[[2],],}'.encode()
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    assert values(pieces) == [
        (("a", "*"), 1),
        (("a", "*"), 235.0),
        (("a", "*"), 'x"]ää'),
        (("d",), None),
        (("e", "*", "*"), 2),
    ]
    assert next(walk(Text(pieces), lambda path: not path)) == (("a",), [1, 235.0, 'x"]ää', {"b": [], "c": {}}])


@pytest.mark.parametrize(
    "raw", ["", "   ", "{", "[1", '{"a"', '{"a":', '{"a" 1}', "[1 2]", "{1: 2}", "[tru]", "[" * 9999]
)
def test_what_is_no_json_ends_the_stream(raw: str) -> None:
    with pytest.raises(StreamBroken, match="after [0-9]+ characters"):
        values([raw.encode()])


def test_what_stood_before_the_cut_counts(tmp_path: Path) -> None:
    whole = gzip.compress(text([gpu(f"k{i}", 10 * i, 5) for i in range(4000)]).encode())
    for name, raw in (("half.json.gz", whole[: len(whole) // 2]), ("broken.json.gz", whole[:-999] + b"x" * 999)):
        (tmp_path / name).write_bytes(raw)
        trace = read_trace(tmp_path / name)
        assert 500 < trace.phases[0].launches < 4000
        assert trace.warnings[0].startswith("the gzip data is") and "events before that count" in trace.warnings[0]
    trap = look(dossier(traces=(str(tmp_path / "half.json.gz"),)))[0]
    assert trap.kind == "trap" and trap.title.startswith(
        "The figures of half.json.gz are to be read with care: the gzip data"
    )


def test_plain_text_that_is_cut_and_then_wrong(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(text(night())[:-60])
    assert "cut off or no JSON" in read_trace(path).warnings[0]
    path.write_text(text(night()).replace('"hipGraphLaunch"', "hipGraphLaunch"))
    with pytest.raises(TraceError, match="no GPU work in it.*; the 6 events before that count"):
        read_trace(path)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b"\x1f\x8b", "the gzip data is cut off"),
        (b"PK\x03\x04 a zip", "neither JSON nor a CSV"),
        (b"\x00" * 300_000, "a line of more than 100000 characters"),
        (b"{}", "JSON without traceEvents"),
        (b'{"traceEvents": 3}', "JSON without traceEvents"),
        (b'{"traceEvents": []}', "JSON without traceEvents"),
        (b'{"traceEvents": [1, null, {}, {"ph": "X", "cat": 4}]}', "no GPU work in it"),
        (b'{"rocprofiler-sdk-tool": []}', "no GPU work in it"),
        (b'{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [{', "cut off or no JSON"),
        (b"Kernel_Name,Start_Timestamp,End_Timestamp\n", "no GPU work in it"),
        (b"Kernel_Name,Start_Timestamp,End_Timestamp\na,9,1\nb,x,y\nc\n", "3 of 3 GPU events have no usable time"),
    ],
)
def test_no_trace_is_one_line(tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(raw)
    (finding,) = look(dossier(traces=(str(path),)))
    assert finding.kind == "trap" and says in finding.title and "\n" not in finding.title
    assert finding.title.startswith("A trace cannot be read: t.json: ")


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name, says in (
        ("absent", "No such file"),
        (".", "not a regular"),
        ("pipe", "not a regular"),
        ("loop", "symbolic"),
    ):
        with pytest.raises(TraceError, match=says):
            read_trace(tmp_path / name)


@pytest.mark.parametrize("start", [b"\0", b'{"a": "', b'{"traceEvents": [{"a": "', b"Kernel_Name,"])
def test_a_200_mb_file_of_nothing_is_left_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    read = 0
    chunks = stream.open_bytes

    def counted(path: Path) -> Any:
        nonlocal read
        for piece in chunks(path):
            read += len(piece)
            yield piece

    monkeypatch.setattr("agents.research.traces.read.open_bytes", counted)
    with (tmp_path / "junk").open("wb") as file:
        file.write(start)
        file.truncate(200_000_000)
    with pytest.raises(TraceError):
        read_trace(tmp_path / "junk")
    assert read <= 2.1 * stream.MOST_VALUE_CHARS


def test_a_gzip_bomb_is_left_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_BYTES", 5 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (12 << 20), compresslevel=1))
    with pytest.raises(TraceError, match="only that much was read"):
        read_trace(path)


def test_events_without_usable_times_are_counted_and_left_out(tmp_path: Path) -> None:
    good = [gpu("gemm", "1000.5", "10", 1), gpu("gemm", 2000, 0)]
    bad: list[dict[str, Any]] = [
        gpu("gemm", None, 1),
        gpu("gemm", 1, -1),
        gpu("gemm", "soon", 1),
        gpu("gemm", True, 1),
        gpu("gemm", 10**400, 1),
        gpu("gemm", 1, 1e12),
        {"ph": "X", "cat": "kernel"},
    ]
    odd = [
        gpu("a\ud800\nb", 1, 1, 5, args=[1], pid={}),
        gpu("c", 3, 1, args={"correlation": "7"}),
        {"ph": "X", "cat": []},
    ]
    trace = read_trace(write(tmp_path, good + bad + odd))
    assert trace.warnings[-2] == "7 of 11 GPU events have no usable time and are left out"
    assert nanoseconds(float("nan")) is None and nanoseconds("inf") is None and nanoseconds(1.5) == 1500
    single = read_trace(write(tmp_path, odd[:1], "one.json"))
    assert single.phases[0].top[0].name == "a? b"


def test_damaged_bytes_never_crash(tmp_path: Path) -> None:
    rng = random.Random(5)
    whole = bytearray(text(night()).encode())
    outcomes = set()
    for number in range(80):
        raw = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randrange(3)] = bytes(rng.randrange(256) for _ in range(rng.randrange(3)))
        path = tmp_path / f"{number}.json"
        path.write_bytes(raw)
        outcomes |= {finding.kind for finding in look(dossier(traces=(str(path),)))}
    assert outcomes == {"fact", "trap"}


def test_only_so_many_traces_are_read(tmp_path: Path) -> None:
    path = str(write(tmp_path, night()))
    assert "2 traces were not read" in look(dossier(traces=(path,) * 18))[0].title


# --- rocprofv3 ------------------------------------------------------------------------------------------------------


def test_a_rocprof_csv(tmp_path: Path) -> None:
    path = tmp_path / "1_kernel_trace.csv"
    path.write_text(
        '"Kind","Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n'
        '"KERNEL_DISPATCH","Agent 4","void gemm<float, 2>(float*, int)",1000,4000\n'
        '"KERNEL_DISPATCH","Agent 4","attn_fwd",3000,6000\n"KERNEL_DISPATCH","Agent 5","attn_fwd",0,1000\n'
    )
    trace = read_trace(path)
    (phase,) = trace.phases
    assert (trace.how, trace.devices, phase.phase, phase.steps) == ("no steps", 2, "unknown", 0)
    assert (phase.wall_ms, phase.kernel_ms, phase.categories) == (0.005, 0.005, {"gemm": 0.003, "attention": 0.003})
    path.write_text("Kind,Direction,Start_Timestamp,End_Timestamp\nMEMORY_COPY,HOST_TO_DEVICE,10,30\n")
    assert read_trace(path).phases[0].copy_ms == 2e-05


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("names_first", [True, False])
def test_a_rocprof_json(tmp_path: Path, names_first: bool, listed: bool) -> None:
    def dispatch(kernel: int, start: int, end: int) -> dict[str, Any]:
        info = {"agent_id": {"handle": 4}, "queue_id": {"handle": 1}, "kernel_id": kernel, "grid_size": {"x": 1}}
        return {"kind": 11, "dispatch_info": info, "start_timestamp": start, "end_timestamp": end}

    names = {"kernel_symbols": [{"kernel_id": 7, "formatted_kernel_name": "attn_fwd", "kernel_name": "_Z8attn_fwd.kd"}]}
    copies = [{"kind": 4, "start_timestamp": 6000, "end_timestamp": 7000, "dst_agent_id": {"handle": 9}}]
    records = {"buffer_records": {"kernel_dispatch": [dispatch(7, 1000, 5000), dispatch(8, 5000, 6000)]}}
    records["buffer_records"]["memory_copy"] = copies
    tool = {"metadata": {"pid": 1, "command": ["x"]}} | (names | records if names_first else records | names)
    path = tmp_path / "1_results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool] if listed else tool}))
    (phase,) = read_trace(path).phases
    assert [(k.name, k.category, k.time_ms) for k in phase.top] == [
        ("attn_fwd", "attention", 0.004),
        ("kernel 8", "other", 0.001),
    ]
    assert (phase.wall_ms, phase.kernel_ms, phase.copy_ms) == (0.006, 0.005, 0.001)
