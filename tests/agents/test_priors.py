"""Knowledge from elsewhere, with conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.research.priors import PriorError, load_priors
from agents.research.readers import prior
from agents.tuning.levers import LEVERS
from contracts import Lever, Objective
from tests.agents.examples import GFX950, dossier, spec, workload

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "configs" / "priors").glob("*.yaml"))
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


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PriorError):
        load_priors(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=[p.name for p in SHIPPED])
def test_the_shipped_priors_are_sound(path: Path) -> None:
    found = load_priors(str(path))
    assert len({p.id for p in found}) == len(found)
    for p in found:
        assert any(c.isdigit() for c in p.provenance.numbers) or p.outcome != "helps"
        if p.lever != "none":
            lever = LEVERS[Lever(p.lever)]
            assert lever.normalise(p.key) == p.key
        if p.when.kind == "cpu":
            assert p.when.arch in ((), ("x86_64",))
