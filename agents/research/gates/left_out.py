"""What leaves a card out, or miscounts it, without a unit being at stake: families of archs whose name fits the card
and whose answer is no, lists that do not know it, sizes that are not its own, and its name in another spelling."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from agents.research.gates.bindings import mentions
from agents.research.gates.claims import words
from agents.research.gates.evaluate import Evaluator, Raises
from agents.research.gates.files import Module
from agents.research.gates.survey import Gate, Survey, Use, certain, uses
from agents.research.source_tree import last_name, short
from cards.sheet import CardSheet

FEWEST_ARCHS = 6  # a shorter list is of kernels that exist for some cards, not of what a project knows


@dataclass(frozen=True)
class Misnamed:
    """on_gfx9() that says no to a gfx9 card: it stands for fewer archs than its name says. Or a yes to another."""

    gates: tuple[Gate, ...]
    family: str
    uses: tuple[Use, ...]


def misnamed(survey: Survey) -> list[Misnamed]:
    found: dict[tuple[str, bool], list[Gate]] = {}
    for gate in survey.all():
        name = re.fullmatch(r"_*(?:is_)?on_(gfx\d+[a-f]?)x*", gate.name.lower())
        if name and isinstance(gate.answer, bool) and gate.answer is not survey.arch.startswith(name[1]):
            found.setdefault((name[1], gate.answer), []).append(gate)
    return [
        Misnamed(tuple(gates), family, tuple(uses(survey, frozenset(g.name for g in gates))))
        for (family, _), gates in found.items()
    ]


def shut_out(survey: Survey) -> tuple[list[Gate], list[Gate]]:
    """Gates that say no to the card: (of AITER as a whole, of collectives, which need no special arithmetic)."""
    no = [g for g in survey.all() if g.answer is False and not g.promises]
    aiter = [g for g in no if re.search(r"aiter.*supported$", g.name)]
    return aiter, [g for g in no if re.search(r"all_?reduce", "_".join(words(g.title.replace(".", "_"))))]


@dataclass(frozen=True)
class ArchList:
    place: str
    name: str
    archs: tuple[str, ...]


def lists_without(survey: Survey) -> list[ArchList]:
    """Lists of the archs that a project knows at all and that lack this one."""
    found = []
    for module in survey.modules:
        named = [(name, node, line) for name, (node, line) in module.flags.items()]
        for function in (f for fs in module.functions.values() for f in fs if len(f.archs) >= FEWEST_ARCHS):
            lines = [n for n in ast.walk(function.node) if isinstance(n, ast.Assign)]
            named += [(last_name(n.targets[0]), n.value, n.lineno) for n in lines]
        for name, node, line in named:
            if not isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set | ast.Call):
                continue
            archs = mentions(node)[1]
            known = re.search(r"map|arch|supported|allowed|target", name.lower())
            partial = re.search(r"rdna|cdna|fp8", name.lower())
            if len(archs) >= FEWEST_ARCHS and known and not partial and survey.arch not in archs:
                found.append(ArchList(f"{module.file}:{line}", name, tuple(sorted(archs))))
    return found


# --- sizes ---


@dataclass(frozen=True)
class Miscount:
    """A size that the code holds for this arch and the sheet does not."""

    place: str
    text: str
    held: int


def miscounts(survey: Survey, sheet: CardSheet) -> dict[str, tuple[int, list[Miscount]]]:
    """By quantity, in words: (what the sheet says, the places that say otherwise)."""
    quantities: dict[str, tuple[re.Pattern[str], int]] = {
        "bytes of LDS": (re.compile(r"(^|_)(lds|shmem|smem)(_|$)"), int(sheet.lds_bytes.value)),
        "registers a lane": (re.compile(r"(^|_)vgprs?(_|$)"), int(sheet.vgprs.value)),
        "lanes a wave": (re.compile(r"(^|_)(wave|wavefront|warp)_?size(_|$)"), sheet.wavefront),
    }
    found: dict[str, tuple[int, list[Miscount]]] = {}
    for words_of_it, (name_fits, true) in quantities.items():
        places: dict[str, Miscount] = {}
        for place, name, held, text in _sizes(survey):
            if name_fits.search(name.lower()) and held != true and held > 0:
                places.setdefault(place, Miscount(place, text, held))
        if places:
            found[words_of_it] = (true, list(places.values()))
    return found


def _sizes(survey: Survey) -> list[tuple[str, str, int, str]]:
    """(place, name, value, text) of numbers that depend on the arch: functions' answers, entries of tables by arch."""
    found = []
    for gate in survey.all():
        if isinstance(gate.answer, int) and not isinstance(gate.answer, bool):
            found.append((gate.place, gate.name, gate.answer, gate.text))
    for module in survey.modules:
        evaluator = survey.evaluator(module)
        pieces = [(name, node) for name, (node, _) in module.flags.items()]
        for function in (f for fs in module.functions.values() for f in fs if f.archs):
            lines = [n for n in ast.walk(function.node) if isinstance(n, ast.Assign)]
            pieces += [(last_name(n.targets[0]), n.value) for n in lines]
        for name, node in pieces:
            for table in (n for n in ast.walk(node) if isinstance(n, ast.Dict)):
                entry = _entry(table, survey.arch, evaluator)
                if entry is not None:
                    found.append((f"{module.file}:{table.lineno}", name, entry, f"{name} = {short(node, 100)}"))
    return found


def _entry(table: ast.Dict, arch: str, evaluator: Evaluator) -> int | None:
    """The number under the arch, or under the longest beginning of it."""
    keys = {k.value: v for k, v in zip(table.keys, table.values, strict=True) if isinstance(k, ast.Constant)}
    fits = sorted((k for k in keys if isinstance(k, str) and k.startswith("gfx") and arch.startswith(k)), key=len)
    held = evaluator.value(keys[fits[-1]]) if fits else None
    return held if isinstance(held, int) and not isinstance(held, bool) else None


# --- the name in another spelling ---


@dataclass(frozen=True)
class Misspelt:
    spelling: str
    place: str  # the function that fails
    raises: str
    read_from: str  # where the name comes in


def other_spelling(arch: str) -> str | None:
    """gfx906 -> gfx9006, as amdsmi was seen to write it: the kernel driver's version number 90006 has two digits for
    the minor version. Archs with another minor version (gfx942, gfx950) or a letter (gfx90a) are not known to be so."""
    return f"{arch[:4]}0{arch[4:]}" if re.fullmatch(r"gfx\d0\d", arch) else None


def misspelt(survey: Survey) -> Misspelt | None:
    spelling = other_spelling(survey.arch)
    if spelling is None:
        return None
    for module in survey.modules:
        came = _line_with(module, "target_graphics_version")
        if came is None or _line_with(module, spelling) is not None:
            continue
        module.parse(re.compile(r"def \w*capability"))
        for function in (f for fs in module.functions.values() for f in fs if "capability" in f.name):
            answer = Evaluator(spelling).function(function.node)
            if isinstance(answer, Raises) and certain(Evaluator(survey.arch).function(function.node)):
                place = f"{module.file}:{function.node.lineno}"
                return Misspelt(spelling, place, f"{module.file}:{answer.line}", f"{module.file}:{came}")
    return None


def _line_with(module: Module, text: str) -> int | None:
    return next((n for n, row in enumerate(module.rows, 1) if text in row and not row.lstrip().startswith("#")), None)
