"""Which questions of vLLM's and AITER's Python take this card for something that it is not?

A flag such as "any gfx9 is CDNA" sends a card without matrix cores down paths that were never built for it. Each gate
is answered for the card's arch by a small evaluator (agents/research/gates/) and held against the card's sheet.
"""

from __future__ import annotations

import re
from pathlib import Path

from agents.research.dossier import Dossier
from agents.research.finding import Finding, plural
from agents.research.gates.contradictions import Contradiction, aliases, contradictions
from agents.research.gates.evaluate import capability_of
from agents.research.gates.files import read_files
from agents.research.gates.left_out import Misnamed, lists_without, miscounts, misnamed, misspelt, shut_out
from agents.research.gates.survey import Gate, Survey, Use, survey
from agents.research.regular_file import open_regular
from cards.sheet import CardSheet
from contracts import Evidence

NAME = "arch_gates"
MOST_EVIDENCE = 24  # places shown of one cause; the rest is counted
MOST_CMAKE = 256 * 1024


def look(dossier: Dossier) -> list[Finding]:
    sheet, arch = dossier.sheet, dossier.card.arch
    if sheet is None or dossier.card.kind != "amd" or not arch.startswith("gfx"):
        return []
    found = []
    for tree in (dossier.knobs.path, dossier.aiter):
        if tree and Path(tree).is_dir():
            found += _tree(Path(tree), sheet)
    return found


def _tree(root: Path, sheet: CardSheet) -> list[Finding]:
    files = read_files(root, sheet.arch)
    seen = survey(files, sheet.arch)
    found = [_contradiction(c, sheet, root) for c in contradictions(seen, sheet)]
    found += _aliases(seen, sheet)
    found += _spelling(seen)
    found += [_misnamed(m, sheet.arch) for m in misnamed(seen)]
    found += _shut_out(seen, root)
    unknown = _lists(seen, root)
    found += unknown or _miscounts(seen, sheet, root)  # of a card that the project does not know nothing is counted
    problems = files.problems()
    if problems:
        title = f"{plural(len(problems), 'part')} of {root.name} could not be read for questions about the card"
        parts = [p.partition(": ") for p in problems[:MOST_EVIDENCE]]
        evidence = tuple(Evidence(source=place, detail=what) for place, _, what in parts)
        found.append(Finding(reader=NAME, kind="fact", title=title, evidence=evidence))
    return found


def _contradiction(c: Contradiction, sheet: CardSheet, root: Path) -> Finding:
    names = list(dict.fromkeys(g.name for g in c.gates))
    units = " and no ".join(c.units)
    n = len([u for u in c.uses if u.depth == 1])
    if c.meant:
        say = "says" if len(names) == 1 else "say"
        does = f"this {root.name} means to do without the unit"
        title = f"{', '.join(names)} {say} yes for {sheet.arch} by name, though the card has no {units}: {does}; "
        title, fix = f"{title}{_count(n)} on it", ""
    elif c.answer:
        say = "says" if len(names) == 1 else "say"
        title = f"{', '.join(names)} {say} yes for {sheet.arch}, which has no {units}; {_count(n)} on it"
        fix = c.fix or f"make {c.root.title} ({c.root.place}) say no for {sheet.arch}"
    else:
        title = f"{', '.join(names)} says no for {sheet.arch}, which has {' and '.join(c.units)}; {_count(n)} on it"
        fix = f"add {sheet.arch} to {c.root.title} ({c.root.place})"
    return Finding(
        reader=NAME,
        kind="fact" if c.meant else "trap",
        title=title,
        evidence=(*_gates(c.gates), _card(sheet, c.units, c.answer), *_places(c.uses)),
        fix=fix,
    )


def _count(places: int) -> str:
    return "1 place relies" if places == 1 else f"{places} places rely"


def _card(sheet: CardSheet, units: tuple[str, ...], lacking: bool) -> Evidence:
    detail = f"{'absent' if lacking else 'native'}: {', '.join(sheet.absent if lacking else sheet.native)}"
    return Evidence(source=f"configs/cards/{sheet.arch}.yaml", detail=detail)


def _gates(gates: tuple[Gate, ...] | list[Gate]) -> list[Evidence]:
    return [Evidence(source=g.place, detail=f"answers {g.answer}: {g.text}") for g in gates]


def _places(uses: tuple[Use, ...]) -> list[Evidence]:
    few, rest = uses[:MOST_EVIDENCE], uses[MOST_EVIDENCE:]
    shown = [Evidence(source=u.place, detail=f"{'in ' if u.depth == 1 else ''}{u.where}: {u.text}") for u in few]
    return shown + ([Evidence(source=rest[0].place, detail=f"and {len(rest)} more, this the first")] if rest else [])


def _aliases(seen: Survey, sheet: CardSheet) -> list[Finding]:
    found = aliases(seen, sheet)
    if not found:
        return []
    capability = capability_of(sheet.arch)
    units = sorted({u for a in found for u in a.units})
    title = (
        f"HIP calls {sheet.arch} compute capability {tuple(capability or ())}, which passes {len(found)} questions "
        f"that mean NVIDIA's numbers, in code about {' and '.join(units)} that this card lacks"
    )
    evidence = [Evidence(source=a.place, detail=f"in {a.where}: {a.text}") for a in found[:MOST_EVIDENCE]]
    fix = "ask the platform for the unit (supports_fp8() and the like) instead of comparing capability numbers on ROCm"
    return [
        Finding(
            reader=NAME,
            kind="trap",
            title=title,
            evidence=(*evidence, _card(sheet, tuple(units), True)),
            fix=fix,
        )
    ]


def _spelling(seen: Survey) -> list[Finding]:
    found = misspelt(seen)
    if found is None:
        return []
    title = f"where amdsmi spells the card {found.spelling}, the engine cannot parse its capability and does not start"
    return [
        Finding(
            reader=NAME,
            kind="trap",
            title=title,
            evidence=(
                Evidence(source=found.read_from, detail="the name is taken as amdsmi gives it"),
                Evidence(source=found.place, detail=f"reads major and minor version from {found.spelling}"),
                Evidence(source=found.raises, detail="raises"),
                Evidence(
                    source="github.com/ai-infos/vllm-gfx906-mobydick",
                    detail="a fork for gfx906 replaces gfx9006 by gfx906; not verified on a card by this project",
                ),
            ),
            fix=f'where the name is read, add: if target_gfx == "{found.spelling}": target_gfx = "{seen.arch}"',
        )
    ]


def _misnamed(m: Misnamed, arch: str) -> Finding:
    names = ", ".join(dict.fromkeys(g.name for g in m.gates))
    n = len([u for u in m.uses if u.depth == 1])
    no = m.gates[0].answer is False
    title = f"{names} says {'no' if no else 'yes'} for {arch}, against its name; {_count(n)} on it"
    fix = f"a path that would run on {arch} has to be opened for it at these places, after its kernel was built for it"
    return Finding(
        reader=NAME,
        kind="fact" if no else "trap",
        title=title,
        evidence=(*_gates(m.gates), *_places(m.uses)),
        fix=fix,
    )


def _shut_out(seen: Survey, root: Path) -> list[Finding]:
    aiter, collectives = shut_out(seen)
    found = []
    if aiter:
        title = f"{root.name} uses no AITER kernel on {seen.arch}: {aiter[0].name} says no, VLLM_ROCM_USE_AITER or not"
        found.append(Finding(reader=NAME, kind="fact", title=title, evidence=tuple(_gates(aiter))))
    if collectives:
        built = _built_for(root, seen.arch)
        title = (
            f"{len(collectives)} gates keep {root.name}'s own all-reduce from {seen.arch}; a sum over cards needs no "
            "unit that it lacks, and it matters with tensor parallelism only"
        )
        fix = f"with two or more cards: add {seen.arch} at these places, and compare sums with RCCL's before any speed"
        evidence = (*_gates(collectives), *([built] if built else []))
        found.append(Finding(reader=NAME, kind="fact", title=title, evidence=evidence, fix=fix))
    return found


def _built_for(root: Path, arch: str) -> Evidence | None:
    """The build's own list of archs, where a checkout has it beside the package."""
    try:
        with open_regular(root.parent / "CMakeLists.txt") as file:
            text = file.read(MOST_CMAKE).decode("utf-8", errors="replace")
    except OSError:
        return None
    for number, row in enumerate(text.split("\n"), 1):
        if "HIP_SUPPORTED_ARCHS" in row and re.search(rf"\b{arch}\b", row):
            return Evidence(source=f"CMakeLists.txt:{number}", detail=f"HIP_SUPPORTED_ARCHS lists {arch}")
    return None


def _lists(seen: Survey, root: Path) -> list[Finding]:
    found = lists_without(seen)
    if not found:
        return []
    title = f"{root.name} does not know {seen.arch}: {len(found)} of its lists of archs lack it"
    evidence = [Evidence(source=x.place, detail=f"{x.name}: {', '.join(x.archs)}") for x in found[:MOST_EVIDENCE]]
    return [Finding(reader=NAME, kind="fact", title=title, evidence=tuple(evidence))]


def _miscounts(seen: Survey, sheet: CardSheet, root: Path) -> list[Finding]:
    found = []
    for quantity, (true, places) in miscounts(seen, sheet).items():
        held = sorted({p.held for p in places})
        title = (
            f"{root.name} counts {' or '.join(map(str, held))} {quantity} for {sheet.arch} in "
            f"{plural(len(places), 'place')}; the card has {true}"
        )
        evidence = [Evidence(source=p.place, detail=p.text) for p in places[:MOST_EVIDENCE]]
        evidence.append(Evidence(source=f"configs/cards/{sheet.arch}.yaml", detail=f"{true} {quantity}"))
        kind = "trap" if max(held) > true else "fact"
        fix = f"hold {true} for {sheet.arch} there, or ask the device"
        found.append(Finding(reader=NAME, kind=kind, title=title, evidence=tuple(evidence), fix=fix))
    return found
