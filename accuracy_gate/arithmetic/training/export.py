"""Makes the Hugging Face folder from a training run, and the loss curve for the documentation.

    python -m accuracy_gate.arithmetic.training.export --run RUN --model accuracy_gate/arithmetic_model --docs docs

RUN holds model.safetensors and loss.csv as train.py wrote them; the tokenizer is in --model already. README.md in
--model is written by hand; SHA256SUMS covers it too, so run `--sums-only` after editing it.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import shutil
from pathlib import Path

from accuracy_gate.arithmetic.training.model import CONFIG

SUMS = "SHA256SUMS"
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 60, 40  # of the drawing and its margins, in pixels


def documents(model: Path) -> None:
    (model / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    tokens = {name: CONFIG[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (model / "generation_config.json").write_text(json.dumps(tokens, indent=2) + "\n")


def sums(model: Path) -> None:
    """As sha256sum prints them, so that `sha256sum -c SHA256SUMS` works."""
    files = sorted(path for path in model.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (model / SUMS).write_text("\n".join(lines) + "\n")


def curve(rows: list[dict[str, str]]) -> str:
    """SVG: loss on a logarithmic axis (line), and the share of held-out answers exact to the token (dots)."""
    steps = max(int(row["step"]) for row in rows)
    losses = [float(row["loss"]) for row in rows]
    low, high = math.floor(math.log10(min(losses))), math.ceil(math.log10(max(losses)))

    def x(step: str) -> float:
        return LEFT + int(step) / steps * (WIDTH - 2 * LEFT)

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 20)

    def loss_y(loss: float) -> float:
        return y((math.log10(loss) - low) / (high - low))

    line = " ".join(f"{x(row['step']):.1f},{loss_y(loss):.1f}" for row, loss in zip(rows, losses, strict=True))
    dots = "".join(
        f'<circle cx="{x(row["step"]):.1f}" cy="{y(float(row["held_out_exact"])):.1f}" r="4" fill="#c0392b"/>'
        for row in rows
        if row["held_out_exact"]
    )
    marks = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - LEFT}" y1="{loss_y(10.0**power):.1f}" y2="{loss_y(10.0**power):.1f}" '
        f'stroke="#ddd"/><text x="{LEFT - 6}" y="{loss_y(10.0**power) + 4:.1f}" text-anchor="end">1e{power}</text>'
        for power in range(low, high + 1)
    )
    shares = "".join(
        f'<text x="{WIDTH - LEFT + 6}" y="{y(share) + 4:.1f}" fill="#c0392b">{share:.0%}</text>'
        for share in (0.0, 0.5, 1.0)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{marks}{shares}'
        f'<polyline points="{line}" fill="none" stroke="#1f4e79" stroke-width="1.5"/>{dots}'
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">training steps (0 to {steps}); '
        "line: loss per answer token (nats), left axis; dots: held-out answers exact to the token, right axis"
        "</text></svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--sums-only", action="store_true")
    asked = parser.parse_args()
    if not asked.sums_only:
        if not (asked.run and asked.docs):
            parser.error("give --run and --docs, or --sums-only")
        shutil.copyfile(asked.run / "model.safetensors", asked.model / "model.safetensors")
        documents(asked.model)
        shutil.copyfile(asked.run / "loss.csv", asked.docs / "arithmetic_model_loss.csv")
        rows = list(csv.DictReader((asked.run / "loss.csv").open(newline="")))
        (asked.docs / "arithmetic_model_loss.svg").write_text(curve(rows))
    sums(asked.model)


if __name__ == "__main__":
    main()
