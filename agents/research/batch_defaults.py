"""How many tokens and sequences a step of a vLLM server takes where nobody says it: by the card's memory, as
EngineArgs.get_batch_defaults of that version decides (engine/arg_utils.py). Read from the tree; where that cannot be
done, by the rule of 0.30.0, 0.32.0 and 0.33.0, which are alike.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from agents.research.dossier import Dossier
from agents.research.regular_file import read_regular
from agents.research.three_valued import truth
from contracts import Frozen

FILE, FUNCTION, SERVER = "engine/arg_utils.py", "get_batch_defaults", "UsageContext.OPENAI_API_SERVER"
TARGETS = {"default_max_num_batched_tokens": "tokens", "default_max_num_seqs": "sequences"}
# (GiB at least, tokens, sequences): lines 2730 to 2759 of 0.30.0, 2923 to 2952 of 0.32.0, 2973 to 3006 of 0.33.0.
CPU = (2048, 128)  # for each rank, whatever the memory: lines 2785, 2978 and 3032 on
KNOWN = ((160, 16384, 1024), (70, 8192, 1024), (0, 2048, 256))
MOST_BYTES = 2_000_000

What = Literal["tokens", "sequences"]
FLAGS: dict[What, str] = {"tokens": "max-num-batched-tokens", "sequences": "max-num-seqs"}


class Limit(Frozen):
    """Of one step, and who says so: a flag, the engine, or a file and line."""

    value: int
    words: str


def said(dossier: Dossier, what: What) -> Limit | None:
    """By the flag, by the engine that ran, or by this vLLM's source. None where none of them says it."""
    flag = FLAGS[what]
    for held, words in (
        (dossier.spec.flags.get(flag), f"--{flag}"),
        (dossier.realised.get(flag.replace("-", "_")), "the engine itself"),
    ):
        if isinstance(held, int) and not isinstance(held, bool) and held > 0:
            return Limit(value=held, words=words)
    found = _of_tree(dossier).get(what)
    return _doubled(dossier, *found) if found else None


def limit(dossier: Dossier, what: What) -> Limit:
    """As `said`, else by the known rule."""
    held = said(dossier, what)
    if held is not None:
        return held
    gib = dossier.card.memory_bytes / 2**30
    _, tokens, sequences = next(row for row in KNOWN if gib >= row[0])
    if dossier.card.kind == "cpu":
        tokens, sequences = (n * _world(dossier) for n in CPU)
    value = tokens if what == "tokens" else sequences
    return _doubled(dossier, value, f"the default of vLLM 0.30.0 to 0.33.0 for a server on {gib:.0f} GiB")


def _doubled(dossier: Dossier, value: int, words: str) -> Limit:
    """--performance-mode throughput doubles what nobody set (0.33.0, engine/arg_utils.py:3184)."""
    if dossier.spec.flags.get("performance-mode") == "throughput":
        return Limit(value=2 * value, words=f"{words}, doubled by --performance-mode throughput")
    return Limit(value=value, words=words)


def _world(dossier: Dossier) -> int:
    stages = dossier.spec.flags.get("pipeline-parallel-size", 1)
    return dossier.tensor_parallel * (stages if isinstance(stages, int) else 1)


def _of_tree(dossier: Dossier) -> dict[str, tuple[int, str]]:
    path = Path(dossier.knobs.path) / FILE
    try:
        body = _function(str(path), path.stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    card = dossier.card
    facts: dict[str, Any] = {
        "device_memory": card.memory_bytes,
        "device_name": card.name.lower(),
        "is_gb10": card.arch == "sm_121",
        "current_platform.is_tpu()": False,
        "current_platform.is_cpu()": card.kind == "cpu",
    }
    for node in (n for statement in body for n in ast.walk(statement)):
        if isinstance(node, ast.BinOp) and (value := _number(node, {"GiB_bytes": 2**30})) is not None:
            facts[ast.unparse(node)] = value
    found: dict[str, tuple[int, str]] = {}
    where = f"the default of vllm/{FILE}:%d for a server on {card.memory_bytes / 2**30:.0f} GiB"
    _walk(body, facts, {"world_size": _world(dossier)}, where, found)
    return found


@lru_cache(maxsize=16)
def _function(path: str, _changed: int) -> tuple[ast.stmt, ...]:
    """The statements of the function, parsed once for each state of the file."""
    tree = ast.parse(read_regular(path, MOST_BYTES))
    return next((tuple(n.body) for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == FUNCTION), ())


def _walk(
    body: tuple[ast.stmt, ...] | list[ast.stmt],
    facts: dict[str, Any],
    names: dict[str, int],
    where: str,
    found: dict[str, tuple[int, str]],
) -> None:
    """What the statements leave assigned. A condition that is not known leaves what it would assign unknown."""
    for node in body:
        if isinstance(node, ast.If):
            asked = truth(node.test, facts)
            if asked is None:
                lost = {ast.unparse(t) for n in ast.walk(node) if isinstance(n, ast.Assign) for t in n.targets}
                for name in lost & TARGETS.keys():
                    found.pop(TARGETS[name], None)
            else:
                _walk(node.body if asked else node.orelse, facts, names, where, found)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            what = TARGETS.get(ast.unparse(node.targets[0]))
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                number = _number(value, names)
                if what and key is not None and ast.unparse(key) == SERVER and number is not None:
                    found[what] = (number, where % value.lineno)


def _number(node: ast.expr, names: dict[str, int]) -> int | None:
    """2048, 2048 * world_size, 160 * GiB_bytes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _number(node.left, names), _number(node.right, names)
        return None if left is None or right is None else left * right
    return None
