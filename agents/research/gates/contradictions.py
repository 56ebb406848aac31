"""Gates whose answer the card's sheet contradicts: a yes for a unit that the card lacks, a no for one that it has, and
questions of CUDA's compute capability that HIP's numbers pass by accident."""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass

from agents.research.gates.bindings import mentions
from agents.research.gates.claims import SERIES, has, lacks, words
from agents.research.gates.evaluate import UNKNOWN, Capability, Evaluator, capability_of
from agents.research.gates.files import OTHER_CARDS
from agents.research.gates.survey import LITERAL, Gate, Live, Survey, Use, certain, live, reachable, units_around, uses
from agents.research.source_tree import last_name, short
from cards.sheet import CardSheet

PLAIN = re.compile(
    r"_*((is|on|has|supports?)_[a-z0-9]+(_avail(able)?|_supported)?|((native|supported)_)?[a-z0-9]+_archs)"
)


@dataclass(frozen=True)
class Contradiction:
    """One cause: the gate `root`, and all gates that say the same because it does."""

    answer: bool
    root: Gate
    gates: tuple[Gate, ...]  # root first
    units: tuple[str, ...]  # what the card lacks (answer yes) or has (answer no)
    uses: tuple[Use, ...]
    fix: str
    meant: bool = False  # a yes that names this very card: no slip


def contradictions(survey: Survey, sheet: CardSheet) -> list[Contradiction]:
    found = []
    for answer in (True, False):
        wrong = {gate: units for gate in survey.all() if (units := _wrong(gate, sheet, answer))}
        for root, members in _by_cause(wrong).items():
            names = frozenset(g.name for g in members)
            units = sorted({u for g in members for u in wrong[g]})
            found.append(
                Contradiction(
                    answer,
                    root,
                    tuple(members),
                    tuple(units),
                    tuple(uses(survey, names)),
                    _narrower(root, survey.arch) if answer else "",
                    answer and _by_name(root, survey.arch),
                )
            )
    return found


def _by_name(gate: Gate, arch: str) -> bool:
    """It spells the arch out, or asks a gate that is called after it: on_gfx906()."""
    return arch in mentions(gate.node)[1] or any(re.fullmatch(rf"_*(is_)?on_{arch}", n.lower()) for n in gate.asks)


def _wrong(gate: Gate, sheet: CardSheet, answer: bool) -> list[str]:
    """The units that make this answer wrong."""
    if gate.answer is not answer or not gate.promises:
        return []
    if answer:
        return sorted(u for u in gate.promises if lacks(sheet, u))
    # A no can have many good reasons, so only a gate that is about nothing but the unit can be wrong.
    plain = None if SERIES & set(words(gate.name)) else PLAIN.fullmatch(gate.name.lower())
    return sorted(gate.promises) if plain and all(has(sheet, u) for u in gate.promises) else []


def _by_cause(wrong: dict[Gate, list[str]]) -> dict[Gate, list[Gate]]:
    """Each wrong gate under the deepest wrong gate that it asks."""
    by_name: dict[str, Gate] = {}
    for gate in wrong:
        by_name.setdefault(gate.name, gate)

    def root(gate: Gate, seen: frozenset[str]) -> Gate:
        for name in sorted(gate.asks - seen):
            if name in by_name:
                return root(by_name[name], seen | {gate.name})
        return gate

    found: dict[Gate, list[Gate]] = {}
    for gate in wrong:
        found.setdefault(root(gate, frozenset()), []).append(gate)
    return {cause: [cause, *(g for g in members if g is not cause)] for cause, members in found.items()}


def _narrower(gate: Gate, arch: str) -> str:
    """A unified diff that spells out, in place of a text that also fits this arch, the archs that the file itself
    names; "" where the place cannot be mended by text alone."""
    wide = [
        (node, node.value)
        for node in ast.walk(gate.node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 3
        if node.value.startswith("gfx") and node.value in arch
    ]
    if len(wide) != 1 or wide[0][1] == arch:
        return ""
    node, text = wide[0]
    rows = gate.module.rows
    whole = {m.group()[1:-1] for row in rows for m in LITERAL.finditer(row)}
    kept = sorted(a for a in whole if a.startswith(text) and capability_of(a) and a != arch)
    row = rows[node.lineno - 1]
    inside = any(node in n.elts for n in ast.walk(gate.node) if isinstance(n, ast.List | ast.Tuple | ast.Set))
    listed = ", ".join(f'"{a}"' for a in kept)
    calls = [n for n in ast.walk(gate.node) if isinstance(n, ast.Call)]
    given = any(node in n.args and last_name(n.func) == "startswith" for n in calls)
    if not kept or not (inside or given) or f'"{text}"' not in row:
        return ""
    new = [*rows]
    new[node.lineno - 1] = row.replace(f'"{text}"', listed if inside else f"({listed})", 1)
    diff = difflib.unified_diff(rows, new, f"a/{gate.module.file}", f"b/{gate.module.file}", n=1, lineterm="")
    return "\n".join(diff)


# --- compute capability ---


@dataclass(frozen=True)
class Alias:
    """A question of compute capability that this card passes, in code about a unit that it lacks."""

    place: str
    where: str
    text: str
    units: tuple[str, ...]


def aliases(survey: Survey, sheet: CardSheet) -> list[Alias]:
    found: list[Alias] = []
    for module in survey.modules:
        if OTHER_CARDS.search(module.file.lower()):
            continue
        evaluator = survey.evaluator(module)
        for function in (f for fs in module.functions.values() for f in fs):
            if not any("capability" in name for name in function.names | {a.arg for a in function.node.args.args}):
                continue
            for piece in live(function, evaluator):
                for question in _passed(piece, evaluator):
                    units = tuple(sorted(u for u in units_around(piece) if lacks(sheet, u)))
                    if units and not any(a.place == f"{module.file}:{question.lineno}" for a in found):
                        text = short(question, 80) + (f" under: {piece.around[-1]}" if piece.around else "")
                        found.append(Alias(f"{module.file}:{question.lineno}", function.title, text, units))
    return found


def _passed(piece: Live, evaluator: Evaluator) -> list[ast.expr]:
    """has_device_capability(89), cap >= (8, 9), and `cap < (8, 9)` that is false: the card counts as capable."""
    found: list[ast.expr] = []
    for node in reachable(piece.node, evaluator, piece.env):
        if isinstance(node, ast.Call) and last_name(node.func) == "has_device_capability":
            if evaluator.value(node, piece.env) is True:
                found.append(node)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = [evaluator.value(s, piece.env) for s in (node.left, node.comparators[0])]
            at = [_is_capability(s, v) for s, v in zip((node.left, node.comparators[0]), sides, strict=True)]
            result = evaluator.value(node, piece.env)
            if sum(at) != 1 or not certain(result) or UNKNOWN in sides or None in sides:
                continue
            above = isinstance(node.ops[0], ast.GtE | ast.Gt) == at[0]
            if isinstance(node.ops[0], ast.GtE | ast.Gt | ast.Lt | ast.LtE) and result is above:
                found.append(node)
    return found


def _is_capability(node: ast.expr, value: object) -> bool:
    return isinstance(value, Capability) or (isinstance(value, int) and not isinstance(node, ast.Constant))
