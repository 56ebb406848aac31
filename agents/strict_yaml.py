"""Reads a small YAML file that a person wrote, and remembers on which line each key stands.

Stricter than YAML: duplicate keys, aliases, tags, keys that are not text, numbers that are not finite and files that
are no UTF-8 text, or too long, are refused. Each problem is one line that names the file, the line and the fix.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import JsonValue

# The pure-Python YAML scanner reads about 50 KB/s here (2 cores, PyYAML 6.0.4, 2026-11-29), so a longer file would
# be a wait without a word; a real night file is under 10 KB.
MOST_BYTES = 256 * 1024
MOST_LEVELS = 40
PLAIN_TAGS = ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value")

KeyPath = tuple[str | int, ...]  # ("engine", "flags", "max-num-seqs"), ("try_first", 0, "key")


class YamlProblem(Exception):
    """The file cannot be read. `lines` are ready to print, one problem a line."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass
class Document:
    """A file's content as plain data, the line of each key, and each plain number's spelling as it was written."""

    path: Path
    data: JsonValue
    lines: dict[KeyPath, int] = field(default_factory=dict)
    spelled: dict[KeyPath, str] = field(default_factory=dict)


def show_path(path: KeyPath) -> str:
    """("try_first", 0, "key") -> "try_first[0].key"."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_text(path: Path) -> str:
    """The file's text. Raises YamlProblem for all that is not a small UTF-8 text file."""
    try:
        if path.is_dir():
            raise YamlProblem(f"{path}: is a folder; name the YAML file inside it")
        if path.exists() and not path.is_file():
            raise YamlProblem(f"{path}: is not a regular file; write its text into a .yaml file")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise YamlProblem(f"{path}: no such file{_nearby(path)}") from None
    except PermissionError:
        raise YamlProblem(f"{path}: not readable by this user; check its permissions") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise YamlProblem(f"{path!s:.200}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MOST_BYTES:
        raise YamlProblem(f"{path}: longer than {MOST_BYTES // 1024} KiB, which no night or workload file needs")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlProblem(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from None


def read_yaml(path: Path) -> Document:
    """Raises YamlProblem. An empty file is a Document whose data is None."""
    text = read_text(path)
    document = Document(path, None)
    try:
        _refuse_bombs(text, path)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlProblem(f"{path}:{line}: holds a control character; remove it") from None
    except yaml.MarkedYAMLError as error:
        raise YamlProblem(f"{path}:{_syntax(error, text)}") from None
    if node is not None:
        document.data = _plain(node, (), document)
    return document


def _refuse_bombs(text: str, path: Path) -> None:
    """Aliases multiply and deep nesting makes the parser quadratic (50,000 open brackets took it 133 s), so both are
    seen here, in the stream of events, before anything is built."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        if isinstance(event, yaml.AliasEvent):
            raise YamlProblem(f"{path}:{line}: *{event.anchor}: aliases are not used here; write the value out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_LEVELS:
            raise YamlProblem(f"{path}:{line}: nested too deeply; a night file has at most {MOST_LEVELS} levels")


def _nearby(path: Path) -> str:
    """ "; there are: a.yaml, b.yaml" when the folder holds YAML files, else nothing."""
    try:
        names = sorted(p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError:
        return ""
    return f"; {path.parent} has: {', '.join(names[:5])}" if names else ""


def _syntax(error: yaml.MarkedYAMLError, text: str) -> str:
    """ "LINE: what is wrong" in plain words."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    rows = text.splitlines()
    row = rows[line - 1] if line <= len(rows) else ""
    problem = error.problem or "not YAML"
    if "\t" in row[: len(row) - len(row.lstrip())] or "'\\t'" in problem:
        return f"{line}: indented with a tab; YAML takes spaces only"
    if "expected a single document" in (error.context or ""):
        return f"{line}: a second document starts here (---); a file holds one"
    if "mapping values are not allowed" in problem:
        return (
            f"{line}: wrong indentation, a second ': ' on this line (put the text in quotes), "
            "or a line above lacks its ':'"
        )
    if isinstance(error, yaml.scanner.ScannerError) and "expected ':'" in problem:
        return f"{line}: a key without its ':' just above this line"
    context = f" {error.context}" if error.context else ""
    return f"{line}: not valid YAML:{context}, {problem}" if context else f"{line}: not valid YAML: {problem}"


def _plain(node: yaml.Node, path: KeyPath, document: Document) -> JsonValue:
    line = node.start_mark.line + 1
    document.lines.setdefault(path, line)
    where = f"{document.path}:{line}: {show_path(path)}".rstrip(": ")
    namespace, _, kind = node.tag.rpartition(":")
    if namespace != "tag:yaml.org,2002" or kind not in PLAIN_TAGS:
        raise YamlProblem(f"{where}: the tag {node.tag[:60]} is not used here; write plain text or a number")
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, (*path, i), document) for i, child in enumerate(node.value)]
    text: str = node.value
    _refuse_half_characters(text, where)
    if kind in ("int", "float"):
        document.spelled[path] = text
        return _number(text, kind, where)
    if kind == "bool":
        return text.lower() in ("yes", "true", "on")
    return None if kind == "null" else text  # dates and the like stay the text they were


def _mapping(node: yaml.MappingNode, path: KeyPath, document: Document) -> JsonValue:
    result: dict[str, JsonValue] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
            raise YamlProblem(f"{document.path}:{line}: {shown!s:.60} cannot be a key; write it as text, in quotes")
        key: str = key_node.value
        _refuse_half_characters(key, f"{document.path}:{line}")
        here = (*path, key)
        if key in result:
            first = document.lines[here]
            raise YamlProblem(
                f"{document.path}:{line}: {show_path(here)} is given twice (first on line {first}); keep one"
            )
        document.lines[here] = line
        result[key] = _plain(value_node, here, document)
    return result


def _refuse_half_characters(text: str, where: str) -> None:
    """ "\\ud800" is half of a character, which no file, environment or JSON can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise YamlProblem(f"{where}: holds half a character (\\ud800 to \\udfff); write the character itself") from None


def _number(text: str, kind: str, where: str) -> int | float:
    """YAML 1.1 reads 1:30 as 90 and 010 as 8; nobody who writes a night file means that."""
    plain = text.replace("_", "")
    try:
        if re.fullmatch(r"[-+]?(0|[1-9][0-9]*)", plain):
            return int(plain)
        if kind == "float" and re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", plain):
            number = float(plain)
            if math.isfinite(number):
                return number
    except ValueError:  # more digits than Python turns into a number
        pass
    raise YamlProblem(f"{where}: {text:.40} is no plain finite number; write digits, or put a text in quotes")
