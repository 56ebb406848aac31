"""Texts, and asking: a scripted server answers in vLLM's shape (read for 0.32.0)."""

import json
import math
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from accuracy_gate.drift_collect import DriftRun, collect_drift, parse
from accuracy_gate.drift_compare import compare
from accuracy_gate.texts import fixed_texts
from engine.running import RunningEngine

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


def test_texts_are_fixed_by_their_seed_and_the_first_of_many_are_the_few() -> None:
    texts = fixed_texts(6, seed=3, tokens=300)
    assert texts == fixed_texts(12, seed=3, tokens=300)[:6]
    assert texts != fixed_texts(6, seed=4, tokens=300)
    assert [text.kind for text in texts] == ["sums", "mixed"] * 3
    assert texts[0].text.startswith("Question: ") and "\nAnswer: " in texts[0].text and "#### " in texts[0].text


def test_lengths_differ_and_stay_under_what_was_asked() -> None:
    lengths = [len(text.text) for text in fixed_texts(3, tokens=300)]
    assert 580 < lengths[0] <= 600 and 400 < lengths[1] <= 420 and 220 < lengths[2] <= 240


def answer(**changes: Any) -> dict[str, Any]:
    """A text of three tokens; `changes` replace parts of its choice."""
    listed = [
        None,
        {"7": {"logprob": -2.5, "rank": 3, "decoded_token": "a"}, "4": {"logprob": -0.2, "rank": 1}},
        {"9": {"logprob": -0.1, "rank": 1, "decoded_token": "b"}, "4": {"logprob": -3.0, "rank": 2}},
    ]
    return {"choices": [{"prompt_token_ids": [1, 7, 9], "prompt_logprobs": listed} | changes]}


def test_an_answer_of_vllm_is_read() -> None:
    first, second = parse("t0", answer()).positions
    assert (first.token, first.logprob, first.top) == (7, -2.5, ((4, -0.2), (7, -2.5)))
    assert second.token == 9 and second.top[0] == (9, -0.1)
    assert parse("t0", answer(), read_from=2).positions == (second,)


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt_token_ids": None},
        {"prompt_token_ids": [1, 7]},
        {"prompt_logprobs": None},
        {"prompt_logprobs": [None, {}, {}]},
        {"prompt_logprobs": [None, {"7": {"logprob": math.nan}}, {"9": {"logprob": -0.1}}]},
        {"prompt_logprobs": [None, {"7": {"logprob": -9999.0}}, {"9": {"logprob": -0.1}}]},
        {"prompt_logprobs": [None, None, {"9": {"logprob": -0.1}}]},
    ],
)
def test_half_an_answer_is_malformed_never_a_number(changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        parse("t0", answer(**changes))


# --- a scripted server --------------------------------------------------------------------------------------------


def scripted(body: dict[str, Any]) -> dict[str, Any]:
    """Each character or given ID is a token; every token is as likely, but decoding finds the first one likelier."""
    ids = body["prompt"] if isinstance(body["prompt"], list) else [ord(c) for c in body["prompt"]]
    both = {"2": {"logprob": -0.7, "rank": 1}, "3": {"logprob": -1.5, "rank": 2}}
    listed = [None, *(both | {str(token): {"logprob": -1.0, "rank": 2}} for token in ids[1:])]
    made = [2] * body["max_tokens"]
    top = [{"token_id:2": -0.6, "token_id:3": -1.5}] * len(made)
    return {
        "choices": [
            {
                "prompt_token_ids": ids, "token_ids": made, "finish_reason": "length",
                "prompt_logprobs": listed if "prompt_logprobs" in body else None,
                "logprobs": {"token_logprobs": [-0.6] * len(made), "top_logprobs": top},
            }
        ]
    }  # fmt: skip


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], tuple[RunningEngine, list[dict[str, Any]]]]]:
    up: list[ThreadingHTTPServer] = []

    def begin(script: Answer) -> tuple[RunningEngine, list[dict[str, Any]]]:
        asked: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                made = script(asked[-1])
                content = json.dumps(made or {"error": "scripted"}).encode()
                self.send_response(200 if made else 500)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        up.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=up[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        engine = SimpleNamespace(
            base_url=f"http://127.0.0.1:{up[-1].server_port}", served_name="toy", check=lambda: None,
            record=SimpleNamespace(launch_id="L1", spec_id="scripted"),
        )  # fmt: skip
        return cast(RunningEngine, engine), asked

    yield begin
    for server in up:
        server.shutdown()
        server.server_close()


TEXTS = fixed_texts(3, tokens=20)


def test_a_reading_takes_no_tokens_from_a_cache_and_survives_a_file(
    serve: Callable[[Answer], tuple[RunningEngine, list[dict[str, Any]]]], tmp_path: Path
) -> None:
    engine, asked = serve(scripted)
    run = collect_drift(engine, TEXTS, mode="concurrent", concurrency=2)
    assert not run.errors and [len(s.positions) for s in run.sequences] == [len(text.text) - 1 for text in TEXTS]
    assert {body["cache_salt"] for body in asked} == {asked[0]["cache_salt"]} and asked[0]["temperature"] == 0
    run.save(tmp_path / "deep" / "run.json")
    assert DriftRun.load(tmp_path / "deep" / "run.json") == run


def test_what_was_decoded_is_read_back_as_the_same_tokens(
    serve: Callable[[Answer], tuple[RunningEngine, list[dict[str, Any]]]],
) -> None:
    engine, asked = serve(scripted)
    run = collect_drift(engine, TEXTS[:1], decode=4)
    assert asked[-1]["prompt"] == [*map(ord, TEXTS[0].text), 2, 2, 2, 2]
    found = compare(
        run.model_copy(update={"sequences": run.decoded}), run.model_copy(update={"sequences": run.read_back})
    )
    assert found.positions == 4 and not found.other_text and abs(found.texts[0].change + 0.4).max() < 1e-9


def test_a_text_that_is_refused_is_an_error_and_the_others_are_still_read(
    serve: Callable[[Answer], tuple[RunningEngine, list[dict[str, Any]]]],
) -> None:
    engine, _ = serve(lambda body: None if body["prompt"] == TEXTS[1].text else scripted(body))
    run = collect_drift(engine, TEXTS)
    assert [sequence.error for sequence in run.sequences] == [None, "http", None]
    assert "HTTP 500" in run.errors[0].detail
