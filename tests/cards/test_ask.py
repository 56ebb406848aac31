"""Another interpreter is asked, whatever it says beside its answer; one that does not answer gets one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cards.ask import IMAGE_FIX, NoAnswer, ask
from contracts import Container


def script(path: Path, text: str) -> str:
    """A stand-in for an interpreter: a program that answers anything with `text`."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_question_has_arguments_an_input_and_variables() -> None:
    question = "import json, os, sys; answer([sys.argv[1:], json.load(sys.stdin), os.environ['HERE']])"
    assert ask(sys.executable, question, ("a b",), given={"x": 1}, env={"HERE": "y"}) == [["a b"], {"x": 1}, "y"]


def test_a_question_may_be_a_whole_file() -> None:
    text = "from __future__ import annotations\ndef main(): return one()\ndef one(): return 1\n"
    assert ask(sys.executable, text + "if __name__ == '__main__': answer(main())") == 1


def test_the_child_sees_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ours.py").write_text("")
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, str(tmp_path))
    assert ask(sys.executable, "import importlib.util as u; answer(u.find_spec('ours'))") is None
    assert ask(sys.executable, "import os; answer([k for k in os.environ if k.startswith('PYTHON')])") == []
    assert ask(sys.executable, "import os; answer(os.listdir())") == []


def test_what_else_is_printed_does_not_count(tmp_path: Path) -> None:
    """As a sitecustomize that greets without a line's end, a warning, or what a library says as it goes."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, sys\nprint('{hello}', end='', flush=True)\nos.write(1, b'\\xff\\xfe\\x00')\n"
        "sys.stderr.write('careful')\natexit.register(print, 'bye {}')\natexit.register(os._exit, 3)\n"
    )
    assert ask(sys.executable, "answer({'x': 1})", env={"PYTHONPATH": str(tmp_path)}) == {"x": 1}


def test_a_path_that_is_no_unicode_comes_back_whole() -> None:
    assert os.fsencode(ask(sys.executable, "import os; answer(os.fsdecode(b'/a\\xff'))")) == b"/a\xff"


def test_an_interpreter_by_its_name_or_from_where_we_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "our-python", f'exec {sys.executable} "$@"')
    monkeypatch.chdir(tmp_path)
    assert ask("./our-python", "answer(1)") == 1
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert ask("our-python", "answer(2)") == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("echo hello", "is no Python that answers (exit code 0: it printed nothing)"),
        ("echo one >&2; echo broken  here >&2; exit 3", "is no Python that answers (exit code 3: broken here)"),
        ("printf 'a\\033[31m\\377\\0b' >&2", "is no Python that answers (exit code 0: a[31m\ufffdb)"),
        ("echo 'nightgate-answer:[1'", "is no Python that answers (exit code 0: its answer is no JSON)"),
        ("exec sleep 60", "did not answer within 0.5 s"),
        ("#", "could not be run (Exec format error)"),
    ],
)  # fmt: skip
def test_what_does_not_answer(tmp_path: Path, text: str, what: str) -> None:
    python = script(tmp_path / "python", text)
    if text == "#":
        Path(python).write_bytes(b"\x00\x01")
    with pytest.raises(NoAnswer) as refused:
        ask(python, "answer(1)", limit_s=0.5 if "sleep" in text else None)
    assert refused.value.what == what
    assert str(refused.value) == f"{python} {what}: set engine.python to the engine's interpreter"


def test_what_is_not_there_or_not_ours_to_run(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for name, what in (("nowhere", "does not exist"), ("", "is a folder"), ("text", "cannot be run by this user")):
        with pytest.raises(NoAnswer, match=what):
            ask(str(tmp_path / name), "answer(1)")


def test_a_question_that_fails_says_how() -> None:
    with pytest.raises(NoAnswer, match="exit code 1: ZeroDivisionError: division by zero"):
        ask(sys.executable, "answer(1 / 0)")


def test_an_image_whose_runtime_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoAnswer) as refused:
        ask("", "answer(1)", container=Container(image="rocm/vllm:1"))
    assert str(refused.value) == f"python3 in rocm/vllm:1 could not be run (docker is not installed): {IMAGE_FIX}"
