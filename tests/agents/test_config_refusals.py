"""Bad night files: one line a mistake, with file, line, key and what was expected; never a traceback."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.config import MOST_LINES, ConfigError, load_night
from tests.agents.night_files import FIRST_NIGHT, checkout, good, night, refused

__all__ = ["checkout"]  # a fixture


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"flags": "flgs: {a: 1}"}, "x.yaml:5: engine.flgs is not a key here; did you mean engine.flags?"),
        ({"model": "modle: tiny"}, "x.yaml:4: engine.modle is not a key here; did you mean engine.model?"),
        (
            {"model": "max_tries: 3\n  model: tiny"},
            "x.yaml:4: engine.max_tries is not a key here; did you mean judge.max_tries?",
        ),
        ({"minutes": "minutes: -3"}, "x.yaml:1: minutes must be above 0, got -3"),
        ({"minutes": "minutes: soon"}, "x.yaml:1: minutes must be a number, got the text 'soon'"),
        ({"minutes": "minutes: 1.0e+300"}, "x.yaml:1: minutes must be at most 44640 (31 days), got 1e+300"),
        (
            {"model": 'model: "\\ud800"'},
            "x.yaml:4: engine.model: holds half a character (\\ud800 to \\udfff); write the character itself",
        ),
        ({"minutes": "minutes: true"}, "x.yaml:1: minutes must be a number, got true"),
        ({"minutes": "minutes:"}, "x.yaml:1: minutes must be a number, got nothing"),
        (
            {"minutes": "minutes: 1:30"},
            "x.yaml:1: minutes: 1:30 is no plain finite number; write digits, or put a text in quotes",
        ),
        (
            {"minutes": "minutes: .inf"},
            "x.yaml:1: minutes: .inf is no plain finite number; write digits, or put a text in quotes",
        ),
        (
            {"minutes": "minutes: " + "9" * 5000},
            f"x.yaml:1: minutes: {'9' * 40} is no plain finite number; write digits, or put a text in quotes",
        ),
        (
            {"minutes": "minutes: 0.5"},
            "x.yaml:1: minutes is 0.5, all of it reserved (60 s) for confirmation and report; give more",
        ),
        ({"concurrency": "concurrency: 4.0"}, "x.yaml:8: workload.concurrency must be a whole number, got 4.0"),
        (
            {"concurrency": "rate_per_s: 1\n  concurrency: 4"},
            "x.yaml:7: workload: give either concurrency (closed loop) or rate_per_s (open loop), not both",
        ),
        (
            {"input_tokens": "input_tokens: [8]"},
            "x.yaml:11: workload.input_tokens has too few values; expected two, [lowest, highest]",
        ),
        (
            {"input_tokens": "input_tokens: [9, 8]"},
            "x.yaml:7: workload: input_tokens must be [low, high] with 1 <= low <= high",
        ),
        ({"requests": "reqests: 8"}, "x.yaml:9: workload.reqests is not a key here; did you mean workload.requests?"),
        ({"env": "env: {A: true}"}, "x.yaml:6: engine.env.A must be text, got true; put it in quotes"),
        (
            {"env": "env: {A B: x}"},
            "x.yaml:6: engine.env.A B is no environment variable's name: letters, digits, underscores",
        ),
        (
            {"env": "env: {PYTHONPATH: x}"},
            "x.yaml:6: engine.env.PYTHONPATH is set by nightgate; name folders in engine.plugin_paths",
        ),
        ({"env": "env: 3"}, "x.yaml:6: engine.env must be keys with values, got 3"),
        (
            {"flags": "flags: {max_num_seqs: 4}"},
            "x.yaml:5: engine.flags.max_num_seqs is written without leading dashes and with - for _: max-num-seqs",
        ),
        (
            {"flags": "flags: {--dtype: x}"},
            "x.yaml:5: engine.flags.--dtype is written without leading dashes and with - for _: dtype",
        ),
        ({"flags": "card: 0"}, "x.yaml:5: engine.card must be text, got 0; put it in quotes"),
        (
            {"flags": "card: '0'"},
            "x.yaml:5: engine.card is a number (0), and numbers change at a reboot; write the PCI address or the uuid",
        ),
        (
            {"flags": "card: mi50"},
            "x.yaml:5: engine.card must be a PCI address (0000:03:00.0; a part of a card: 0000:03:00.0#2) or a uuid "
            "(GPU-...), got mi50",
        ),
        ({"flags": "crad: '03:00.0'"}, "x.yaml:5: engine.crad is not a key here; did you mean engine.card?"),
        (
            {"flags": "card: '03:00.0'", "env": "env: {HIP_VISIBLE_DEVICES: 1}"},
            "x.yaml:5: engine.card and engine.env.HIP_VISIBLE_DEVICES both choose a card; keep one of them",
        ),
        (
            {"flags": "card: GPU-21501edcba987654\n  flags: {tensor-parallel-size: 2}"},
            "x.yaml:5: engine.card names one card, and engine.flags give each engine 2; remove it, and hide others in "
            "engine.env",
        ),
        ({"flags": "flags: {port: 1}"}, "x.yaml:5: engine.flags.port is engine.port's"),
        (
            {"flags": "flags: {no-enable-prefix-caching: true}"},
            "x.yaml:5: engine.flags.no-enable-prefix-caching is written enable-prefix-caching: false",
        ),
        (
            {"flags": "flags: {dtype: }"},
            "x.yaml:5: engine.flags.dtype has no value; remove the key to leave the engine's default",
        ),
        ({"flags": "flags: {O: 3}"}, "x.yaml:5: engine.flags.O is no long flag name; write for example max-num-seqs"),
        ({"flags": "port: 70000"}, "x.yaml:5: engine.port must be at most 65535, got 70000"),
        (
            {"minutes": "minutes: 10\narms: twins"},
            "x.yaml:2: arms must be auto, twin or alternate, got the text 'twins'; did you mean twin?",
        ),
        (
            {"minutes": "minutes: 10\nname: ../../etc"},
            "x.yaml:2: name must be 1 to 64 letters, digits, dots, dashes or underscores: it names the night's folder",
        ),
        (
            {"minutes": "minutes: 10\njudge: {min_launch_pairs: 5}"},
            "x.yaml:2: judge.max_launch_pairs must be at least judge.min_launch_pairs (5), got 4",
        ),
        (
            {"minutes": "minutes: 10\ngate: {prompts: 4000}"},
            "x.yaml:2: gate.prompts must be at most 512, got 4000",
        ),
        (
            {"minutes": "minutes: 10\ngate: {drift_texts: 2}"},
            "x.yaml:2: gate.drift_texts must be 0 or at least 4 (fewer texts show no spread), got 2",
        ),
        (
            {"minutes": "minutes: 10\ngate: {gsm8k: {questions: 'arithmetic:train', style: lm_eval}}"},
            "x.yaml:2: gate.gsm8k.style must be one of lm_eval_strict, lm_eval_flexible, vllm_eval, vllm_eval_chat, "
            "mi355x_night, got lm_eval",
        ),
        ({"minutes": "minutes: 10\njudge: []"}, "x.yaml:2: judge must be keys with values, got a list of 0"),
        ({"minutes": "minutes: 10\nminutes: 20"}, "x.yaml:2: minutes is given twice (first on line 1); keep one"),
        ({"minutes": "minutes: 10\n1: a"}, "x.yaml:2: 1 cannot be a key; write it as text, in quotes"),
        (
            {"minutes": "minutes: !!python/name:os.system 1"},
            "x.yaml:1: minutes: the tag tag:yaml.org,2002:python/name:os.system is not used here; "
            "write plain text or a number",
        ),
    ],
)
def test_one_mistake_one_line(checkout: Path, changes: dict[str, str], line: str) -> None:
    assert refused(night(checkout, good(checkout, **changes))) == [line]


def try_first(checkout: Path, item: str) -> Path:
    return night(checkout, good(checkout) + f"try_first:\n  - {{{item}, why: because}}\n")


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (
            "lever: env, key: A",
            "lever must be engine_flag, environment, compilation_config, vllm_moe_table, aiter_json, aiter_csv, "
            "kernel_table or source_patch, got the text 'env'; did you mean environment?",
        ),
        ("lever: engine_flag", "key is missing; docs/configuration.md says what belongs there"),
        ("lever: engine_flag, key: max-num-seqs, after: 4", "after changes nothing: max-num-seqs is 4 already"),
        ("lever: engine_flag, key: dtype", "after changes nothing: dtype is not set"),
        (
            "lever: environment, key: VLLM_CPU_KVCACHE_SPACE, after: 1",
            "after changes nothing: VLLM_CPU_KVCACHE_SPACE is 1 already",
        ),
        (
            "lever: environment, key: A, after: [1]",
            'after must be text, as environment values are; put it in quotes, e.g. "1"',
        ),
        (
            "lever: engine_flag, key: max_num_seqs, after: 8",
            "key is written without leading dashes and with - for _: max-num-seqs",
        ),
        ("lever: compilation_config, key: '', after: 3", "key is empty; name a key of vLLM's compilation config"),
        ("lever: engine_flag, key: dtype, after: x, probability: 2", "probability must be at most 1, got 2"),
        (
            "lever: engine_flag, key: dtype, after: x, probe: {kind: log_line, pattern: '('}",
            "probe.pattern is no regular expression: missing ), unterminated subpattern at position 0",
        ),
        (
            "lever: engine_flag, key: dtype, after: x, probe: {kind: log_line}",
            "probe.pattern is empty; a log_line probe needs a regular expression",
        ),
    ],
)
def test_changes_written_by_hand(checkout: Path, item: str, words: str) -> None:
    assert refused(try_first(checkout, item)) == [f"x.yaml:14: try_first[0].{words}"]


def test_a_number_for_the_environment_is_the_text_that_was_written(checkout: Path) -> None:
    config = load_night(try_first(checkout, "lever: environment, key: A, after: 1.50"))
    assert config.try_first[0].after == "1.50"


def test_all_mistakes_are_shown_in_the_file_s_order_and_ten_lines_are_enough(checkout: Path) -> None:
    wrong = "".join(f"wrong_{i}: {i}\n" for i in range(20))
    lines = refused(night(checkout, wrong + good(checkout, requests="requests: 0")))
    assert len(lines) == MOST_LINES
    assert lines[0].startswith("x.yaml:1: wrong_0 is not a key here; the keys here are name, minutes, engine")
    assert lines[-1] == "... and 12 more problems"
    two = refused(night(checkout, good(checkout, requests="requests: 0", minutes="minutes: 0")))
    assert two == ["x.yaml:1: minutes must be above 0, got 0", "x.yaml:9: workload.requests must be at least 1, got 0"]


def test_a_mistake_in_a_workload_file_names_that_file(checkout: Path) -> None:
    text = good(checkout).split("workload:\n")[0]
    (checkout / "chat.yaml").write_text(
        "requests: 8\nwarmup_requests: 1\ninput_tokens: [1, 2]\noutput_tokens: [1, 2]\nrate: 3\n"
    )
    path = night(checkout, text + "workload: chat.yaml\n")
    workload = checkout / "chat.yaml"
    assert refused(path) == [f"{workload}:5: rate is not a key here; did you mean rate_per_s?"]
    workload.write_text("")
    assert refused(path) == [f"{workload}: is empty; it needs at least requests, input_tokens and output_tokens"]
    workload.unlink()
    (line,) = refused(path)
    assert line == f"x.yaml:7: workload: {workload}: no such file"
    (checkout / "run_night.py").unlink()  # outside a checkout the path is another, and the line says which
    (line,) = refused(path)
    assert line.startswith(
        f"x.yaml:7: workload: {checkout}/nights/chat.yaml: no such file; {checkout}/nights has: x.yaml"
    )
    assert line.endswith("in no checkout, so paths count from its folder: put it into one, or write the whole path")


def test_paths_that_lead_nowhere(checkout: Path) -> None:
    text = good(checkout, flags="plugin_paths: [nowhere]") + "priors: [nowhere.yaml]\n"
    text += "gate: {gsm8k: {questions: q.jsonl}}\n"
    assert refused(night(checkout, text)) == [
        f"x.yaml:5: engine.plugin_paths[0] names {checkout}/nowhere, which is no folder; correct the path",
        f"x.yaml:13: priors[0] names {checkout}/nowhere.yaml, which is no file; correct the path",
        f"x.yaml:14: gate.gsm8k.questions names {checkout}/q.jsonl, which is no file; correct the path",
    ]
    path = night(checkout, good(checkout, python="python: no-such-python"))
    assert refused(path) == [
        "x.yaml:3: engine.python names no-such-python, which is no program on PATH; give the interpreter's full path"
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "x.yaml: is empty; it needs at least engine.model, workload and minutes"),
        (b"# only a comment\n", "x.yaml: is empty; it needs at least engine.model, workload and minutes"),
        (b"- a\n- b\n", "x.yaml: must hold keys with values (engine.model, workload and minutes), got a list of 2"),
        (b"minutes", "x.yaml: must hold keys with values (engine.model, workload and minutes), got the text 'minutes'"),
        (b"a: 1\nb:\n\tc: 2\n", "x.yaml:3: indented with a tab; YAML takes spaces only"),
        (b"a: 1\nb: \xff\n", "x.yaml:2: not UTF-8 text; save the file as UTF-8"),
        ("a: 1\n".encode("utf-16"), "x.yaml:1: not UTF-8 text; save the file as UTF-8"),
        (b"a: \x00b\n", "x.yaml:1: holds a control character; remove it"),
        (b"a: &x [1, 2]\nb: [*x, *x]\n", "x.yaml:2: *x: aliases are not used here; write the value out"),
        (b"[" * 100_000, "x.yaml:1: nested too deeply; a night file has at most 40 levels"),
        (b"{a: " * 2_000, "x.yaml:1: nested too deeply; a night file has at most 40 levels"),
        (b"a: 1\n---\nb: 2\n", "x.yaml:2: a second document starts here (---); a file holds one"),
        (b"x" * 300_000, "x.yaml: longer than 256 KiB, which no night or workload file needs"),
        (
            b"a: b: c\n",
            "x.yaml:1: wrong indentation, a second ': ' on this line (put the text in quotes), "
            "or a line above lacks its ':'",
        ),
        (
            b"a: [1, 2\n",
            "x.yaml:2: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
        ),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, bytes) else "",
)
def test_files_that_are_no_night(checkout: Path, content: bytes, words: str) -> None:
    path = checkout / "nights/x.yaml"
    path.write_bytes(content)
    assert refused(path) == [words]


def test_a_hundred_megabytes_are_refused_without_being_read(checkout: Path) -> None:
    path = checkout / "nights/x.yaml"
    with path.open("wb") as file:
        file.truncate(100 << 20)  # sparse
    assert refused(path) == ["x.yaml: longer than 256 KiB, which no night or workload file needs"]


def test_what_is_no_file(checkout: Path) -> None:
    night(checkout, good(checkout))
    assert refused(checkout / "nights/y.yaml") == [f"x.yaml: no such file; {checkout}/nights has: x.yaml"]
    (line,) = refused(checkout / "nights")
    assert line.endswith("is a folder; name the YAML file inside it")
    (line,) = refused(Path("/dev/zero"))
    assert line.endswith("is not a regular file; write its text into a .yaml file")
    (line,) = refused(Path("a\0b"))
    assert "cannot be read" in line


def one_clean_line_each(error: ConfigError) -> None:
    assert 1 <= len(error.lines) <= MOST_LINES
    for line in error.lines:
        assert line and "\n" not in line and "Traceback" not in line and "pydantic" not in line


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), st.text(alphabet=":-[]{}&*!#|>'\"%@`,? \n\tab01.~", max_size=120)))
def test_no_bytes_make_a_traceback(checkout: Path, content: bytes | str) -> None:
    path = checkout / "nights/x.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:  # nothing so short is a whole night
        load_night(path)
    one_clean_line_each(caught.value)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_night_is_refused_or_still_a_night(checkout: Path, seed: int) -> None:
    """The embedded night with one line dropped, doubled, moved, or with a value of another type put in."""
    chance = random.Random(seed)
    rows = [row for row in FIRST_NIGHT.read_text().splitlines() if row.strip() and not row.strip().startswith("#")]
    for _ in range(25):
        damaged = list(rows)
        at = chance.randrange(len(rows))
        value = chance.choice(
            ["[1, {a: b}]", "-1", "true", "~", "'text'", "{x: [}", "1e999", "2026-11-29", "[[]]", "*a"]
        )
        match chance.choice(["drop", "double", "move", "value"]):
            case "drop":
                del damaged[at]
            case "double":
                damaged.insert(at, damaged[at])
            case "move":
                damaged.insert(chance.randrange(len(rows)), damaged.pop(at))
            case "value":
                damaged[at] = re.sub(r":( .*)?$", f": {value}", damaged[at].split("#")[0].rstrip())
        try:
            load_night(night(checkout, "\n".join(damaged)))
        except ConfigError as error:
            one_clean_line_each(error)


def test_a_percentile_that_a_run_cannot_hold_is_refused_before_the_night(checkout: Path) -> None:
    text = good(checkout).replace("  requests: 8\n", "  requests: 8\n  objective: {metric: ttft_ms_p95}\n")
    path = night(checkout, text)
    (line,) = refused(path)
    assert "ttft_ms_p95 needs at least 20 requests a run, workload.requests is 8" in line


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        (
            "{metric: output_token_per_s}",
            "objective.metric is output_token_per_s, which no run of this workload measures;",
        ),
        ("{metric: throughput}", "measures; there are ttft_ms_mean, ttft_ms_p50,"),
        (
            "{limits: [{metric: tpot_ms_p90, at_most: 9}]}",
            "limits[0].metric is tpot_ms_p90, which no run of this workload",
        ),
        ("{limits: [{metric: tpot_p95_ms, times_baseline: 2}]}", "limits[0].metric is tpot_p95_ms, which no run"),
    ],
)
def test_a_metric_that_no_run_measures_is_refused_before_the_night(checkout: Path, objective: str, says: str) -> None:
    """It was found out after the baseline, with another fix named; a limit on one left every try without a verdict."""
    path = night(checkout, good(checkout).replace("  requests: 8\n", f"  requests: 8\n  objective: {objective}\n"))
    (line,) = refused(path)
    assert says in line


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("{metric: output_tokens_per_s, times_baseline: 0.9}", "limits[0].metric output_tokens_per_s is better higher"),
        ("{metric: requests_per_s, at_most: 9}", "is better higher, and a limit is the most allowed; limit a latency"),
        ("{metric: tpot_ms_p50, at_most: 0}", "limits[0].at_most must be above 0, got 0"),
        ("{metric: tpot_ms_p50, at_most: -3}", "limits[0].at_most must be above 0, got -3"),
    ],
)
def test_a_limit_that_no_engine_can_keep(checkout: Path, limit: str, says: str) -> None:
    """Meant as a floor, say: the unchanged engine breaks it, and so does each change that helps."""
    path = night(
        checkout, good(checkout).replace("  requests: 8\n", f"  requests: 8\n  objective: {{limits: [{limit}]}}\n")
    )
    (line,) = refused(path)
    assert says in line
