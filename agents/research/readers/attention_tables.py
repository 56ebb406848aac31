"""Does the unified-attention kernel run long prompts with tiles that its table means for decode?

A tile table is keyed by several axes and the leftmost wins outright, so an entry for wide heads that says nothing of
rows also serves prompts of many thousand rows. When that is said, and from what, is in tables/attention.py (misplaced);
what is proposed instead in tables/attention_entry.py. Older AITER picks tiles in Python: the same question, the same
rule (tables/attention_source.py).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from agents.research import shares
from agents.research.attention_backends import AITER_FROM, PLATFORM, calls_aiter, generations
from agents.research.dossier import Dossier
from agents.research.finding import Finding, Terms
from agents.research.tables import attention, attention_source
from agents.research.tables.attention import Call, Section
from agents.research.tables.attention_calls import Reached, named_backend, prompt_user, reached, runs_elsewhere
from agents.research.tables.attention_entry import Check, Limits, Proposal, check, corrected, proposals
from agents.research.tables.attention_rows import ANOTHER_GUESS, guess, table_fix, tries
from agents.research.tables.attention_tree import AttentionTree, KernelUser, kernel_users, read_tree
from agents.research.tables.prompt_tiles import SECTION
from contracts import Evidence

NAME = "attention_tables"
FOR_NIGHTS = True
SAME_AS = "aiter-attention-prefill-tiles"  # configs/priors/gfx950.yaml: what one night did about it

# One tuning night on MI355X, 2026, claims 2.71 to 2.81 times the speed of the prompt kernel of head 512, fp8, for 16 ->
# 128 rows a tile (draft pull request 5926 of ROCm/aiter). Taken: the lower end, for eight times the rows; for fewer the
# same power of the ratio.
CLAIM, CLAIM_RATIO = 2.71, 8.0
CLAIM_FROM = "claimed by one MI355X night: 2.71 to 2.81 times on the 512-wide fp8 prompt kernel for 16 -> 128 rows"

# Judged. A named back end that calls the kernel; none named; and a patch of source instead of a line in a table.
PROBABILITY, PROBABILITY_UNNAMED, PATCH_FACTOR, GLUON_FACTOR = 0.6, 0.4, 0.7, 0.5
MOST_SECTIONS = 20  # of a table that are looked through for keys that serve nothing; AITER's have four
CORRECTED_RATIO = 1.1  # as many times the rows, in the power above: 1.05 of the kernel for a better tile of keys
SHARE_UNKNOWN = 0.05  # of all time, attention in prompts, where nothing says it: cautious, judged


def look(dossier: Dossier) -> list[Finding]:
    if dossier.card.kind != "amd" or not dossier.aiter or dossier.model is None:
        return []
    package = Path(dossier.knobs.path)
    if dossier.knobs.path and not calls_aiter(package, dossier.card.arch):
        who = f"{dossier.knobs.named} never calls AITER on {dossier.card.arch}"
        title = f"{who}: its attention tiles do not matter"
        generation = generations(package).get(dossier.card.arch, 0)
        said = f"get_cdna_version() answers {generation}; AITER is used from {AITER_FROM} on"
        return [_fact(title, [Evidence(source=f"vllm/{PLATFORM}", detail=said)])]
    tree = read_tree(Path(dossier.aiter), dossier.card.arch)
    users = kernel_users(Path(dossier.knobs.path), dossier.card.arch)
    backend = named_backend(dossier)
    if runs_elsewhere(backend, users):
        for_prompts = ", ".join(u.name for u in users if u.whole) or "no back end"
        title = f"Unified attention's tiles do not matter to prompts: those run on {backend}, not on {for_prompts}"
        return [_fact(title, [Evidence(source=u.source, detail=f"{u.name} calls it{_extent(u)}") for u in users])]
    user = prompt_user(backend, users)
    named = user is not None and user.name == backend
    kinds = reached(dossier, user)
    found = [_fact(f"Part of AITER cannot be read: {w}", [_at(tree.table_path, w)]) for w in tree.warnings]
    if not kinds:
        return found
    if tree.table is not None and not tree.problem:
        return found + _from_table(dossier, tree, kinds, user, named)
    if tree.problem or tree.loader:
        wrong = tree.problem or f"is not there, and {tree.loader} raises without it"
        title = f"Unified attention fails at its first call: its tile table for {dossier.card.arch} {wrong}"
        return [*found, _finding("trap", title, [_at(tree.table_path, wrong)], fix="choose another attention back end")]
    return found + _from_source(dossier, tree, kinds, user, named)


def _extent(user: KernelUser) -> str:
    return "" if user.whole else ", and has another kernel for prompts"


# --- tables ---


def _from_table(
    dossier: Dossier, tree: AttentionTree, kinds: list[Reached], user: KernelUser | None, named: bool
) -> list[Finding]:
    admitted = dossier.spec.env.get(tree.variable) == "1"
    if not attention.has_schema(tree.table):
        title = "The tile table of unified attention has no schema: a layout that this reader does not know"
        return [_fact(title, [_at(tree.table_path, f"read by {tree.loader or 'code that is not in this tree'}")])]
    sections, problems = attention.read_sections(tree.table, opt_in=admitted)
    found = [
        _finding("trap", f"Unified attention's lookup fails on its own table: {p}", [_at(tree.table_path, p)])
        for p in problems
    ]
    section = sections.get(SECTION)
    if section is not None:
        found += _misplaced(dossier, tree, section, kinds, user, named)
        found += _corrected(dossier, tree, section, kinds, user, named)
        found += _no_decode(dossier, tree, section, kinds)
    found += _never_served(tree, sections.values())
    if tree.opt_in_sections and not admitted:
        found.append(_opt_in(tree, section, kinds))
    if tree.special:
        title = f"{len(tree.special)} tables of single shapes lie beside the default one, the only one read here"
        found.append(_fact(title, [_at(tree.table_path, ", ".join(tree.special))]))
    return found


def _misplaced(
    dossier: Dossier,
    tree: AttentionTree,
    section: Section,
    kinds: list[Reached],
    user: KernelUser | None,
    named: bool,
) -> list[Finding]:
    calls = [call for kind in kinds for call in kind.calls]
    wrong = {call: m for call in calls if (m := attention.misplaced(section, call)) is not None}
    if not wrong:
        return [_in_order(tree, section, calls)]
    found = []
    for kind in kinds:
        mine = [wrong[call] for call in kind.calls if call in wrong]
        if not mine:
            continue
        worst = max(mine, key=lambda m: m.call.rows)
        call, heads = worst.call, worst.call.queries_per_kv
        now, other = worst.hit.block_m(heads), worst.neighbour_hit.block_m(heads)
        title = (
            f"Prompts of {call.rows:,} rows at head size {call.head_size} ({_seen(kind)}) get tiles of {now} rows from "
            f"{worst.hit.key}, an entry for any number of rows; head size {worst.neighbour} gets {other}"
        )
        evidence = [
            _entry(tree, section, worst.hit.key),
            _entry(tree, section, worst.neighbour_hit.key),
            _at(tree.table_path, f"schema of {SECTION}: {', '.join(section.axes)}; the leftmost axis wins outright"),
        ]
        offered = proposals(worst, section, _limits(dossier))
        if not offered:
            words = "no larger tile fits the card's LDS and registers, by estimate"
            found.append(_fact(f"{title}; {words}", evidence))
            continue
        meant = [c for c in wrong if replace(c, rows=call.rows, window=call.window) == call]
        checked = [(p, c) for p in offered if (c := check(section, p, meant, calls)).good]
        if not checked:
            proof = _proof(tree, offered[0], check(section, offered[0], meant, calls))
            found.append(_fact(f"{title}; no entry was found that changes this alone", [*evidence, *proof]))
            continue
        likely = _probability(named, bool(tree.gluon_path))
        for number, (proposal, proof_of, change, p) in enumerate(tries(dossier, tree, checked, likely), 1):
            rows = proposal.entry["BLOCK_M"]
            told = title if number == 1 else f"{title}; another guess, {guess(proposal)} ({number} of {len(offered)})"
            terms = _terms(dossier, kind, rows / (now or 1), p)
            proof = [*evidence, *_proof(tree, proposal, proof_of)]
            found.append(
                _opportunity(told, proof, table_fix(tree, proposal), terms, user, tree).model_copy(
                    update={"change": change}
                )
            )
    return found


def _corrected(
    dossier: Dossier,
    tree: AttentionTree,
    section: Section,
    kinds: list[Reached],
    user: KernelUser | None,
    named: bool,
) -> list[Finding]:
    """The longest prompts of each kind whose own entry has a tile of keys that does not fit the card, or is less than a
    page that the flags name. Entries that only an environment variable admits stay as they are."""
    said, own = "block-size" in dossier.spec.flags, tree.table.get(SECTION, {})
    found = []
    for kind in kinds:
        call = kind.calls[-1]
        hit = attention.lookup(section, call)
        if hit is None or hit.key not in own or call.rows == 1 or attention.misplaced(section, call) is not None:
            continue
        made = corrected(hit, call if said else replace(call, page=hit.tile(call.page) or call.page), _limits(dossier))
        if made is None:
            continue
        checked = check(section, made, [call], [call])
        likely = _probability(named, bool(tree.gluon_path)) * ANOTHER_GUESS
        for proposal, _, change, p in tries(dossier, tree, [(made, checked)], likely):
            title = f"Prompts of {call.rows:,} rows at head size {call.head_size} ({_seen(kind)}): {made.words[0]}"
            evidence = [_entry(tree, section, hit.key), _at(tree.table_path, f"proposed: {made.words[1]}")]
            terms = _terms(dossier, kind, CORRECTED_RATIO, p)
            one = _opportunity(title, evidence, table_fix(tree, proposal), terms, user, tree)
            found.append(one.model_copy(update={"change": change, "same_as": ""}))
    return found


def _no_decode(dossier: Dossier, tree: AttentionTree, section: Section, kinds: list[Reached]) -> list[Finding]:
    """Draft tokens make a decode step several rows long, which an entry for one row does not serve."""
    rows, found = 1 + dossier.draft_tokens, []
    for kind in kinds if rows > 1 else ():
        one = attention.lookup(section, replace(kind.calls[0], rows=1))
        several = attention.lookup(section, replace(kind.calls[0], rows=rows))
        if one is None or several is None or one.key == several.key or not any("Q_LEQ_" in s for s in one.slots):
            continue
        title = (
            f"A decode step of {rows} rows ({dossier.draft_tokens} draft tokens) at head size {kind.kind.head_size} is "
            f"served by {several.key}; the entry for decode, {one.key}, serves one row only"
        )
        found.append(_fact(title, [_entry(tree, section, several.key), _entry(tree, section, one.key)]))
    return found


def _in_order(tree: AttentionTree, section: Section, calls: list[Call]) -> Finding:
    evidence = []
    for call in calls:
        hit = attention.lookup(section, call)
        served = f"{hit.key}, {hit.block_m(call.queries_per_kv)} rows a tile" if hit else "no entry: the lookup raises"
        evidence.append(_at(tree.table_path, f"{_words(call)}: {served}"))
    return _fact(f"No entry of another regime serves one of the {len(calls)} attention calls of this model", evidence)


def _never_served(tree: AttentionTree, sections: Iterable[Section]) -> list[Finding]:
    found = []
    for section in itertools.islice(sections, MOST_SECTIONS):
        keys = attention.never_served(section)
        if keys:
            title = f"{len(keys)} of {len(section.entries)} entries of {section.name} can never serve a call"
            found.append(_fact(f"{title}: others come first", [_entry(tree, section, key) for key in keys]))
    return found


def _opt_in(tree: AttentionTree, section: Section | None, kinds: list[Reached]) -> Finding:
    names = ", ".join(tree.opt_in_sections)
    with_them = attention.read_sections(tree.table, opt_in=True)[0].get(SECTION)
    calls = [call for kind in kinds for call in kind.calls]
    moved = []
    if section is not None and with_them is not None:
        for call in calls:
            before, after = attention.lookup(section, call), attention.lookup(with_them, call)
            if after is not None and (before is None or before.entry != after.entry):
                moved.append((call, after.key))
    title = f"{names} applies only with {tree.variable}=1 in the engine's environment; {len(moved)} of {len(calls)} "
    evidence = [_at(tree.table_path + f"#{n}", f"{len(tree.table[n])} entries") for n in tree.opt_in_sections]
    evidence += [_at(tree.table_path, f"{_words(call)} would get {key}") for call, key in moved]
    if tree.variable_source:
        evidence.append(Evidence(source=tree.variable_source, detail=f"reads {tree.variable}"))
    title += "calls of this model would get another entry"
    return _fact(title, evidence, fix=f"{tree.variable}=1" if moved else "")


def _proof(tree: AttentionTree, proposal: Proposal, checked: Check) -> list[Evidence]:
    words = "; ".join(_words(call) for call in checked.reached)
    stray = "; ".join(_words(call) for call in checked.stray)
    said = f"lookup with it in the table: it serves {words or 'nothing'}; {checked.unmoved} other calls keep theirs"
    source = f"{tree.table_path}#{SECTION}.{proposal.key}"
    return [
        _at(source, "proposed: " + "; ".join(proposal.words)),
        _at(source, said + (f"; moved without being meant: {stray}" if stray else "")),
    ]


# --- source ---


def _from_source(
    dossier: Dossier, tree: AttentionTree, kinds: list[Reached], user: KernelUser | None, named: bool
) -> list[Finding]:
    function, where = tree.function, tree.function_path
    if function is None:
        said = f"no function {attention_source.FUNCTION} and no table for {dossier.card.arch}"
        return [
            _fact("This AITER has no unified-attention tiles that this reader knows", [_at(where or "aiter", said)])
        ]
    found = []
    for kind in kinds:
        call = kind.calls[-1]
        try:
            now = attention_source.tiles(function, call, dossier.card.arch)
            wrong = attention_source.misplaced(function, call, dossier.card.arch)
        except attention_source.UnknownError as error:
            title = f"The tiles of head size {call.head_size} are picked by Python that this reader cannot follow"
            found.append(_fact(title, [_at(f"{where}:{function.lineno}", f"not understood: {error}")]))
            continue
        rule = f"{now.test} (line {now.test_line})" if now.test else "no test of head size or rows"
        evidence = [
            _at(f"{where}:{now.test_line or now.line}", f"{_words(call)}: {rule} decides; tile {now.tile} keys"),
            _at(f"{where}:{now.line}", f"BLOCK_M = {now.block_m}"),
        ]
        told = f"{call.rows:,} rows at head size {call.head_size} ({_seen(kind)}) get tiles of {now.block_m} rows"
        if wrong is None:
            found.append(_fact(f"Prompts of {told}, from Python: {where}", evidence))
            continue
        _, head, other = wrong
        evidence.append(_at(f"{where}:{other.line}", f"head size {head}, same rows: BLOCK_M = {other.block_m}"))
        line = attention_source.long_from(function)
        fix = (
            f"In {where}, under `{now.test}` (line {now.test_line}), set BLOCK_M = {other.block_m} where max_seqlen_q "
            f">= {line}, as line {other.line} does for smaller heads, with its warps and stages; choose a tile of keys "
            f"with which query, key and value tiles fit the LDS. A later AITER reads these tiles from a table."
        )
        title = f"Prompts of {told}, whatever their length; head size {head} gets {other.block_m}"
        terms = _terms(dossier, kind, other.block_m / now.block_m, _probability(named, False) * PATCH_FACTOR)
        found.append(_opportunity(title, evidence, fix, terms, user, tree))
    return found


# --- words and numbers ---


def _terms(dossier: Dossier, kind: Reached, ratio: float, probability: float) -> Terms:
    part = f"{kind.share:.0%} of it in these {kind.kind.layers} layers, by FLOPs"
    known = shares.share(dossier, "prefill", "attention")
    if known is None:
        share, words = SHARE_UNKNOWN, f"unknown; {SHARE_UNKNOWN:.0%} of all time judged, cautious"
    else:
        share, words = known.value, known.words
    power = math.log(CLAIM) / math.log(CLAIM_RATIO)
    scaled = "" if ratio >= CLAIM_RATIO else f"; {ratio:g} times the rows: the same power"
    return Terms(
        phase="prefill",
        share=min(1.0, share * kind.share),
        share_from=f"{words}; {part}",
        speedup=min(ratio, CLAIM_RATIO) ** power,
        speedup_from=CLAIM_FROM + scaled,
        probability=probability,
        cost_s=dossier.cost_s(),
    )


def _probability(named: bool, gluon: bool) -> float:
    return (PROBABILITY if named else PROBABILITY_UNNAMED) * (GLUON_FACTOR if gluon else 1.0)


def _opportunity(
    title: str, evidence: list[Evidence], fix: str, terms: Terms, user: KernelUser | None, tree: AttentionTree
) -> Finding:
    if user is not None:
        evidence = [
            *evidence,
            _at(user.source, f"{user.name} calls this kernel; with another back end nothing changes"),
            _at(user.fp8_source, f"fp8 query with an fp8 KV cache: {user.fp8_query}"),
        ]
    else:
        evidence = [*evidence, _at("vllm", "no back end that calls this kernel was found: check that one does")]
    if tree.gluon_path:
        said = "Gluon kernels for this card too: a call that one of them serves does not read the Triton table"
        evidence = [*evidence, _at(tree.gluon_path, said)]
    return _finding("opportunity", title, evidence, fix=fix, terms=terms, risk="medium", same_as=SAME_AS)


def _limits(dossier: Dossier) -> Limits:
    sheet = dossier.sheet
    if sheet is None:
        return Limits()
    return Limits(sheet.lds_bytes.value, sheet.vgprs.value, sheet.wavefront)


def _seen(kind: Reached) -> str:
    return f"window {kind.kind.window}" if kind.kind.window else "full attention"


def _words(call: Call) -> str:
    window = ", window" if call.window else ""
    return f"head {call.head_size}, {call.rows:,} rows{window}, {call.q_tag}/{call.kv_tag}"


def _entry(tree: AttentionTree, section: Section, key: str) -> Evidence:
    return _at(f"{tree.table_path}#{section.name}.{key}", json.dumps(section.entries[key]))


def _at(source: str, detail: str) -> Evidence:
    return Evidence(source=source, detail=detail)


def _fact(title: str, evidence: list[Evidence], fix: str = "") -> Finding:
    return _finding("fact", title, evidence, fix=fix)


def _finding(kind: str, title: str, evidence: list[Evidence], **more: object) -> Finding:
    return Finding.model_validate({"reader": NAME, "kind": kind, "title": title, "evidence": tuple(evidence), **more})
