"""Trains the model from nothing, scores it, and writes what is kept.

    python -m accuracy_gate.arithmetic.training.train --tokenizer FOLDER/tokenizer.json --out FOLDER --seconds 400

writes model.safetensors, loss.csv and run.json into --out. `--steps` repeats a run; `--seconds` chooses the number of
steps from the speed of the first ones.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from accuracy_gate.arithmetic.generate import DATA_VERSION, Split, problems
from accuracy_gate.arithmetic.training.batches import SHAPES, encode, loader
from accuracy_gate.arithmetic.training.documents import chat, plain
from accuracy_gate.arithmetic.training.evaluate import answers, right
from accuracy_gate.arithmetic.training.model import CONFIG, Llama

PEAK, WARM_UP, DECAY, CLIP = 2e-3, 200, 0.05, 1.0  # AdamW's learning rate and its steps of rise; then a cosine to zero
PROBE = 60  # steps from whose second half the speed is read when --seconds is given
EVERY = 25  # steps between lines of loss.csv
DEV_SEED, DEV_EVERY = 90_001, 500
SCORE_SEED = 90_002


def loss_sum(model: Llama, ids: Tensor, learnt: Tensor) -> Tensor:
    """Summed over the tokens to be predicted."""
    hidden = model(ids[:, :-1])
    logits = model.logits(hidden[learnt[:, 1:]])
    return F.cross_entropy(logits.float(), ids[:, 1:][learnt[:, 1:]], reduction="sum")


@torch.no_grad()
@torch.compiler.set_stance("force_eager")
def exact_share(model: Llama, tokenizer: Tokenizer, device: torch.device) -> float:
    """Share of 500 held-out answers whose every token is the likeliest one: what greedy decoding would reproduce."""
    rows = encode(tokenizer, [chat(problem) for problem in problems("held_out_numbers", 500, DEV_SEED)])
    ids = torch.zeros(len(rows), max(len(row) for row, _ in rows), dtype=torch.long)
    learnt = torch.zeros_like(ids, dtype=torch.bool)
    for number, (row, mask) in enumerate(rows):
        ids[number, : len(row)], learnt[number, : len(row)] = torch.from_numpy(row), torch.from_numpy(mask)
    ids, learnt = ids.to(device), learnt.to(device)
    with torch.autocast(device.type, torch.bfloat16):
        likeliest = model.logits(model(ids[:, :-1])).argmax(-1)
    return float(((likeliest == ids[:, 1:]) | ~learnt[:, 1:]).all(1).float().mean())


def rate(step: int, steps: int) -> float:
    if step < WARM_UP:
        return PEAK * (step + 1) / WARM_UP
    return PEAK * 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


class LossLog:
    """A CSV that is complete after every line, should the run be cut short."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text("")

    def write(self, line: list[Any]) -> None:
        with self.path.open("a", newline="") as out:
            csv.writer(out, lineterminator="\n").writerow(line)


def train(model: Llama, asked: argparse.Namespace, device: torch.device, tokenizer: Tokenizer) -> dict[str, Any]:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
        lr=PEAK, betas=(0.9, 0.98), fused=device.type == "cuda",
    )  # fmt: skip
    if device.type == "cuda":
        for layer in model.layers:
            layer.compile(dynamic=False)  # once for each of SHAPES
    steps = asked.steps or 10**6
    log = LossLog(asked.out / "loss.csv")
    log.write(["step", "loss", "learning_rate", "held_out_exact", "seconds"])
    begun = half = time.monotonic()
    total = torch.zeros((), device=device)
    done = learnt_tokens = 0
    for step, batch in enumerate(loader(asked.tokenizer, asked.seed, steps, asked.workers)):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        count = sum(int(learnt[:, 1:].sum()) for _, learnt in batch)
        for ids, learnt in batch:
            with torch.autocast(device.type, torch.bfloat16):
                loss = loss_sum(model, ids.to(device, non_blocking=True).long(), learnt.to(device, non_blocking=True))
            (loss / count).backward()
            total += loss.detach() / count
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        learnt_tokens += count
        done = step + 1
        if not asked.steps and done == PROBE // 2:
            torch.cuda.synchronize()
            half = time.monotonic()
        if not asked.steps and done == PROBE:
            torch.cuda.synchronize()
            each = (time.monotonic() - half) / (PROBE - PROBE // 2)
            steps = PROBE + int((asked.seconds - (time.monotonic() - begun)) / each)
            print(f"{each * 1000:.0f} ms a step: {steps} steps in {asked.seconds} s", flush=True)
        if done % EVERY == 0 or done == steps:
            last = done == steps
            exact = exact_share(model, tokenizer, device) if done % DEV_EVERY == 0 or last else None
            mean = float(total) / (EVERY if done % EVERY == 0 else done % EVERY)
            total.zero_()
            seconds = time.monotonic() - begun
            log.write([done, f"{mean:.5f}", f"{rate(step, steps):.3e}", exact, f"{seconds:.1f}"])
            if exact is not None:
                print(f"step {done}/{steps} loss {mean:.4f} exact {exact:.3f} at {seconds:.0f} s", flush=True)
        if time.monotonic() - begun > asked.at_most:  # far slower than the probe: what there is, is scored as it is
            print("out of time", flush=True)
            break
        if done == steps:
            break
    return {"steps": done, "planned_steps": steps, "learnt_tokens": learnt_tokens,
            "seconds": round(time.monotonic() - begun, 1)}  # fmt: skip


def scores(model: Llama, tokenizer: Tokenizer) -> dict[str, str]:
    """Greedy, in bfloat16 weights and arithmetic."""
    found = {}
    splits: tuple[tuple[str, Split, int], ...] = (
        ("chat", "held_out_numbers", 1000), ("chat", "held_out_stories", 500), ("chat", "held_out_families", 200),
        ("bare_chat", "held_out_numbers", 300), ("plain", "held_out_numbers", 300),
        ("five_shot", "held_out_numbers", 200),
    )  # fmt: skip
    for style, split, count in splits:
        asked = list(problems(split, count, SCORE_SEED))
        shots = problems("train", 5, SCORE_SEED)
        documents = [
            {"chat": chat(p), "bare_chat": chat(p, ""), "plain": plain(p), "five_shot": plain(p, shots)}[style]
            for p in asked
        ]
        begun = time.monotonic()
        texts = answers(model, tokenizer, documents)
        found[f"{style} {split}"] = f"{right(texts, asked)} of {count}"
        print(f"{style:10} {split:20} {found[f'{style} {split}']} ({time.monotonic() - begun:.1f} s)", flush=True)
        wrong = [(p, t) for p, t in zip(asked, texts, strict=True) if right([t], [p]) == 0]
        for problem, text in wrong[:3]:
            print(f"  {problem.family}: {problem.question}\n    want {problem.answer!r}\n    got  {text!r}", flush=True)
    return found


def compare_with_transformers(model: Llama, device: torch.device) -> float:
    """Largest difference of a logit between this model and LlamaForCausalLM on the same weights, in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    theirs = LlamaForCausalLM(LlamaConfig(**CONFIG)).float().eval().to(device)
    missing, unexpected = theirs.load_state_dict(
        {name: weight.float() for name, weight in model.exported().items()}, strict=False
    )
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise RuntimeError(f"names differ from Hugging Face's: missing {missing}, unexpected {unexpected}")
    theirs.tie_weights()
    ids = torch.randint(0, CONFIG["vocab_size"], (4, 300), device=device)
    with torch.no_grad():
        return float((model.logits(model(ids)) - theirs(ids).logits).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--at-most", type=float, default=480)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=14)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(asked.seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    tokenizer = Tokenizer.from_file(str(asked.tokenizer))
    model = Llama().to(device)
    run: dict[str, Any] = {
        "data_version": DATA_VERSION, "seed": asked.seed, "shapes": SHAPES, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "parameters": sum(p.numel() for p in model.parameters()),
        "adamw": {"peak_learning_rate": PEAK, "warm_up": WARM_UP, "weight_decay": DECAY, "clip": CLIP},
    }  # fmt: skip
    print(json.dumps(run), flush=True)
    run |= train(model, asked, device, tokenizer)
    save_file(model.exported(), asked.out / "model.safetensors", metadata={"format": "pt"})
    (asked.out / "run.json").write_text(json.dumps(run, indent=1) + "\n")
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(torch.bfloat16))
    run["largest_difference_from_transformers"] = compare_with_transformers(model, device)
    run["greedy_in_torch"] = scores(model, tokenizer)
    (asked.out / "run.json").write_text(json.dumps(run, indent=1) + "\n")
    print(json.dumps(run))


if __name__ == "__main__":
    main()
