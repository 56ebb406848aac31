"""Rules of the graph capture list: which sizes vLLM would take, and which this workload could ever replay.

The list is a key of --compilation-config (`cudagraph_capture_sizes`) with two flags of its own that mean the same
(`--cudagraph-capture-sizes`, `--max-cudagraph-capture-size`); readers, probes and priors use those keys, and a change
of any of them is looked at here before an engine is started for it. No memory is estimated: what a captured size costs
is in no source that could be cited, and the engine's own log says it ("Graph capturing finished").

Read in vLLM 0.30.0, 0.32.0 and 0.33.0. Nothing here was run on an AMD card.
"""

from __future__ import annotations

from pydantic import JsonValue

from agents.research import graph_sizes
from agents.research.captured import LARGEST, SIZES, SOURCE, Settings, decode_step, read_settings, switched_off
from agents.research.dossier import Dossier
from agents.research.source_line import cited, line_of
from agents.research.tables.attention_calls import token_budget
from agents.tuning.levers import LEVERS, engine_flag
from contracts import Change, EngineSpec, Lever

KEYS = frozenset(
    (lever, key.replace("_", "-") if lever is Lever.ENGINE_FLAG else key)
    for lever in (Lever.COMPILATION, Lever.ENGINE_FLAG)
    for key in (SIZES, LARGEST)
)
DECODE_ONLY = "FULL_DECODE_ONLY"  # the one mode whose graphs hold no step with a prompt in it (config/compilation.py)
CPU = "platforms/cpu.py"


def problem(change: Change, spec: EngineSpec, subject: Dossier) -> str | None:
    """Why this change of a capture list is not worth an engine start, in one line, or None. `spec` is the engine
    without the change; `subject` is what is known without a start: card, source tree, workload."""
    package = subject.knobs.path
    key = change.key.replace("-", "_")
    if subject.card.kind == "cpu":
        where = line_of(package, CPU, f"{SIZES} = []")
        return f"a CPU build captures no graphs, it empties the list{cited(where)}"
    plain = _plain(spec, subject)
    changed = LEVERS[change.lever].write(plain, change.key, change.after)
    before, after = (read_settings(subject.model_copy(update={"spec": s})) for s in (plain, changed))
    off = switched_off(subject.model_copy(update={"spec": changed}), after)
    if off is not None:
        where = line_of(package, SOURCE, "no cudagraph in use")
        return f"graphs are off: {off.detail}, so nothing is captured{cited(where)}"
    mine = "flag" if change.lever is Lever.ENGINE_FLAG else "compilation"
    return (
        _other_spelling(key, mine, before, package)
        or _shape(key, change.after)
        or _agree(after, subject, package)
        or _rounded(changed, before, after, subject, package)
        or _replayed(change.after if key == SIZES else None, changed, after, subject)
    )


def _plain(spec: EngineSpec, subject: Dossier) -> EngineSpec:
    """Flags in their long names: --cc and --compilation_config are one flag."""
    aliases = subject.knobs.aliases
    named = ((engine_flag.normalise(k), v) for k, v in spec.flags.items())
    return spec.model_copy(update={"flags": {aliases.get(k, k): v for k, v in named}})


def _other_spelling(key: str, mine: str, before: Settings, package: str) -> str | None:
    whose = before.owner.get(key, mine)
    if whose == mine:
        return None
    spelled = {
        "flag": f"the flag --{key.replace('_', '-')}",
        "compilation": f"the compilation key {key}",
        "json": f"{key} in the JSON of --compilation-config",
    }
    where = line_of(package, "engine/arg_utils.py", "are mutually exclusive", after=f"self.{key} is not None")
    return f"{spelled[whose]} is set already, another spelling of the same; vLLM takes one of them only{cited(where)}"


def _shape(key: str, value: JsonValue) -> str | None:
    if value is None:
        return None
    if key == LARGEST:
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return None if whole else f"{LARGEST} takes a whole number from 1 on, not {value!r}"
    if not isinstance(value, list) or not value:
        return f"{SIZES} takes a list of sizes, for example [1, 2, 4, 8]"
    sizes = [n for n in value if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    if len(sizes) < len(value):
        wrong = next(n for n in value if not (isinstance(n, int) and not isinstance(n, bool) and n > 0))
        return f"{SIZES} takes whole numbers from 1 on, not {wrong!r}"
    if sizes != sorted(set(sizes)):
        return f"write the sizes once each and ascending, or one list would be two changes: {sorted(set(sizes))}"
    return None


def _agree(after: Settings, subject: Dossier, package: str) -> str | None:
    """vLLM leaves out what no step can hold, and refuses a largest size that is not the list's."""
    budget = token_budget(subject)
    if after.sizes is not None and budget is not None and max(after.sizes) > budget:
        where = line_of(package, SOURCE, "if i <= max_num_tokens")
        over = ", ".join(str(n) for n in after.sizes if n > budget)
        return f"vLLM drops sizes above max-num-batched-tokens ({budget}): {over}{cited(where)}"
    if after.sizes is not None and after.largest is not None and max(after.sizes) != after.largest:
        where = line_of(package, SOURCE, '"should be consistent with the max value of "')
        return (
            f"vLLM refuses a list that ends at {max(after.sizes)} beside {LARGEST} = {after.largest}: take that key "
            f"out first{cited(where)}"
        )
    return None


def _rounded(changed: EngineSpec, before: Settings, after: Settings, subject: Dossier, package: str) -> str | None:
    """With draft tokens vLLM rounds the sizes up to whole requests."""
    width = 1 + subject.model_copy(update={"spec": changed}).draft_tokens
    if after.sizes is None or width == 1:
        return None
    where = line_of(package, "config/compilation.py", "def adjust_cudagraph_sizes_for_spec_decode")
    held = graph_sizes.usable(after.sizes, width)
    if not held and width > max(after.sizes):
        return f"no size holds one request of {width} tokens, drafts included, and vLLM refuses that{cited(where)}"
    if before.sizes is not None and held == graph_sizes.usable(before.sizes, width):
        return f"rounded to whole requests of {width} tokens both lists are {held}{cited(where)}"
    return None


def _replayed(value: JsonValue, changed: EngineSpec, after: Settings, subject: Dossier) -> str | None:
    """A step takes the next size that holds it, so that sizes beyond the one for the largest step are never used. A
    step with prompts in it is larger than a decode step, and its graph is used in all modes but DECODE_ONLY."""
    step = decode_step(subject.model_copy(update={"spec": changed}))
    if not isinstance(value, list) or after.sizes is None or step is None:
        return None
    reach, words = step.tokens, f"a decode step has at most {step.tokens} tokens ({step.words})"
    if after.mode != DECODE_ONLY:
        load = subject.workload
        reach = max(reach, step.sequences * (load.shared_prefix_tokens + load.input_tokens[1]))
        words = f"a step has at most {reach} tokens, prompts included ({step.words})"
    over = [n for n in graph_sizes.usable(after.sizes, step.width) if n >= reach][1:]
    if not over:
        return None
    mode = f" in mode {DECODE_ONLY}" if after.mode == DECODE_ONLY else ""
    shown = ", ".join(map(str, over[:5])) + (" ..." if len(over) > 5 else "")
    return f"never replayed{mode}: {shown}; {words}. Leave {'it' if len(over) == 1 else 'them'} out"
