"""Classes, types and defaults of Python modules, read from their syntax trees. Nothing of them is imported or run.

A file that does not parse costs its own names only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.research.knobs import Kind, Knob
from agents.research.regular_file import read_regular

MOST_BITS = 64  # of a default; Python refuses to print numbers of thousands of digits
MOST_BYTES = 4 << 20  # vLLM 0.33.0's longest configuration module has 130 kB


@dataclass
class SourceTree:
    """Classes, constants and type aliases of the configuration modules, by bare name (vLLM keeps those unique)."""

    root: Path
    classes: dict[str, tuple[str, ast.ClassDef]] = field(default_factory=dict)  # name -> (relative file, node)
    names: dict[str, ast.expr] = field(default_factory=dict)  # module-level NAME = expression
    _fields: dict[str, dict[str, tuple[str, ast.AnnAssign]]] = field(default_factory=dict)  # memo of fields()

    def parse(self, path: Path) -> ast.Module | None:
        try:
            tree = ast.parse(read_regular(path, MOST_BYTES))
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None
        where = path.relative_to(self.root).as_posix()
        for node in _statements(tree):
            if isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, (where, node))
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.names.setdefault(node.targets[0].id, node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.names.setdefault(node.target.id, node.value)
        return tree

    def fields(self, name: str, depth: int = 0) -> dict[str, tuple[str, ast.AnnAssign]]:
        """Annotated fields of a class and its bases: name -> (file:line, node)."""
        if name not in self.classes or depth > 8:
            return {}
        if name in self._fields:
            return self._fields[name]
        where, node = self.classes[name]
        found: dict[str, tuple[str, ast.AnnAssign]] = {}
        for base in node.bases:
            found |= self.fields(last_name(base), depth + 1)
        for item in node.body:
            if not (isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)):
                continue
            if last_name(item.annotation) != "ClassVar" and not _not_an_argument(item.value):
                found[item.target.id] = (f"{where}:{item.lineno}", item)
        self._fields[name] = found
        return found

    def help_of(self, name: str, field_name: str, depth: int = 0) -> str:
        """The text in quotes that follows a field of a class or of its bases; "" where there is none."""
        if name not in self.classes or depth > 8:
            return ""
        _, node = self.classes[name]
        for item, after in zip(node.body, node.body[1:], strict=False):
            if isinstance(item, ast.AnnAssign) and last_name(item.target) == field_name:
                held = after.value if isinstance(after, ast.Expr) else None
                return held.value if isinstance(held, ast.Constant) and isinstance(held.value, str) else ""
        return next((text for base in node.bases if (text := self.help_of(last_name(base), field_name, depth + 1))), "")

    # --- types ---

    def types(self, node: ast.expr | None, depth: int = 0) -> Iterator[tuple[str, ast.expr | None]]:
        """The alternatives of an annotation as (bare name, node): "bool", "Literal", "list", "None", a class name."""
        if node is None or depth > 12:
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield from self.types(ast.parse(node.value, mode="eval").body, depth + 1)
            except SyntaxError:
                yield node.value, None
        elif isinstance(node, ast.Constant):
            yield ("None" if node.value is None else repr(node.value)), node
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield from self.types(node.left, depth + 1)
            yield from self.types(node.right, depth + 1)
        elif isinstance(node, ast.Subscript):
            outer, inner = last_name(node.value), node.slice
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if outer in ("Optional", "Union"):
                for part in parts:
                    yield from self.types(part, depth + 1)
                if outer == "Optional":
                    yield "None", None
            elif outer in ("Annotated", "SkipValidation", "Final"):
                yield from self.types(parts[0], depth + 1)
            else:
                yield outer, node
        elif isinstance(node, ast.Name) and node.id in self.names and node.id not in self.classes:
            yield from self.types(self.names[node.id], depth + 1)
        else:
            yield last_name(node), node

    def kind_of(self, annotation: ast.expr | None) -> tuple[Kind, bool, tuple[Any, ...]]:
        """(kind, None allowed, choices), in the order of precedence that vLLM's own _compute_kwargs has."""
        alternatives = list(self.types(annotation))
        names = {name for name, _ in alternatives}
        optional = "None" in names
        choices = tuple(
            element.value
            for name, node in alternatives
            if name == "Literal" and isinstance(node, ast.Subscript)
            for element in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
            if isinstance(element, ast.Constant)
        )
        if any(n in self.classes and self.is_dataclass(n) for n in names):
            return "json", optional, ()
        if {"bool", "str"} <= names:
            return "str", optional, ()
        if "bool" in names:
            return "bool", optional, ()
        if choices:
            return ("str", optional, ()) if "str" in names else ("choice", optional, choices)
        for kind, spellings in (
            ("list", {"list", "tuple", "set", "List", "Sequence"}),
            ("int", {"int"}),
            ("float", {"float"}),
            ("json", {"dict", "Dict", "Mapping"}),
            ("str", {"str"}),
        ):
            if names & spellings:
                return kind, optional, ()  # type: ignore[return-value]
        return "any", optional, ()

    def is_dataclass(self, name: str) -> bool:
        return any(
            "config" in ast.unparse(d) or "dataclass" in ast.unparse(d) for d in self.classes[name][1].decorator_list
        )

    # --- defaults ---

    def value(self, node: ast.expr | None, depth: int = 0) -> tuple[bool, Any]:
        """(known, value) of a default's expression. Only literals and references to them; nothing is run."""
        if node is None or depth > 8:
            return False, None
        try:
            literal = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            pass
        else:
            return _plain(literal)
        if isinstance(node, ast.Name):
            return self.value(self.names.get(node.id), depth + 1)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self.field_value(node.value.id, node.attr, depth + 1)
        if isinstance(node, ast.Call):
            called = last_name(node.func)
            if called == "get_field" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
                return self.field_value(last_name(node.args[0]), str(node.args[1].value), depth + 1)
            if called in ("Field", "field"):
                given = {k.arg: k.value for k in node.keywords}
                if "default" in given or node.args:
                    return self.value(given.get("default", node.args[0] if node.args else None), depth + 1)
                factory = given.get("default_factory")
                empty: dict[str, Any] = {"list": [], "dict": {}, "tuple": [], "set": []}
                if isinstance(factory, ast.Lambda):
                    return self.value(factory.body, depth + 1)
                if factory is not None and last_name(factory) in empty:
                    return True, empty[last_name(factory)]
        return False, None

    def field_value(self, owner: str, name: str, depth: int = 0) -> tuple[bool, Any]:
        found = self.fields(owner).get(name)
        if found is not None:
            return self.value(found[1].value, depth + 1)
        members = self.classes.get(owner)  # an enum's member: its name is what the command line takes
        if members and any(isinstance(i, ast.Assign) and last_name(i.targets[0]) == name for i in members[1].body):
            return True, name
        return False, None

    def knob(self, name: str, annotation: ast.expr | None, default: ast.expr | None, source: str) -> Knob:
        kind, optional, choices = self.kind_of(annotation)
        known, value = self.value(default)
        return Knob(
            name=name,
            kind=kind,
            optional=optional,
            choices=choices,
            default=value,
            default_known=known,
            default_text=short(default),
            source=source,
        )


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Module-level statements, those under `if` and `try` included."""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop(0)
        yield node
        if isinstance(node, ast.If | ast.Try):
            todo[:0] = [*node.body, *node.orelse]


def last_name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def _not_an_argument(default: ast.expr | None) -> bool:
    """field(..., init=False): a working variable of the class, nothing that can be set."""
    return isinstance(default, ast.Call) and any(
        k.arg == "init" and isinstance(k.value, ast.Constant) and k.value.value is False for k in default.keywords
    )


def _plain(value: Any) -> tuple[bool, Any]:
    """JSON-able or not known."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return False, None
    if value is None or isinstance(value, bool | int | float | str):
        return True, value
    if isinstance(value, list | tuple | set):
        parts = [_plain(v) for v in value]
        return all(k for k, _ in parts), [v for _, v in parts]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        items = {k: _plain(v) for k, v in value.items()}
        return all(k for k, _ in items.values()), {k: v for k, (_, v) in items.items()}
    return False, None


def short(node: ast.AST | None, limit: int = 160) -> str:
    if node is None:
        return ""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):  # thousands of operators in one expression; a number of thousands of digits
        return "..."
    return text if len(text) <= limit else text[: limit - 3] + "..."
