"""What a step takes at most where nobody says it: the version's own rule, by the card's memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.batch_defaults import limit, said
from agents.research.dossier import Dossier
from agents.research.tables.steps import steps
from contracts import Card
from tests.agents.examples import CPU, GFX950, KNOBS, dossier, spec, workload
from tests.agents.tables_examples import write

RULE = """
class EngineArgs:
    @classmethod
    def get_batch_defaults(cls, world_size):
        try:
            device_memory = current_platform.get_device_total_memory()
        except Exception:
            device_memory = 0
        if device_memory >= 160 * GiB_bytes:
            default_max_num_batched_tokens = {
                UsageContext.LLM_CLASS: 1,
                UsageContext.OPENAI_API_SERVER: 30000,
            }
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 900}
        elif device_memory >= 70 * GiB_bytes and "a100" not in device_name and not is_gb10:
            default_max_num_batched_tokens = {UsageContext.OPENAI_API_SERVER: 9000}
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 800}
        else:
            default_max_num_batched_tokens = {UsageContext.OPENAI_API_SERVER: 3000}
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 300}
        if current_platform.is_tpu():
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 5}
        if current_platform.is_cpu():
            default_max_num_batched_tokens = {UsageContext.OPENAI_API_SERVER: 2000 * world_size}
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 100 * world_size}
        return default_max_num_batched_tokens, default_max_num_seqs
"""


def card(gib: int, name: str = "a card") -> Card:
    return GFX950.model_copy(update={"memory_bytes": gib << 30, "name": name})


def about(root: Path, of: Card = GFX950, flags: dict[str, Any] | None = None, **more: Any) -> Dossier:
    knobs = KNOBS.model_copy(update={"path": str(root)})
    return dossier(card=of, knobs=knobs, spec=spec(flags=flags or {}), **more)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path / "vllm/engine/arg_utils.py", RULE)
    return tmp_path / "vllm"


@pytest.mark.parametrize(
    ("of", "tokens", "sequences"),
    [
        (card(288), 30000, 900),
        (card(80), 9000, 800),
        (card(80, "NVIDIA A100-SXM4-80GB"), 3000, 300),
        (card(32), 3000, 300),
        (CPU, 2000, 100),
    ],
)
def test_the_trees_own_rule_for_the_cards_memory(tree: Path, of: Card, tokens: int, sequences: int) -> None:
    found = about(tree, of)
    assert (limit(found, "tokens").value, limit(found, "sequences").value) == (tokens, sequences)


def test_the_line_is_told(tree: Path) -> None:
    told = limit(about(tree), "tokens").words
    assert told == "the default of vllm/engine/arg_utils.py:12 for a server on 288 GiB"


def test_a_flag_then_the_engine_itself_come_before_the_rule(tree: Path) -> None:
    flag = about(tree, flags={"max-num-seqs": 7}, realised={"max_num_seqs": 8})
    assert (limit(flag, "sequences").value, limit(flag, "sequences").words) == (7, "--max-num-seqs")
    assert limit(about(tree, realised={"max_num_seqs": 8}), "sequences").value == 8
    assert limit(about(tree, CPU, {"tensor-parallel-size": 2}), "sequences").value == 200
    assert limit(about(tree, flags={"performance-mode": "throughput"}), "sequences").value == 1800


def test_a_rule_that_is_not_understood_is_not_used(tree: Path, tmp_path: Path) -> None:
    text = RULE.replace("device_memory >= 160 * GiB_bytes", "somebody_knows()")
    write(tmp_path / "vllm/engine/arg_utils.py", text)
    assert said(about(tree), "tokens") is None
    assert said(about(tmp_path / "elsewhere"), "tokens") is None


@pytest.mark.parametrize(
    ("of", "tokens", "sequences"),
    [(card(288), 16384, 1024), (card(139), 8192, 1024), (card(64), 2048, 256), (CPU, 2048, 128)],
)
def test_without_a_tree_the_rule_that_three_versions_share(of: Card, tokens: int, sequences: int) -> None:
    found = about(Path("/nowhere/vllm"), of)
    assert (limit(found, "tokens").value, limit(found, "sequences").value) == (tokens, sequences)


def test_a_prompt_is_cut_at_the_budget_and_both_are_told(tree: Path) -> None:
    long = workload(input_tokens=(40_000, 40_000), concurrency=64)
    found = steps(about(tree, workload=long))
    assert found.prefill == 30000
    assert found.prefill_words == (
        "the longest prompt has 40000 tokens, a step takes at most 30000 "
        "(the default of vllm/engine/arg_utils.py:12 for a server on 288 GiB)"
    )
