"""Knobs that came, went and changed between versions of vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.research.finding import Finding
from agents.research.knob_history import (
    History,
    HistoryError,
    changed_defaults,
    default_before,
    differences,
    load_history,
    translate,
)
from agents.research.knobs import Deprecated, Knob, Knobs
from agents.research.readers import knob_versions
from contracts import Lever, TryItem
from tests.agents.examples import GFX950, KNOBS, dossier, spec

ASM = "VLLM_ROCM_USE_AITER_FP4_ASM_GEMM"
HISTORY = load_history()


def knobs(version: str, **fields: Any) -> Knobs:
    return KNOBS.model_copy(update={"version": version, **fields})


def env(*names: str, default: Any = False) -> dict[str, Knob]:
    return {n: Knob(name=n, kind="bool", default=default, default_known=True, source="envs.py:9") for n in names}


def look(version: str = "0.33.0", known: dict[str, Any] | None = None, **fields: Any) -> list[Finding]:
    return knob_versions.look(dossier(knobs=knobs(version, **(known or {})), card=GFX950, **fields))


# --- the reader ---


def test_a_knob_that_is_there_is_nothing_to_speak_of() -> None:
    engine = spec(flags={"max_num_seqs": 4, "tp": 2}, env={"VLLM_ROCM_USE_AITER": "1"}, compilation={"mode": 3})
    assert look(spec=engine) == []


def test_an_unknown_knob_is_a_trap_with_the_nearest_name() -> None:
    engine = spec(flags={"max-num-seq": 4}, env={"VLLM_ROCM_USE_AITR": "1"}, compilation={"modes": 3})
    flag, variable, key = look(spec=engine)
    assert (flag.kind, flag.title) == ("trap", "vLLM 0.33.0 has no flag max-num-seq: the engine refuses to start")
    assert flag.fix == "did you mean max-num-seqs?"
    assert flag.evidence[0].source == "tonight's engine configuration"
    assert variable.title == (
        "vLLM 0.33.0 has no variable VLLM_ROCM_USE_AITR: it is ignored, with a warning in the log at most"
    )
    assert key.title == "vLLM 0.33.0 has no compilation key modes: the engine refuses to start"


def test_keys_inside_a_json_flag_are_knobs_too() -> None:
    (found,) = look(spec=spec(flags={"kernel-config": {"moe_backnd": "triton"}}))
    assert found.fix == "did you mean kernel-config.moe_backend?"


def test_a_variable_of_another_version_is_dropped_with_the_reason() -> None:
    (found,) = look(spec=spec(env={ASM: "1"}))
    assert found.title.startswith(f"vLLM 0.33.0 has no variable {ASM}: it is ignored")
    assert "tuned a4w4 GEMM table" in found.fix
    assert found.evidence[1].source == f"configs/knob_history.yaml#{ASM}"
    assert look("0.32.0", {"env": env(ASM)}, spec=spec(env={ASM: "1"})) == []


def test_a_renamed_knob_is_translated_value_and_all() -> None:
    mono = {"flags": KNOBS.flags | {"monokernel": Knob(name="monokernel", kind="bool", source="config/kernel.py:299")}}
    item = TryItem(lever=Lever.ENVIRONMENT, key="VLLM_ROCM_MONO_DECODE", after="1", why="one launch a layer")
    (found,) = look(known=mono, try_first=(item,))
    assert found.title == "vLLM 0.33.0 has no variable VLLM_ROCM_MONO_DECODE; it is the flag monokernel now"
    assert found.fix == "use monokernel with True"
    assert [e.source for e in found.evidence] == [
        "the night file's try_first",
        "configs/knob_history.yaml#VLLM_ROCM_MONO_DECODE",
        "vllm/config/kernel.py:299",
    ]


def prior(folder: Path, **when: Any) -> tuple[str, ...]:
    where = {"where": "there", "who": "they", "version": "0.32.0", "date": "2026", "numbers": "1 to 2"}
    entry = {"id": "asm", "lever": "environment", "key": ASM, "value": "1", "outcome": "helps", "improves": ["ttft"]}
    path = folder / "priors.yaml"
    path.write_text(yaml.safe_dump({"priors": [entry | {"gain": 1.5, "why": "x", "when": when, "provenance": where}]}))
    return (str(path),)


def test_a_prior_is_held_to_the_version_and_the_card_it_claims(tmp_path: Path) -> None:
    (found,) = look(priors=prior(tmp_path))  # says nothing of versions, so it would be tried tonight
    assert found.evidence[0].source.endswith("priors.yaml#asm")
    assert look(priors=prior(tmp_path, vllm="<0.33")) == []  # reader `prior` drops it, and says why
    assert look(priors=prior(tmp_path, arch=["gfx906"])) == []
    assert look(priors=("/nowhere.yaml",)) == []


def test_who_names_the_same_unknown_knob_is_told_once(tmp_path: Path) -> None:
    (found,) = look(spec=spec(env={ASM: "1"}), priors=prior(tmp_path))
    assert [e.source.rpartition("/")[2] for e in found.evidence] == [
        "tonight's engine configuration",
        f"knob_history.yaml#{ASM}",
        "priors.yaml#asm",
    ]


def test_a_deprecated_knob_that_is_used_is_a_fact_with_its_place() -> None:
    ends = {
        "kernel-config.ir_op_priority": Deprecated(says="Gone soon.", source="config/kernel.py:274", gone_in="0.34.0"),
        "block-size": Deprecated(says="Long gone.", source="config/cache.py:1", gone_in="0.33.0"),
        "dtype": Deprecated(says="Not used tonight.", source="config/model.py:1"),
    }
    engine = spec(flags={"kernel-config": {"ir_op_priority": {"rms_norm": ["native"]}}, "block-size": 16})
    first, second = look(known={"deprecated": ends}, spec=engine)
    assert (first.kind, first.title) == (
        "fact",
        "kernel-config.ir_op_priority is deprecated in vLLM 0.33.0, to go in 0.34.0",
    )
    assert first.evidence[1].source == "vllm/config/kernel.py:274"
    assert second.title == "block-size is deprecated in vLLM 0.33.0, to go in 0.33.0 and so overdue"


def test_a_default_that_is_not_what_it_was() -> None:
    name = "VLLM_ROCM_USE_AITER_FP8BMM"
    (found,) = look(known={"env": env(name)})
    assert (found.kind, found.title) == ("fact", f"{name} is False by default in vLLM 0.33.0, and was True in 0.32.0")
    assert found.evidence[0].source == "vllm/envs.py:9"
    assert look("0.32.0", {"env": env(name, default=True)}) == []
    assert look(known={"env": env(name)}, spec=spec(env={name: "1"})) == []  # set by hand: the default is nothing here
    assert look(known={"env": env(name, default=True)}) == []  # the source says otherwise than the file
    assert knob_versions.look(dossier(knobs=knobs("0.33.0", env=env(name)))) == []  # not this card's


def test_variables_that_other_files_read_are_known(tmp_path: Path) -> None:
    vllm, aiter = tmp_path / "vllm", tmp_path / "aiter"
    for folder in (vllm, aiter):
        folder.mkdir()
    (vllm / "x.py").write_text('os.getenv("VLLM_SIDE_DOOR")')
    (aiter / "y.py").write_text("os.getenv('AITER_FAST')")
    engine = spec(env={"VLLM_SIDE_DOOR": "1", "AITER_FAST": "1", "AITER_FATS": "1", "NCCL_ANYTHING": "1"})
    (found,) = look(known={"path": str(vllm)}, aiter=str(aiter), spec=engine)
    assert found.title == "this AITER has no variable AITER_FATS: it is ignored"
    assert look(known={"path": str(vllm)}, spec=engine) == []  # without AITER's source nothing is said of its names


def test_without_knobs_it_says_nothing() -> None:
    assert look(known={"flags": {}}, spec=spec(flags={"nonsense": 1})) == []


# --- the history ---


@pytest.mark.parametrize(
    ("version", "change"),
    [
        ("0.30.0", None),
        ("0.32.0", None),
        ("0.33.0", ("0.32.0", True, False)),
        ("0.33.1", ("0.32.0", True, False)),
        ("0.29.0", None),
        ("unknown", None),
    ],
)
def test_when_a_default_changed(version: str, change: Any) -> None:
    entry = HISTORY.of(Lever.ENVIRONMENT, "VLLM_ROCM_USE_AITER_FP4BMM")
    assert entry is not None
    assert default_before(entry, version) == change


def test_translation_of_one_knob() -> None:
    old = "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4"
    new = knobs("0.33.0", env=env("VLLM_ROCM_USE_AITER_MOE_SITUV2"))
    told = translate(Lever.ENVIRONMENT, old, "1", new, HISTORY)
    assert (told.outcome, told.key, told.value) == ("renamed", "VLLM_ROCM_USE_AITER_MOE_SITUV2", "a8w4")
    odd = translate(Lever.ENVIRONMENT, old, "maybe", new, HISTORY)
    assert odd.outcome == "gone"  # a value that has no new form is never guessed
    gone = translate(Lever.ENVIRONMENT, "VLLM_ROCM_MONO_DECODE", "1", KNOBS, HISTORY)
    assert (gone.outcome, gone.instead) == ("gone", "nothing on this version; elsewhere the flag --monokernel")
    there = translate(Lever.ENGINE_FLAG, "--no-enforce_eager", True, KNOBS, HISTORY)
    assert (there.outcome, there.key) == ("there", "no-enforce-eager")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"there": ["0.31.0"]}, "0.31.0 is not in looked_at"),
        ({"defaults": {"0.33.0": 1}}, "defaults of 0.33.0, which `there` does not list"),
        ({"lever": "magic"}, "Input should be"),
        ({"extra": 1}, "Extra inputs are not permitted"),
    ],
)
def test_a_history_that_cannot_be_used(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    entry = {"knob": "X", "lever": "environment", "there": ["0.32.0"], "why": "w", "instead": "i", "source": "s"}
    path = tmp_path / "history.yaml"
    path.write_text(yaml.safe_dump({"looked_at": ["0.32.0", "0.33.0"], "knobs": [entry | change]}))
    with pytest.raises(HistoryError, match=says):
        load_history(path)


def test_versions_rise_and_names_stand_once() -> None:
    with pytest.raises(ValueError, match="looked_at must rise"):
        History(looked_at=("0.33.0", "0.32.0"), knobs=())
    entry = HISTORY.knobs[0]
    with pytest.raises(ValueError, match="stands there twice"):
        History(looked_at=HISTORY.looked_at, knobs=(entry, entry))


# --- two versions at hand ---


def test_differences_between_two_versions() -> None:
    old = Knobs(
        version="1",
        path="",
        flags={
            "a": Knob(name="a", default=1, default_known=True),
            "b": Knob(name="b"),
            "c": Knob(name="c", default_text="f(1)"),
            "d": Knob(name="d", default_text="f()"),
        },
        env=env("X"),
    )
    new = Knobs(
        version="2",
        path="",
        flags={
            "a": Knob(name="a", default=2, default_known=True),
            "c": Knob(name="c", default_text="f(2)"),
            "d": Knob(name="d", default=3, default_known=True),  # known now: nobody can say that it changed
            "e": Knob(name="e"),
        },
        env=env("X", default=True),
    )
    found = differences(old, new)
    assert (found.added[Lever.ENGINE_FLAG], found.removed[Lever.ENGINE_FLAG]) == (("e",), ("b",))
    assert found.added[Lever.COMPILATION] == ()
    assert [(c.knob, c.before, c.after) for c in changed_defaults(old, new)] == [
        ("a", "1", "2"),
        ("c", "f(1)", "f(2)"),
        ("X", "False", "True"),
    ]
    assert found.defaults == changed_defaults(old, new)
