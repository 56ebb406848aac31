"""Rules of the attention back end, by flag, by order and by class, against the installed vLLM's own source."""

from __future__ import annotations

from typing import Any

import pytest

from agents.research.readers import attention_backends as reader
from agents.tuning.levers import LEVERS
from contracts import Change, Lever
from engine.own_plugins import CLASS, FOLDERS, PRIORITY, classes_of, priority_of
from tests.agents.installed import DENSE, MIXED, about, checked, cited_line
from tests.real import ROOT

INSIDE = str(ROOT / "tests" / "kernels" / "inside")


def by(known: Any, key: str, after: str | None) -> str | None:
    lever = Lever.ENVIRONMENT if key.isupper() else Lever.ENGINE_FLAG
    held = LEVERS[lever].read(known.spec, key)
    return checked(Change(lever=lever, key=key, before=held, after=after), known)


def flag(known: Any, after: str | None) -> str | None:
    return by(known, "attention-backend", after)


# --- by flag ---


def test_another_one_that_serves_every_layer() -> None:
    assert flag(about("gfx950"), "TRITON_ATTN") is None
    assert flag(about("gfx906"), "TRITON_ATTN") is None
    assert flag(about("sm_90"), "FLASHINFER") is None


@pytest.mark.parametrize(
    ("arch", "model", "fields", "name", "words"),
    [
        ("gfx950", DENSE, {}, "TRITON_ATN", "has no attention back end TRITON_ATN"),
        ("gfx950", DENSE, {}, "TRITON_ATN", "did you mean TRITON_ATTN?"),
        ("gfx950", DENSE, {}, "CUSTOM", "CUSTOM has no class of its own"),
        ("gfx950", DENSE, {}, "FLASHINFER", "it imports FlashInfer, which is made for NVIDIA's cards"),
        ("sm_90", DENSE, {}, "ROCM_ATTN", "it is made for AMD's cards"),
        ("gfx906", DENSE, {}, "ROCM_AITER_FA", "its class does not take this card: get_cdna_version() > 2"),
        ("gfx950", MIXED, {}, "ROCM_ATTN", "it takes no heads of 512"),
        ("gfx950", DENSE, {"dtype": "float32"}, "ROCM_AITER_FA", "it takes no model in float32"),
        ("gfx950", DENSE, {"block-size": 24}, "TRITON_ATTN", "it takes no block of 24 tokens, only multiples of 16"),
        ("gfx950", DENSE, {"kv-cache-dtype": "int8_per_token_head"}, "ROCM_ATTN", "it takes no KV cache of int8_per"),
        ("gfx950", DENSE, {"attention-config": {"backend": "X"}}, "TRITON_ATTN", "another spelling of the same"),
    ],
)
def test_what_cannot_serve_is_told_before_a_start(
    arch: str, model: str, fields: dict[str, Any], name: str, words: str
) -> None:
    assert words in str(flag(about(arch, model, flags=fields), name))


def test_what_vllm_takes_by_itself_is_no_change() -> None:
    reason = str(flag(about("gfx950"), "ROCM_ATTN"))
    assert reason.startswith("vLLM takes ROCM_ATTN without it too")
    assert "def _get_backend_priorities" in cited_line(reason, "platforms/rocm.py")
    assert flag(about("gfx950", flags={"attention-backend": "TRITON_ATTN"}), None) is None
    assert "without it too" in str(flag(about("gfx950", flags={"attention-backend": "ROCM_ATTN"}), None))


def test_on_a_cpu_the_flag_is_left_to_path_evidence() -> None:
    assert flag(about("cpu"), "FLASH_ATTN") is None
    assert "has no attention back end FLASH" in str(flag(about("cpu"), "FLASH"))


# --- by the order of priorities ---


def test_an_order_that_changes_what_a_layer_takes() -> None:
    assert by(about("gfx950"), PRIORITY, "TRITON_ATTN") is None
    assert by(about("gfx906"), PRIORITY, "TRITON_ATTN,ROCM_ATTN") is None
    assert by(about("sm_90"), PRIORITY, "TRITON_ATTN,FLASH_ATTN") is None
    assert by(about("gfx950", env={PRIORITY: "TRITON_ATTN"}), PRIORITY, None) is None


@pytest.mark.parametrize(
    ("arch", "fields", "value", "words"),
    [
        ("gfx950", {}, "ROCM_ATTN", "vLLM takes ROCM_ATTN without it too"),
        ("gfx950", {}, "ROCM_ATTN,TRITON_ATTN", "vLLM takes ROCM_ATTN without it too"),
        ("gfx950", {}, "triton_attn, ROCM_ATTN", f"write {PRIORITY} as TRITON_ATTN,ROCM_ATTN"),
        ("gfx950", {}, ",", "takes names with commas between"),
        ("gfx950", {}, "TRITON_ATN", "did you mean TRITON_ATTN?"),
        ("gfx906", {}, "ROCM_AITER_FA", "ROCM_AITER_FA can serve no layer here: its class does not take this card"),
        ("gfx950", {}, "TRITON_MLA", "TRITON_MLA can serve no layer here: it is made for latent attention"),
        (
            "gfx950",
            {"flags": {"attention-backend": "ROCM_ATTN"}},
            "TRITON_ATTN",
            "a flag sets ROCM_ATTN for all layers",
        ),
        ("cpu", {}, "CPU_ATTN", "a CPU build has no order of priorities"),
    ],
)
def test_an_order_that_would_do_nothing(arch: str, fields: dict[str, Any], value: str, words: str) -> None:
    assert words in str(by(about(arch, **fields), PRIORITY, value))


def test_a_slip_in_our_own_variables_is_told() -> None:
    slip = str(by(about("gfx950"), "NIGHTGATE_ATTENTION_PRIORITIES", "TRITON_ATTN"))
    assert slip == f"nightgate has no environment variable NIGHTGATE_ATTENTION_PRIORITIES; did you mean {PRIORITY}?"
    assert by(about("gfx950"), "NIGHTGATE_PLANTED_FAULT", "skip_layer") is None


# --- by a registered class ---


def own(arch: str, **fields: Any) -> Any:
    return about(arch, plugin_paths=(INSIDE,), **fields)


def test_a_class_for_a_name_that_is_taken() -> None:
    assert by(own("cpu"), CLASS, "CPU_ATTN=own_attention:OwnAttention") is None
    assert by(own("gfx950"), CLASS, "ROCM_ATTN=own_attention:OwnAttention") is None
    asked = own("gfx950", env={PRIORITY: "TRITON_ATTN"})
    assert by(asked, CLASS, "TRITON_ATTN=own_attention:OwnAttention") is None
    assert by(own("sm_90"), CLASS, "FLASH_ATTN=vllm.v1.attention.backends.triton_attn:TritonAttentionBackend") is None


@pytest.mark.parametrize(
    ("arch", "value", "words"),
    [
        ("cpu", "TRITON_ATTN=own_attention:OwnAttention", "a CPU build never asks for TRITON_ATTN, only for"),
        ("gfx950", "TRITON_ATTN=own_attention:OwnAttention", "so a class for TRITON_ATTN is never loaded"),
        ("gfx950", "ROCM_ATTN=own_attention.OwnAttention", f"{CLASS} takes NAME=package.module:Class"),
        ("gfx950", "ROCM_ATN=own_attention:OwnAttention", "did you mean ROCM_ATTN?"),
        (
            "gfx950",
            "ROCM_ATTN=own_atention:OwnAttention",
            "no file of module own_atention in the engine's plugin folders",
        ),
        ("gfx950", "ROCM_ATTN=own_attention:OwnAtention", "has no class OwnAtention; did you mean OwnAttention?"),
    ],
)
def test_a_class_that_no_layer_would_take(arch: str, value: str, words: str) -> None:
    assert words in str(by(own(arch), CLASS, value))


def test_with_a_class_registered_for_it_custom_can_be_asked_for() -> None:
    known = own("gfx950", env={CLASS: "CUSTOM=own_attention:OwnAttention"})
    assert flag(known, "CUSTOM") is None


# --- the one list, and the reader ---


def test_each_of_our_plugins_can_be_found_where_it_lies() -> None:
    """A folder on the path: the package, and the metadata that names its entry point."""
    for folder in FOLDERS:
        (points,) = folder.glob("*.dist-info/entry_points.txt")
        assert f"{folder.name} = {folder.name}:register" in points.read_text()
        assert (folder / folder.name / "__init__.py").is_file() and (folder / "pyproject.toml").is_file()


def test_the_variables_as_data() -> None:
    assert priority_of("A, B,,") == ("A", "B")
    assert priority_of(None) == ()
    assert classes_of("A=p.m:C,B=m:D,C=x,=m:E") == {"A": "p.m.C", "B": "m.D"}


@pytest.mark.parametrize("arch", ["gfx906", "gfx950", "sm_90"])
@pytest.mark.parametrize("model", [DENSE, MIXED])
def test_what_the_reader_proposes_passes(arch: str, model: str) -> None:
    known = about(arch, model)
    proposed = [f.change for f in reader.look(known) if f.change]
    assert [checked(change, known) for change in proposed] == [None] * len(proposed)
    if model == DENSE:
        assert bool(proposed) == (arch != "sm_90")  # only AMD's order is read for proposals
