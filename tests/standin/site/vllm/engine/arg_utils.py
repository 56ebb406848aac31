"""The flags that a rehearsal may change on the stand-in engine (tests/standin/engine.py understands more)."""

import argparse


def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int, default=2048)
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--block-size", type=int, default=128)
    parser.add_argument("--enforce-eager", action="store_true", default=False)
    return parser
