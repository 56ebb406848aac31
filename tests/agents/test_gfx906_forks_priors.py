"""What is known of forks for gfx906: said and tried where the installed vLLM is such a fork, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents import path_probe
from agents.research.conditions import When, unmet
from agents.research.dossier import Dossier
from agents.research.knobs import UNTOLD, Knob
from agents.research.priors import FOLDER, Prior, load_priors
from agents.research.readers import knob_versions, known_priors, prior
from agents.tuning.probes import ArmSeen, judge_path, probe_for
from cards.sheet import read_sheet
from contracts import Change, Lever, TryItem
from tests.agents.examples import KNOBS, dossier, spec, workload

FILE = str(FOLDER / "gfx906.yaml")
SEGMENTS = "VLLM_TRITON_ATTN_NUM_PAR_SOFTMAX_SEGMENTS"
PREFILL, DECODE = "VLLM_TORCH_SDPA_PREFILL", "VLLM_TORCH_SDPA_DECODE"
OF_FORK = {
    SEGMENTS: Knob(name=SEGMENTS, kind="int", default=16, default_known=True),
    PREFILL: Knob(name=PREFILL, kind="bool", default=False, default_known=True),
    DECODE: Knob(name=DECODE, kind="bool", default=False, default_known=True),
}
LONG = {"concurrency": 1, "input_tokens": (2000, 6000)}


def here(
    tmp_path: Path,
    env: dict[str, Knob] | None = None,
    files: dict[str, str] | None = None,
    load: dict[str, Any] | None = None,
    **fields: Any,
) -> Dossier:
    """An MI50 with a small tree of our own; `env` are variables that it reads besides upstream's."""
    package = tmp_path / "vllm"
    for name, text in (files or {}).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    package.mkdir(exist_ok=True)
    knobs = KNOBS.model_copy(update={"path": str(package), "version": UNTOLD, "env": KNOBS.env | (env or {})})
    sheet = read_sheet("gfx906")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
              "intermediate_size": 11008, "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
              "vocab_size": 32000, "torch_dtype": "float16"}  # fmt: skip
    held: dict[str, Any] = {"knobs": knobs, "card": sheet.card(), "sheet": sheet, "priors": (FILE,)}
    held |= {"model_config_json": config, "workload": workload(**{**LONG, **(load or {})})}
    return dossier(**{**held, **fields})


def tried(subject: Dossier) -> list[tuple[str, Any]]:
    return [(h.change.key, h.change.after) for h in prior.read(subject) if h.change.key in OF_FORK]


# --- variables that only a fork reads ---


def test_a_night_tries_them_where_this_vllm_reads_them(tmp_path: Path) -> None:
    assert tried(here(tmp_path, OF_FORK)) == [(SEGMENTS, "64"), (SEGMENTS, "128"), (PREFILL, "1")]
    told = next(f for f in known_priors.look(here(tmp_path, OF_FORK)) if f.change and f.change.after == "64")
    assert told.kind == "opportunity"
    assert "by how much is a guess (1.02)" in told.title
    assert told.terms is not None and told.terms.share_from == "guessed as a whole"


def test_elsewhere_they_are_left_out_and_only_that_is_told(tmp_path: Path) -> None:
    subject = here(tmp_path)
    assert tried(subject) == []
    left_out = "configs/priors/gfx906.yaml#softmax-segments-64-gfx906 (prior)"
    assert f"{left_out}: this vLLM has no environment variable {SEGMENTS}" in prior.dropped(subject)
    said = [*known_priors.look(subject), *knob_versions.look(subject)]
    assert not [f.title for f in said if any(name in f.title for name in OF_FORK)]


def test_a_night_file_that_names_one_is_still_told_that_it_does_nothing(tmp_path: Path) -> None:
    item = TryItem(lever=Lever.ENVIRONMENT, key=PREFILL, after="1", why="read somewhere")
    [told] = [f for f in knob_versions.look(here(tmp_path, try_first=(item,))) if PREFILL in f.title]
    assert told.kind == "trap"


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"concurrency": 1, "input_tokens": (2000, 6000)}, {SEGMENTS, PREFILL}),
        ({"concurrency": 8, "input_tokens": (2000, 6000)}, {SEGMENTS}),  # steps with a decoding sequence never take it
        ({"concurrency": 24, "input_tokens": (2000, 6000)}, set()),  # enough programs without segments
        ({"concurrency": 1, "input_tokens": (16, 64)}, set()),  # a context of a few tiles
    ],
)
def test_only_under_a_load_that_they_can_matter_to(tmp_path: Path, load: dict[str, Any], expected: set[str]) -> None:
    assert {key for key, _ in tried(here(tmp_path, OF_FORK, load=load))} == expected


def test_what_a_captured_graph_never_asks_for_is_known_and_not_tried(tmp_path: Path) -> None:
    told = next(f for f in known_priors.look(here(tmp_path, OF_FORK)) if DECODE in f.title)
    assert told.kind == "fact" and told.title.startswith(f"Not known whether {DECODE} = 1 helps: a captured graph")


# --- what is said of upstream is not said of a fork, and the other way round ---

SKINNY = "VLLM_ROCM_USE_SKINNY_GEMM"
UPSTREAM_GEMM = f"use_skinny = envs.{SKINNY} and on_gfx9()\n"
FORK_GEMM = f"use_skinny = envs.{SKINNY} and (on_gfx9() or on_gfx906())\n"


@pytest.mark.parametrize(
    ("text", "kind", "begins"),
    [
        (UPSTREAM_GEMM, "fact", f"Do not try, no gain from {SKINNY} = 0"),
        (FORK_GEMM, "fact", f"Not known whether {SKINNY} = 0 helps: this fork opens it for gfx906"),
        ("use_skinny = True\n", "", ""),  # a fork that does not ask the variable
    ],
)
def test_the_skinny_gemm(tmp_path: Path, text: str, kind: str, begins: str) -> None:
    env = {SKINNY: Knob(name=SKINNY, kind="bool", default=True, default_known=True)}
    subject = here(tmp_path, env, {"model_executor/layers/utils.py": text})
    told = [f for f in known_priors.look(subject) if SKINNY in f.title]
    assert [f.kind for f in told] == ([kind] if kind else [])
    assert all(f.title.startswith(begins) for f in told)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, {"device-name-gfx9006", "aiter-switch-gfx906", "triton-attention-first-gfx906"}),
        ({"platforms/rocm.py": "def on_cdna(): ...\n"},
         {"arch-gates-take-gfx906-for-cdna", "device-name-gfx9006", "aiter-switch-gfx906",
          "triton-attention-first-gfx906"}),
        ({"platforms/rocm.py": 'NAMES = {"gfx9006": "gfx906"}\nbackends.remove(AttentionBackendEnum.TRITON_ATTN)\n',
          "_aiter_ops.py": "return on_mi3xx() or on_gfx906()\n"}, {"aiter-asked-for-without-it-gfx906"}),
    ],
)  # fmt: skip
def test_by_what_stands_in_the_source(tmp_path: Path, files: dict[str, str], said: set[str]) -> None:
    about = {
        "device-name-gfx9006", "aiter-switch-gfx906", "triton-attention-first-gfx906",
        "arch-gates-take-gfx906-for-cdna", "aiter-asked-for-without-it-gfx906",
    }  # fmt: skip
    found = {f.same_as for f in known_priors.look(here(tmp_path, files=files))}
    assert found & about == said


def test_a_kernel_by_hand_is_compared_with_the_general_one_only(tmp_path: Path) -> None:
    awq = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    for text, told in (("", True), ("if on_gfx906():  # gfx906 has a kernel of its own\n", False)):
        files = {"model_executor/layers/quantization/awq.py": text}
        subject = here(tmp_path, files=files, model_config_json=awq)
        assert ("wave64-w4a16-gfx906" in {f.same_as for f in known_priors.look(subject)}) is told


# --- the conditions themselves ---


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ({"source_has": ["a/b.py: word()"]}, None),
        ({"source_has": ["a/b.py: other"]}, "it is for another vLLM: 'other' is not in vllm/a/b.py of this vLLM"),
        ({"source_has": ["a/c.py: word()"]}, "it is for another vLLM: 'word()' is not in vllm/a/c.py of this vLLM"),
        ({"source_lacks": ["a/b.py: word()"]}, "it is for another vLLM: 'word()' is in vllm/a/b.py of this vLLM"),
        ({"source_lacks": ["a/b.py: other", "a/c.py: word()"]}, None),
        ({"prompt_tokens_at_least": 6000}, None),
        ({"prompt_tokens_at_least": 6001}, "it needs prompts of 6001 tokens, the longest have 6000"),
    ],
)
def test_conditions_of_source_and_prompts(tmp_path: Path, when: dict[str, Any], reason: str | None) -> None:
    assert unmet(When(**when), here(tmp_path, files={"a/b.py": "x = word()\n"})) == reason


def test_a_tree_that_is_not_there_speaks_against_nothing(tmp_path: Path) -> None:
    subject = here(tmp_path)
    nothing = subject.model_copy(update={"knobs": subject.knobs.model_copy(update={"path": ""})})
    assert unmet(When(source_has=("a/b.py: word()",), source_lacks=("a/b.py: other",)), nothing) is None


@pytest.mark.parametrize("wrong", ["a/b.py", "a/b.py: ", "../b.py: x", "/etc/b.py: x", "a/b.txt: x"])
def test_a_source_condition_names_a_file_and_a_text(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no file and text"):
        When(source_has=(wrong,))


# --- how it is seen to be in use ---


def test_torchs_attention_is_seen_by_its_own_line_under_load() -> None:
    change = Change(lever=Lever.ENVIRONMENT, key=PREFILL, before=None, after="1")
    probe = probe_for(change, KNOBS)
    assert (probe.kind, probe.under_load) == ("log_line", True)
    ran = "INFO Using experimental Torch SDPA prefill path (backend=math, min_tokens=0, max_tokens=0, q_chunk_size=0)"
    # The line as v1/attention/ops/torch_attention.py of the fork formats it; no engine wrote it.
    assert judge_path(change, probe, ArmSeen(log="up"), ArmSeen(log=f"up\n{ran}")).outcome == "proven"
    assert judge_path(change, probe, ArmSeen(log="up"), ArmSeen(log="up")).outcome == "absent"  # set, and never reached


def test_segments_are_seen_by_the_grid_of_the_kernel() -> None:
    probe = probe_for(Change(lever=Lever.ENVIRONMENT, key=SEGMENTS, before=None, after="64"), KNOBS)
    assert (probe.kind, probe.differs, probe.pattern) == ("kernel", ("grid",), "kernel_unified_attention")


def test_every_prior_of_a_variable_that_is_tried_can_be_seen() -> None:
    helped = [p for p in load_priors(FILE) if p.lever == Lever.ENVIRONMENT and p.outcome == "helps"]
    assert len(helped) == 3
    for one in helped:
        change = Change(lever=Lever.ENVIRONMENT, key=one.key, before=None, after=one.value)
        assert probe_for(change, KNOBS).kind != "none"


def test_a_prior_of_ones_own_for_another_name_is_no_variable_of_vllm(tmp_path: Path) -> None:
    """Only vLLM's own names are in envs.py; a library's may stand anywhere."""
    entry = {
        "id": "x", "lever": "environment", "key": "HSA_ENABLE_SDMA", "value": "0", "outcome": "helps", "gain": 1.1,
        "improves": ["throughput"], "why": "x",
        "provenance": {"where": "x", "who": "x", "version": "x", "date": "x", "numbers": "x"},
    }  # fmt: skip
    assert prior.not_here(Prior.model_validate(entry), here(tmp_path, spec=spec())) is None


def test_requests_come_before_the_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's two arms and the burst are stand-ins: the changed one writes its line when it is first asked."""
    logs = {"A": "up", "B": "up"}
    arm = {spec().model_dump_json(): "A", spec(env={PREFILL: "1"}).model_dump_json(): "B"}

    def burst(_night: Any, candidate: Any, _experiment: str) -> Any:
        logs[arm[candidate.model_dump_json()]] += "\nINFO Using experimental Torch SDPA prefill path (backend=math)"
        return "a run"

    monkeypatch.setattr(path_probe, "burst", burst)
    monkeypatch.setattr(path_probe, "TOLD_WITHIN_S", 0.0)
    arms = SimpleNamespace(log_of=lambda one: logs[arm[one.model_dump_json()]], record_of=lambda _one: None)
    night: Any = SimpleNamespace(arms=arms, config=SimpleNamespace(try_first=()))
    change = Change(lever=Lever.ENVIRONMENT, key=PREFILL, before=None, after="1")
    trial: Any = SimpleNamespace(hypothesis=SimpleNamespace(change=change), experiment_id="E001")
    progress: Any = SimpleNamespace(incumbent=spec(), incumbent_runs=())
    seen = path_probe.prove(night, progress, trial, spec(env={PREFILL: "1"}), KNOBS, 0.0)
    assert seen.outcome == "proven"
    assert seen.seen_in_a is None and "Torch SDPA prefill path" in (seen.seen_in_b or "")
