"""Knowledge from elsewhere, with conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.research.priors import FOLDER, PriorError, all_priors, load_priors, prior_files, read_all
from agents.research.readers import prior
from agents.tuning.levers import LEVERS
from contracts import Lever, Objective
from tests.agents.examples import GFX950, dossier, spec, workload

SHIPPED = sorted(FOLDER.glob("*.yaml"))
ENTRY: dict[str, Any] = {
    "id": "example",
    "lever": "engine_flag",
    "key": "enforce_eager",
    "value": None,
    "outcome": "helps",
    "improves": ["throughput"],
    "gain": 1.15,
    "why": "because",
    "provenance": {"where": "here", "who": "me", "version": "vLLM 0.32.0", "date": "2026-11-29", "numbers": "1 to 2"},
}
MODEL = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000}
AWQ = {"quantization_config": {"quant_method": "awq"}}
EAGER = spec(flags={"enforce-eager": True})


def write(folder: Path, **changes: Any) -> str:
    path = folder / "priors.yaml"
    path.write_text(yaml.safe_dump({"priors": [{**ENTRY, **changes}]}))
    return str(path)


def reasons(folder: Path, prior_changes: dict[str, Any], **fields: Any) -> list[str]:
    d = dossier(priors=(write(folder, **prior_changes),), **{"spec": EAGER, **fields})
    found, dropped = prior.read(d), prior.dropped(d)
    assert len(found) + len(dropped) == 1  # every prior is either proposed or accounted for
    return dropped


def test_a_prior_whose_conditions_hold(tmp_path: Path) -> None:
    d = dossier(spec=EAGER, priors=(write(tmp_path),))
    [h] = prior.read(d)
    assert (h.change.key, h.change.before, h.change.after) == ("enforce-eager", True, None)
    assert h.predicted_gain == 1.15
    assert h.evidence[0].source.endswith("priors.yaml#example")
    assert "1 to 2; here, vLLM 0.32.0, 2026-11-29, me" in h.evidence[0].detail
    assert prior.dropped(d) == []


@pytest.mark.parametrize(
    ("changes", "fields", "says"),
    [
        ({"when": {"kind": "amd"}}, {}, "it is for amd, this card is cpu"),
        ({"when": {"arch": ["gfx906"]}}, {"card": GFX950}, "it is for gfx906, this card is gfx950"),
        ({"when": {"vllm": ">=0.33"}}, {}, "it is for vLLM >=0.33, installed is 0.32.0"),
        ({"when": {"flags": {"enforce-eager": False}}}, {}, "it needs enforce-eager = False, the engine has True"),
        ({"when": {"flags": {"dtype": None}}}, {"spec": spec(flags={"dtype": "half"})}, "it needs dtype = None"),
        ({"when": {"compilation_sets": ["cudagraph_capture_sizes"]}}, {}, "sets cudagraph_capture_sizes"),
        ({"when": {"concurrency_at_least": 32}}, {}, "at least 32"),
        ({"when": {"concurrency_at_most": 1}}, {}, "at most 1"),
        ({"when": {"concurrency_at_most": 1}}, {"workload": workload(concurrency=None, rate_per_s=1.0)}, "at most 1"),
        ({"when": {"shared_prefix_at_least": 256}}, {}, "share 256 tokens, not 0"),
        ({"when": {"model_has": ["num_experts"]}}, {}, "a model with num_experts"),
        ({"when": {"quantization": ["awq"]}}, {}, "these are not quantised"),
        ({"when": {"quantization": ["none"]}}, {"model_config_json": AWQ}, "it needs weights in none, these are awq"),
        ({"when": {"env": {"VLLM_ROCM_USE_AITER": "1"}}}, {}, "VLLM_ROCM_USE_AITER = '1', the engine has None"),
        ({"when": {"draft_tokens_at_least": 1}}, {}, "at least 1 drafted tokens a step, not 0"),
        ({"when": {"tensor_parallel_at_least": 2}}, {}, "at least 2 cards for one engine, not 1"),
        ({"when": {"head_size_at_least": 256}}, {}, "it depends on the model's shapes, and they are not known"),
        ({"when": {"head_size_at_least": 256}}, {"model_config_json": MODEL}, "at least 256, the widest is 64"),
        ({"when": {"dtype": ["float16"]}}, {"model_config_json": MODEL}, "in float16, these are bfloat16"),
        ({"when": {"experts": True}}, {"model_config_json": MODEL}, "it needs a model with experts"),
        ({"when": {"experts": False}}, {"model_config_json": MODEL | {"num_experts": 8}}, "a model without experts"),
        ({"when": {"linear_attention": True}}, {"model_config_json": MODEL}, "it needs linear-attention layers"),
        ({"when": {"model_has": ["a.b|c.d"]}}, {"model_config_json": {"a": {"b": 0}}}, "a model with a.b or c.d"),
        ({"outcome": "no_effect"}, {}, "known, not tried: it did nothing there: 1 to 2"),
        ({"outcome": "hurts"}, {}, "it hurt there"),
        ({"lever": "none"}, {}, "no lever of today can apply it"),
        ({}, {"workload": workload(objective=Objective(metric="ttft_ms_p50"))}, "it helps throughput, tonight's"),
    ],
)
def test_every_other_prior_is_dropped_with_its_reason(
    tmp_path: Path, changes: dict[str, Any], fields: dict[str, Any], says: str
) -> None:
    [line] = reasons(tmp_path, changes, **fields)
    assert says in line


def test_conditions_that_hold(tmp_path: Path) -> None:
    when = {
        "kind": "cpu",
        "arch": ["x86_64"],
        "vllm": ">=0.30,<0.34",
        "flags": {"enforce_eager": True, "dtype": None},
        "concurrency_at_least": 16,
        "shared_prefix_at_least": 1,
        "model_has": ["num_experts"],
        "quantization": ["awq"],
    }
    model = {"num_experts": 8, "quantization_config": {"quant_method": "awq"}}
    work = workload(shared_prefix_tokens=64)
    assert reasons(tmp_path, {"when": when}, model_config_json=model, workload=work) == []


def test_conditions_on_engine_and_shapes_that_hold(tmp_path: Path) -> None:
    when = {
        "env": {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_SKINNY_GEMM": None},
        "draft_tokens_at_least": 2,
        "tensor_parallel_at_least": 2,
        "model_has": ["rope_scaling.mrope_section|rope_parameters.mrope_section"],
        "quantization": ["none", "fp8"],
        "dtype": ["float16"],
        "head_size_at_least": 64,
        "experts": True,
        "linear_attention": True,
    }
    text = MODEL | {"num_experts": 8, "full_attention_interval": 4, "rope_parameters": {"mrope_section": [8, 8]}}
    drafts = {"method": "mtp", "num_speculative_tokens": 2}
    engine = spec(
        flags={"enforce-eager": True, "dtype": "half", "tensor-parallel-size": 2, "speculative-config": drafts},
        env={"VLLM_ROCM_USE_AITER": "1"},
    )
    assert reasons(tmp_path, {"when": when}, spec=engine, model_config_json={"text_config": text}) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must hold a list called priors"),
        ("priors: {a: 1}", "must hold a list called priors"),
        ("priors: [1]", "entry 1 is not a mapping"),
        ("priors: [", "priors.yaml"),
        (yaml.safe_dump({"priors": [{**ENTRY, "gian": 1}]}), "#example: gian"),
        (yaml.safe_dump({"priors": [{**ENTRY, "when": {"vllm": "new"}}]}), "is not a version range"),
        (yaml.safe_dump({"priors": [{**ENTRY, "gain": -1}]}), "#example: gain"),
        (yaml.safe_dump({"priors": [{**ENTRY, "gain": None}]}), "needs key, gain and improves"),
        (yaml.safe_dump({"priors": [{**ENTRY, "phase": "decode"}]}), "phase and part are for lever none"),
        (yaml.safe_dump({"defaults": {"why": "x"}, "priors": []}), "defaults holds when and provenance"),
        (yaml.safe_dump({"priors": [{k: v for k, v in ENTRY.items() if k != "provenance"}]}), "#example: provenance"),
    ],
)
def test_a_bad_file_is_one_line_and_no_more(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "priors.yaml"
    path.write_text(text)
    with pytest.raises(PriorError) as caught:
        load_priors(str(path))
    assert says in str(caught.value) and "\n" not in str(caught.value)
    d = dossier(priors=(str(path), write(_other(tmp_path))), spec=EAGER)
    assert len(prior.read(d)) == 1  # the good file still counts
    assert prior.dropped(d)[0].startswith("priors left out: ")


def _other(folder: Path) -> Path:
    (folder / "other").mkdir(exist_ok=True)
    return folder / "other"


def test_a_file_says_once_what_all_its_entries_share(tmp_path: Path) -> None:
    shared = {"when": {"kind": "amd", "arch": ["gfx906"]}, "provenance": ENTRY["provenance"]}
    own = {"provenance": {"numbers": "3 to 4"}, "when": {"arch": ["gfx950"], "concurrency_at_least": 4}}
    path = tmp_path / "priors.yaml"
    path.write_text(yaml.safe_dump({"defaults": shared, "priors": [{**ENTRY, **own}]}))
    [p] = load_priors(str(path))
    assert (p.when.kind, p.when.arch, p.when.concurrency_at_least) == ("amd", ("gfx950",), 4)
    assert p.evidence.detail == "3 to 4; here, vLLM 0.32.0, 2026-11-29, me"


def test_all_of_a_folder(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"priors": [{**ENTRY, "id": name}]}))
    (tmp_path / "notes.txt").write_text("not a prior")
    assert [p.id for p in all_priors(tmp_path)] == ["a", "b"]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"priors": [{**ENTRY, "id": "a"}]}))
    with pytest.raises(PriorError, match=r"c.yaml#a: there is .*a.yaml#a already; give it an id of its own"):
        all_priors(tmp_path)
    (tmp_path / "c.yaml").write_text("priors: [")
    with pytest.raises(PriorError, match=r"c.yaml"):
        all_priors(tmp_path)
    found, problems = read_all(prior_files(tmp_path))  # what a reader does: the good files still count
    assert [p.id for p in found] == ["a", "b"] and len(problems) == 1
    with pytest.raises(PriorError, match="no folder of priors"):
        all_priors(tmp_path / "none")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    assert load_priors(write(tmp_path, gain=1.15))[0].gain == 1.15
    assert load_priors(write(tmp_path, gain=1.2, why="because it is so"))[0].gain == 1.2


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PriorError):
        load_priors(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=[p.name for p in SHIPPED])
def test_the_shipped_priors_are_sound(path: Path) -> None:
    found = load_priors(str(path))
    assert len({p.id for p in found}) == len(found)
    for p in found:
        assert p.source == f"configs/priors/{path.name}#{p.id}"
        assert p.what or p.lever != "none"  # a sentence needs a name for it
        assert any(c.isdigit() for c in p.provenance.numbers) or p.outcome != "helps"
        if p.lever != "none":
            lever = LEVERS[Lever(p.lever)]
            assert lever.normalise(p.key) == p.key
        if p.when.kind == "cpu":
            assert p.when.arch in ((), ("x86_64",))


def test_every_shipped_id_is_there_once_whatever_the_file() -> None:
    found = all_priors()
    assert len({p.id for p in found}) == len(found) > 90
    assert {p.outcome for p in found} == {"helps", "no_effect", "hurts", "unclear"}
