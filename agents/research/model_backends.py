"""Which attention back end a vLLM sets for a model by itself: classes of model_executor/models/config.py, by
architecture, may choose one before the platform's order of priorities is asked (Gemma 4's does, 0.30.0 to 0.33.0)."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.research.attention_backends import ENUM, tree_of
from agents.research.dossier import Dossier
from agents.research.three_valued import truth
from contracts import Frozen

FILE, MAP, METHOD = "model_executor/models/config.py", "MODELS_CONFIG_MAP", "verify_and_update_config"
OWNERS = ("vllm_config.attention_config", "attention_config", "attn_config")  # as the classes call it


VARIABLE = "VLLM_ATTENTION_BACKEND"  # up to vLLM 0.12, which has no flag for it


class Chosen(Frozen):
    """holds: True, or None where a condition before it is not known."""

    name: str
    holds: bool | None
    where: str  # vllm/model_executor/models/config.py:363


def asked_backend(dossier: Dossier) -> str | None:
    """The back end that the engine is told, by its own flag or inside --attention-config, by VARIABLE where this vLLM
    reads it; "auto" is none."""
    flag, config = dossier.spec.flags.get("attention-backend"), dossier.spec.flags.get("attention-config")
    named = flag if flag is not None else config.get("backend") if isinstance(config, dict) else None
    if named is None and VARIABLE in dossier.knobs.env:
        named = dossier.spec.env.get(VARIABLE) or None
    return None if named is None or str(named).lower() == "auto" else str(named).upper()


def model_facts(head_sizes: tuple[int, ...]) -> dict[str, Any]:
    """What these classes ask, on an AMD card. FA4 comes with vLLM's build of flash-attn, which is CUDA's
    (v1/attention/backends/fa_utils.py:271 of 0.30.0 to 0.33.0 answers no where it cannot be imported)."""
    return {
        "is_fa_version_supported(4)": False,
        "fa4_available": False,
        "current_platform.is_xpu()": False,
        "current_platform.is_cuda()": False,
        "len(set(head_dims.values())) <= 1": len(set(head_sizes)) <= 1,
    }


def chosen(package: Path, architecture: str, facts: Mapping[str, Any]) -> Chosen | None:
    """`package` is a folder named vllm. None: no class for this architecture, or it leaves the back end alone."""
    tree = tree_of(str(package / FILE))
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)} if tree else {}
    name = _registered(tree, architecture) if tree else None
    walk = _Walk(classes, facts)
    if name is not None:
        walk.of_class(name, True)
    return walk.found


def _registered(tree: ast.Module, architecture: str) -> str | None:
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign | ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if ast.unparse(target) == MAP:
            for key, held in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == architecture and isinstance(held, ast.Name):
                    return held.id
    return None


class _Walk:
    """Follows a class's statements, and those of the classes that it calls."""

    def __init__(self, classes: Mapping[str, ast.ClassDef], facts: Mapping[str, Any]) -> None:
        self.classes, self.given = classes, facts
        self.found: Chosen | None = None
        self.open: set[str] = set()

    def of_class(self, name: str, holds: bool | None) -> None:
        node = self.classes.get(name)
        method = next(
            (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == METHOD) if node else iter(()), None
        )
        if method is not None and name not in self.open:
            self.open.add(name)
            self._statements(method.body, holds)

    def _statements(self, body: list[ast.stmt], holds: bool | None) -> tuple[bool, bool | None]:
        """(surely ends here, what holds for the statements after these)."""
        for node in body:
            if isinstance(node, ast.Return | ast.Raise):
                return True, holds
            if isinstance(node, ast.If):
                asked = truth(node.test, self._facts())
                if asked is None:
                    for part in (node.body, node.orelse):
                        ended, _ = self._statements(part, None)
                        holds = None if ended else holds
                elif self._statements(node.body if asked else node.orelse, holds)[0]:
                    return True, holds
            elif isinstance(node, ast.Assign):
                self._assign(node, holds)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = node.value.func
                if isinstance(called, ast.Attribute) and called.attr == METHOD and isinstance(called.value, ast.Name):
                    self.of_class(called.value.id, holds)
        return False, holds

    def _facts(self) -> dict[str, Any]:
        """The one who asks first is answered that no back end is set."""
        return {**self.given, **{f"{owner}.backend is None": self.found is None for owner in OWNERS}}

    def _assign(self, node: ast.Assign, holds: bool | None) -> None:
        if ast.unparse(node.targets[0]) not in {f"{owner}.backend" for owner in OWNERS}:
            return
        value = node.value
        if isinstance(value, ast.IfExp):
            asked = truth(value.test, self._facts())
            value = value.body if asked else value.orelse
            holds = None if asked is None else holds
        if isinstance(value, ast.Attribute) and ast.unparse(value.value) == ENUM:
            self.found = Chosen(name=value.attr, holds=holds, where=f"vllm/{FILE}:{node.lineno}")
