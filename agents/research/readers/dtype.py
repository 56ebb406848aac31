"""Is the model served in bf16 on a card that has no arithmetic on bf16? Then each product is made in fp32 and float16,
where the card has it, is worth a try, if this vLLM lets this model have it."""

from __future__ import annotations

import ast
from pathlib import Path

from agents.research.card_dtypes import DTYPE
from agents.research.dossier import Dossier, holds
from agents.research.finding import EXPECTED, Finding, Terms, expected
from agents.research.regular_file import read_regular
from agents.research.served import plain_dtype
from agents.research.shares import share
from cards.sheet import CardSheet
from contracts import Change, Evidence, Lever

NAME = "dtype"
FOR_NIGHTS = True

# Where vLLM keeps the model types that it refuses in float16, with the reason (0.30.0 to 0.33.0).
DECLARED = ("config/model.py", "_FLOAT16_NOT_SUPPORTED_MODELS")
CHECK = "_check_valid_dtype"  # raises where it refuses
PLATFORM = "platforms/rocm.py"
MOST_BYTES = 2_000_000
PARTS = ("attention", "gemm", "moe")  # of prefill, which products limit; decode mostly waits for memory, the same bytes
# Judged: of two public gfx906 ports one serves in float16 only and one tests both (configs/priors/gfx906.yaml#
# bf16-gfx906); whether a model's values stay in float16's range the accuracy gate says.
PROBABILITY = 0.5
JUDGED_SHARE = 0.4  # of all time, products in prefill, where neither a profile nor the roofline says it; cautious


def look(dossier: Dossier) -> list[Finding]:
    model, sheet = dossier.model, dossier.sheet
    if model is None or sheet is None or "bf16" not in sheet.absent or plain_dtype(model, dossier.spec.flags) != "bf16":
        return []
    asked = dossier.spec.flags.get(DTYPE)
    takes, where = _taken(dossier)
    if takes and "bfloat16" not in takes and asked in (None, "auto"):
        title = f"{dossier.knobs.named} serves this model in {takes[0]} by itself: it takes no bf16 on this platform"
        said = Evidence(source=where, detail=f"supported_dtypes: {', '.join(takes)}; config.json says {model.dtype}")
        return [Finding(reader=NAME, kind="fact", title=title, evidence=(said,))]
    why = f"{sheet.arch} has no arithmetic on bf16, and the model is served in it"
    evidence = [
        Evidence(source=f"configs/cards/{sheet.arch}.yaml#absent", detail=", ".join(sheet.absent)),
        holds(dossier, DTYPE, asked),
        Evidence(source="config.json", detail=f"dtype {model.dtype}: what auto takes where vLLM allows it"),
    ]
    refused = _refused(dossier)
    if refused is not None:
        title = f"{why}; this vLLM refuses float16 for {_model_type(dossier)}, so every product is made in fp32"
        return [
            Finding(
                reader=NAME,
                kind="trap",
                title=title,
                evidence=(*evidence, refused),
                fix="another model or another card; --dtype float32 gives the same speed of products, twice the bytes",
            )
        ]
    ceiling = _ceiling(sheet)
    if ceiling <= 1:
        return [Finding(reader=NAME, kind="fact", title=f"{why}; float16 has no higher peak", evidence=tuple(evidence))]
    peaks = ", ".join(f"{name} {sheet.tflops[name].value:g}" for name in ("fp16", "fp32"))
    evidence.append(Evidence(source=f"configs/cards/{sheet.arch}.yaml#tflops", detail=f"peaks in TFLOPS: {peaks}"))
    part, words = _share(dossier)
    return [
        Finding(
            reader=NAME,
            kind="opportunity",
            title=f"{why}: products are made in fp32 after a conversion; float16 has {ceiling:.2f} times its peak",
            evidence=tuple(evidence),
            fix=f"--{DTYPE} float16; look for infinities and compare answers: float16 ends at 65,504, bf16 does not",
            change=Change(lever=Lever.ENGINE_FLAG, key=DTYPE, before=asked, after="float16"),
            terms=Terms(
                phase="prefill",
                share=part,
                share_from=words,
                speedup=expected(ceiling),
                speedup_from=f"judged: {EXPECTED:.0%} of what the ceiling saves; at best {ceiling:.2f} times, by the "
                f"peaks of fp16 and fp32 of {sheet.arch}",
                probability=PROBABILITY,
                cost_s=dossier.cost_s(),
            ),
            risk="high",  # other rounding and a smaller range: answers differ, only the accuracy gate can pass it
        )
    ]


def _ceiling(sheet: CardSheet) -> float:
    half, single = sheet.tflops.get("fp16"), sheet.tflops.get("fp32")
    return half.value / single.value if half and single else 1.0


def _share(dossier: Dossier) -> tuple[float, str]:
    known = [found for found in (share(dossier, "prefill", part) for part in PARTS) if found is not None]
    if not known:
        return JUDGED_SHARE, f"unknown; {JUDGED_SHARE:.0%} of all time in prefill's products judged, cautious"
    return min(1.0, sum(found.value for found in known)), "; ".join(found.words for found in known)


def _model_type(dossier: Dossier) -> str:
    return str(dossier.model_config_json.get("model_type") or "")


def _taken(dossier: Dossier) -> tuple[tuple[str, ...], str]:
    """(the dtypes that vLLM's ROCm platform says it takes, the first of them what auto falls back to; where). Upstream
    says nothing of its own there; a fork for a card without bf16 may. The last one that a class defines counts."""
    try:
        tree = ast.parse(read_regular(Path(dossier.knobs.path) / PLATFORM, MOST_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return (), ""
    held = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "supported_dtypes"]
    last = held[-1].body[-1] if held else None
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.List):
        return (), ""
    names = tuple(ast.unparse(e).removeprefix("torch.") for e in last.value.elts)
    return names, f"vllm/{PLATFORM}:{held[-1].lineno}"


def _refused(dossier: Dossier) -> Evidence | None:
    """Where this vLLM refuses float16 for this kind of model. None: it does not, or its source cannot be read. A fork
    may keep the list and only warn."""
    file, name = DECLARED
    path = Path(dossier.knobs.path) / file
    try:
        tree = ast.parse(read_regular(path, MOST_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    check = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == CHECK), None)
    if check is not None and not any(isinstance(n, ast.Raise) for n in ast.walk(check)):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.Dict):
            reason = _literal(node.value).get(_model_type(dossier))
            return Evidence(source=f"vllm/{file}:{node.lineno}", detail=f"{name}: {reason}") if reason else None
    return None


def _literal(node: ast.Dict) -> dict[str, str]:
    try:
        return {str(key): str(value) for key, value in ast.literal_eval(node).items()}
    except (ValueError, TypeError):
        return {}
