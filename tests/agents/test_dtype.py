"""bf16 on a card without it: told, and float16 proposed where card and version allow it; never the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.research.audit import audit
from agents.research.card_dtypes import absent_dtype
from agents.research.dossier import Dossier
from agents.research.rank import research
from agents.research.readers.dtype import look
from cards.sheet import read_sheet
from contracts import Change, Lever, TryItem
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.test_roofline_reader import MODEL

SOURCE = '_FLOAT16_NOT_SUPPORTED_MODELS = {\n    "narrow": "Numerical instability.",\n}\n'


def about(arch: str = "gfx906", flags: dict[str, Any] | None = None, **fields: Any) -> Dossier:
    """The model's own dtype is bfloat16; prompts of 2000 tokens."""
    sheet = read_sheet(arch)
    held: dict[str, Any] = {"model": MODEL, "sheet": sheet, "card": sheet.card(), "spec": spec(flags=flags or {})}
    held["workload"] = workload(concurrency=16, input_tokens=(2000, 2000), output_tokens=(50, 50))
    return dossier(**{**held, **fields})


def flag(key: str, before: Any, after: Any) -> Change:
    return Change(lever=Lever.ENGINE_FLAG, key=key, before=before, after=after)


def test_bf16_on_a_card_without_it_is_worth_a_try_in_float16() -> None:
    (found,) = look(about())
    assert found.title.startswith("gfx906 has no arithmetic on bf16, and the model is served in it")
    assert found.change == flag("dtype", None, "float16") and found.risk == "high"
    assert found.terms is not None and "at best 1.99 times" in found.terms.speedup_from
    assert 1.3 < found.terms.speedup < 1.4 and 1 < found.terms.gain < 1.4  # half of what 26.5 over 13.3 TFLOPS saves
    assert "gemm is" in found.terms.share_from and found.hypothesis() is not None
    assert found.evidence[0].source == "configs/cards/gfx906.yaml#absent"
    assert look(about(flags={"dtype": "bfloat16"}))[0].change == flag("dtype", "bfloat16", "float16")


@pytest.mark.parametrize(
    "subject",
    [about("gfx942"), about(flags={"dtype": "half"}), about(model=MODEL.model_copy(update={"dtype": "float16"}))],
    ids=["the card has bf16", "the engine has float16", "the model is float16"],
)
def test_nothing_to_say(subject: Dossier) -> None:
    assert look(subject) == []


def test_a_model_that_vllm_refuses_in_float16_is_a_trap(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/model.py").write_text(SOURCE)
    knobs = KNOBS.model_copy(update={"path": str(tmp_path)})
    (found,) = look(about(knobs=knobs, model_config_json={"model_type": "narrow"}))
    assert (found.kind, found.change) == ("trap", None)
    assert found.evidence[-1].source == "vllm/config/model.py:1"
    assert look(about(knobs=knobs, model_config_json={"model_type": "wide"}))[0].kind == "opportunity"


ONLY_WARNS = (
    SOURCE
    + """
def _check_valid_dtype(model_type, dtype):
    if model_type in _FLOAT16_NOT_SUPPORTED_MODELS:
        logger.warning("may be wrong")
    return True
"""
)
FORKS_PLATFORM = """
class RocmPlatform(Platform):
    @property
    def supported_dtypes(self):
        return [torch.float16, torch.float32]
"""


def test_a_fork_that_only_warns_lets_a_night_try_float16(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/model.py").write_text(ONLY_WARNS)
    knobs = KNOBS.model_copy(update={"path": str(tmp_path)})
    assert look(about(knobs=knobs, model_config_json={"model_type": "narrow"}))[0].kind == "opportunity"
    (tmp_path / "config/model.py").write_text(ONLY_WARNS.replace('logger.warning("may', 'raise ValueError("may'))
    assert look(about(knobs=knobs, model_config_json={"model_type": "narrow"}))[0].kind == "trap"


def test_a_fork_that_takes_no_bf16_serves_in_float16_already(tmp_path: Path) -> None:
    (tmp_path / "platforms").mkdir()
    (tmp_path / "platforms/rocm.py").write_text(FORKS_PLATFORM)
    knobs = KNOBS.model_copy(update={"path": str(tmp_path)})
    (found,) = look(about(knobs=knobs))
    assert (found.kind, found.change) == ("fact", None)
    assert found.title == "vLLM 0.32.0 serves this model in float16 by itself: it takes no bf16 on this platform"
    assert found.evidence[0].source == "vllm/platforms/rocm.py:4"
    asked = look(about(knobs=knobs, flags={"dtype": "bfloat16"}))[0]  # asked for all the same
    assert asked.change == flag("dtype", "bfloat16", "float16")


def test_no_reader_may_lead_to_a_dtype_that_the_card_has_not() -> None:
    """`defaults` would undo a dtype set by hand, and the default is the model's bf16."""
    subject = about(flags={"dtype": "float16"})
    found = audit(subject, ["defaults", "dtype"])
    assert found.of("opportunity") == ()
    (note,) = [n for n in found.notes if "dtype" in n]
    assert note.endswith("(defaults): it leads to bf16, which configs/cards/gfx906.yaml calls absent")
    has_it = audit(about("gfx942", flags={"dtype": "half"}), ["defaults"])
    assert [f.change for f in has_it.of("opportunity")] == [flag("dtype", "half", None)]


def test_a_night_neither_but_what_is_listed_by_hand_is_tried() -> None:
    held: dict[str, Any] = {"flags": {"dtype": "float16"}}
    found = research(about(**held), ["defaults", "dtype"])
    assert found.hypotheses == ()
    (note,) = [line for line in found.dropped if "dtype" in line]
    assert note.endswith("(defaults): it leads to bf16, which configs/cards/gfx906.yaml calls absent")
    asked = TryItem(lever=Lever.ENGINE_FLAG, key="dtype", after=None, why="to see")
    (tried,) = research(about(**held, try_first=(asked,)), ["defaults", "dtype"]).hypotheses
    assert tried.change == flag("dtype", "float16", None) and tried.proposer == "night file"


def test_nor_to_a_kv_cache_that_it_has_not() -> None:
    scheme = MODEL.model_copy(update={"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}})
    back = flag("kv-cache-dtype", "float16", None)  # the checkpoint's scheme makes auto fp8
    held = {"kv-cache-dtype": "float16"}
    assert absent_dtype(back, about(flags=held, model=scheme)) == (
        "it leads to a KV cache of fp8, which needs fp8 or fp8_fnuz: not native in configs/cards/gfx906.yaml"
    )
    assert absent_dtype(back, about("gfx942", flags=held, model=scheme)) is None
    assert absent_dtype(back, about(flags=held)) is None
    assert absent_dtype(flag("max-num-seqs", 4, 8), about()) is None
    assert absent_dtype(back, about(flags=held, sheet=None)) is None
