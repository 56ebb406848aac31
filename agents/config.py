"""A night file: YAML in, a resolved NightConfig out, or lines that say what is wrong and where.

Relative paths in a night file count from the checkout that holds the file, or, outside one, from the file's own folder.
docs/configuration.md describes every key.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import JsonValue, ValidationError

from accuracy_gate.gsm8k import kind_of
from agents.command import USAGE, Problem
from agents.config_rules import broken_rules
from agents.config_words import drop_echoes, in_words, show_value
from agents.strict_yaml import Document, KeyPath, YamlProblem, read_yaml, show_path
from contracts import NightConfig

ROOT = Path(__file__).resolve().parents[1]  # this checkout
OUTSIDE = "; the night file is in no checkout, so paths count from its folder: put it into one, or write the whole path"
MOST_LINES = 10


class ConfigError(Problem):
    """A night file that cannot be used. `lines` are ready to print: file, line, key, what was expected."""

    exit_code = USAGE

    def __init__(self, *lines: str) -> None:
        flat = [" ".join(line.split()) for line in lines]
        if len(flat) > MOST_LINES:
            flat = [*flat[: MOST_LINES - 1], f"... and {len(flat) - MOST_LINES + 1} more problems"]
        super().__init__("\n".join(flat))


@dataclass(frozen=True)
class _Sources:
    """Which file, and which line of it, a key came from."""

    night: Document
    workload: Document | None  # when `workload:` named a file
    overridden: frozenset[str]

    def hidden(self, path: KeyPath) -> int:
        return 1 if self.workload is not None and path[:1] == ("workload",) else 0

    def line(self, path: KeyPath) -> int:
        """Of the key, or of the nearest one above it; 0 where there is none."""
        document = self._document(path)
        inside = path[self.hidden(path) :]
        while inside and inside not in document.lines:
            inside = inside[:-1]
        return document.lines[inside] if inside else 0

    def where(self, path: KeyPath) -> str:
        if any(show_path(path[:n]) in self.overridden for n in range(1, len(path) + 1)):
            return "override"
        line = self.line(path)
        return f"{self._document(path).path}:{line}" if line else f"{self._document(path).path}"

    def _document(self, path: KeyPath) -> Document:
        return self.workload if self.workload is not None and self.hidden(path) else self.night


def load_night(path: Path, overrides: Mapping[str, JsonValue] = {}) -> NightConfig:
    """The night that `path` describes, paths absolute, workload included, interpreter chosen.

    `overrides` replace keys of the file, by full path: {"minutes": 480, "engine.port": 8000}.
    Raises ConfigError, one line a problem.
    """
    path = Path(path)
    try:
        night = read_yaml(path)
        data = _mapping_of(night, "engine.model, workload and minutes")
        base = _base_of(path)
        workload = _workload_file(night, data, base)
    except YamlProblem as problem:
        raise ConfigError(*problem.lines) from None
    data.setdefault("name", path.stem)
    if isinstance(data.get("workload"), dict):
        data["workload"].setdefault("name", path.stem)
    for key, value in overrides.items():
        _override(data, key.split("."), value)
    _numbers_to_text(data, night)
    sources = _Sources(night, workload, frozenset(overrides))
    try:
        config = NightConfig.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        found = drop_echoes(error.errors(include_url=False), NightConfig)
        found.sort(key=lambda e: (sources.hidden(tuple(e["loc"])), sources.line(tuple(e["loc"]))))
        lines = (
            f"{sources.where(tuple(e['loc']))}: {in_words(e, NightConfig, sources.hidden(tuple(e['loc'])))}"
            for e in found
        )
        raise ConfigError(*lines) from None
    resolved, missing = _resolve(config, base)
    problems = sorted([*missing, *broken_rules(config)], key=lambda p: sources.line(p[0]))
    if problems:
        raise ConfigError(*(f"{sources.where(key)}: {show_path(key)} {words}" for key, words in problems))
    return resolved


def dump_resolved(config: NightConfig) -> str:
    """The night as YAML that load_night reads back to an equal NightConfig, wherever the file then lies."""

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_str(self, data: str) -> yaml.ScalarNode:
            """A patch as the lines that it is, where YAML can hold them so."""
            return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)

    Plain.add_representer(str, Plain.represent_str)

    head = "# The night as resolved: every key, every path absolute. docs/configuration.md says what each means.\n"
    data = config.model_dump(mode="json")
    text: str = yaml.dump(data, Dumper=Plain, sort_keys=False, allow_unicode=True, width=110)
    return head + text


def engine_python(setting: str = "auto", base: Path = ROOT, root: Path = ROOT) -> Path:
    """The engine's interpreter. auto: NIGHTGATE_ENGINE_PYTHON, else what set-up wrote to .engine-python.

    Symbolic links are kept: a virtual environment's python resolved is the system's python. Raises ValueError.
    """
    if setting != "auto":
        if "/" not in setting and "~" not in setting:
            found = shutil.which(setting)
            if found is None:
                raise ValueError(f"names {setting}, which is no program on PATH; give the interpreter's full path")
            return Path(found)
        return _absolute(setting, base)
    chosen = os.environ.get("NIGHTGATE_ENGINE_PYTHON", "").strip()
    if chosen:
        return _absolute(chosen, root)
    try:
        chosen = (root / ".engine-python").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        chosen = ""
    if not chosen:
        raise ValueError("is auto, but set-up has chosen no interpreter; run `make setup`, or name one that has vLLM")
    return _absolute(chosen.splitlines()[0], root)


def _mapping_of(document: Document, wanted: str) -> dict[str, Any]:
    if document.data is None:
        raise YamlProblem(f"{document.path}: is empty; it needs at least {wanted}")
    if not isinstance(document.data, dict):
        raise YamlProblem(f"{document.path}: must hold keys with values ({wanted}), got {show_value(document.data)}")
    return document.data


def _base_of(path: Path) -> Path:
    folder = Path(os.path.abspath(path)).parent
    return next((f for f in (folder, *folder.parents) if (f / "run_night.py").is_file()), folder)


def _absolute(text: str, base: Path) -> Path:
    try:
        return Path(os.path.abspath(base / Path(text).expanduser()))
    except RuntimeError:  # ~nobody-of-that-name
        return Path(os.path.abspath(base / text))


def _workload_file(night: Document, data: dict[str, Any], base: Path) -> Document | None:
    """Puts the named workload file's content in place of its name."""
    named = data.get("workload")
    if not isinstance(named, str):
        return None
    path = _absolute(named, base)
    try:
        document = read_yaml(path)
    except YamlProblem as problem:
        where = f"{night.path}:{night.lines[('workload',)]}"
        outside = "" if path.exists() or Path(named).is_absolute() or (base / "run_night.py").is_file() else OUTSIDE
        raise YamlProblem(*(f"{where}: workload: {line}{outside}" for line in problem.lines)) from None
    document.path = Path(os.path.relpath(path)) if path.is_relative_to(Path.cwd()) else path
    content = _mapping_of(document, "requests, input_tokens and output_tokens")
    data["workload"] = {"name": path.stem, **content}
    return document


def _override(data: dict[str, Any], keys: list[str], value: JsonValue) -> None:
    for key in keys[:-1]:
        inner = data.setdefault(key, {})
        if not isinstance(inner, dict):
            return  # the file is wrong there already, and validation says how
        data = inner
    data[keys[-1]] = value


def _numbers_to_text(data: dict[str, Any], night: Document) -> None:
    """Environment values are text, and `VLLM_CPU_KVCACHE_SPACE: 2` says plainly which."""
    engine, items = data.get("engine"), data.get("try_first")
    env = engine.get("env") if isinstance(engine, dict) else None
    env = env if isinstance(env, dict) else {}
    for key, value in env.items():
        if type(value) in (int, float):
            env[key] = night.spelled.get(("engine", "env", key), str(value))
    for i, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and item.get("lever") == "environment" and type(item.get("after")) in (int, float):
            item["after"] = night.spelled.get(("try_first", i, "after"), str(item["after"]))


def _resolve(config: NightConfig, base: Path) -> tuple[NightConfig, list[tuple[KeyPath, str]]]:
    """The night with absolute paths, and what is not there. The model's folder is preflight's to judge."""
    missing: list[tuple[KeyPath, str]] = []

    def there(key: KeyPath, text: str, folder: bool) -> str:
        path = _absolute(text, base)
        if not (path.is_dir() if folder else path.is_file()):
            missing.append((key, f"names {path}, which is no {'folder' if folder else 'file'}; correct the path"))
        return str(path)

    engine, python = config.engine, config.engine.python
    try:
        python = engine.container.python if engine.container else str(engine_python(engine.python, base))
    except ValueError as error:
        missing.append((("engine", "python"), str(error)))
    plugins = tuple(there(("engine", "plugin_paths", i), p, True) for i, p in enumerate(engine.plugin_paths))
    priors = tuple(there(("priors", i), p, False) for i, p in enumerate(config.priors))
    sums = config.gate.gsm8k
    if sums is not None:
        questions = sums.questions
        if kind_of(questions) == "file":
            questions = there(("gate", "gsm8k", "questions"), questions, False)
        model = there(("gate", "gsm8k", "model"), sums.model, True) if sums.model else None
        sums = sums.model_copy(update={"questions": questions, "model": model})
    engine = engine.model_copy(
        update={"python": python, "model": _model_folder(engine.model, base), "plugin_paths": plugins}
    )
    gate = config.gate.model_copy(update={"gsm8k": sums})
    return config.model_copy(update={"engine": engine, "priors": priors, "gate": gate}), missing


def _model_folder(model: str, base: Path) -> str:
    """A folder, or for a hub name (org/name) the newest snapshot in the local Hugging Face cache, if it is there."""
    folder = _absolute(model, base)
    if folder.exists() or model.count("/") != 1 or model.startswith((".", "/", "~")):
        return str(folder)
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{model.replace('/', '--')}"
    try:
        snapshot = cache / "snapshots" / (cache / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return str(folder)
    return str(snapshot) if snapshot.is_dir() else str(folder)
