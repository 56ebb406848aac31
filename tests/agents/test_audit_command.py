"""The command: a night that was lived through once, found again from what was known before it; and bad input."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.audit_cli import audit_command, settings
from agents.command import guarded_command, print_json
from agents.research.audit import Audit, audit
from agents.research.dossier import Dossier
from agents.research.model_shape import model_shape
from agents.research.readers import READERS
from agents.research.readers.known_priors import with_priors
from agents.research.subject import SubjectError
from agents.research.traces.profiles import profiles_from_json
from cards.sheet import read_sheet
from tests.agents import attention_trees as trees
from tests.agents.examples import KNOBS, dossier, spec, workload
from tests.agents.test_attention_tables import stock
from tests.agents.test_graph_coverage import SOURCE

MODELS = Path(__file__).parents[2] / "configs" / "models"
WIDE = MODELS / "windows_256_512_31b.json"
KNOWN = {
    "phases": [
        {"phase": "prefill", "shares": {"attention": 0.43}},
        {"phase": "decode", "step_ms": 57.7, "kernel_ms": 21.3},
    ]
}


def before_the_night(tmp_path: Path) -> Dossier:
    """What was known of the engine of the MI355X night after its first profile: the stock tile table, its flags (64
    sequences, two draft tokens, graphs for its own list up to 64 tokens), the mean request, three shares of time."""
    tree = Path(trees.vllm(tmp_path))
    (tree / "config").mkdir()
    (tree / "config/vllm.py").write_text(SOURCE)
    profile = tmp_path / "shares.json"
    profile.write_text(json.dumps(KNOWN))
    sheet = read_sheet("gfx950")
    config = json.loads(WIDE.read_text())
    return dossier(
        card=sheet.card(),
        sheet=sheet,
        spec=spec(
            flags={
                "max-num-seqs": 64,
                "kv-cache-dtype": "fp8",
                "attention-backend": "WHOLE",
                "speculative-config": {"num_speculative_tokens": 2},
            },
            compilation={"cudagraph_capture_sizes": [1, 2, 4, *range(8, 65, 8)]},
        ),
        knobs=KNOBS.model_copy(update={"path": str(tree)}),
        workload=workload(concurrency=64, input_tokens=(9500, 9500), output_tokens=(380, 380)),
        model_config_json=config,
        model=model_shape(config),
        aiter=trees.aiter(tmp_path, stock()),
        phases=profiles_from_json(profile),
    )


def without_priors(subject: Dossier) -> Audit:
    return audit(subject, [name for name in READERS if name not in ("prior", "known_priors")])


def test_the_missing_table_entry_ranks_first_and_graphs_within_three(tmp_path: Path) -> None:
    """On the night it was worth two thirds of the gain (prefill +33 %), and graphs were the second find."""
    found = without_priors(before_the_night(tmp_path)).of("opportunity")
    assert found[0].reader == "attention_tables" and "head size 512" in found[0].title
    assert "D_GEQ_512.Q_GEQ_256.DT_fp8_fp8" in found[0].fix
    assert found[0].terms is not None and "attention is 43% of prefill" in found[0].terms.share_from
    graphs = next(n for n, f in enumerate(found) if f.change and f.change.key == "cudagraph_capture_sizes")
    assert graphs < 3, [f.title for f in found[:5]]


def test_with_the_priors_the_table_entry_stays_first_and_they_are_its_evidence(tmp_path: Path) -> None:
    subject = with_priors(before_the_night(tmp_path))
    found = audit(subject).of("opportunity")
    assert found[0].reader == "attention_tables + known_priors"
    assert found[0].change is not None and found[0].change.key.endswith("#attn_2d/D_GEQ_512.Q_GEQ_256.DT_fp8_fp8")
    tiles = [f for f in found if "tiles of" in f.title]
    assert [f.reader for f in tiles].count("attention_tables") == len(tiles) - 1  # the prior is told once
    places = [f for f in tiles if f.change and "another guess" not in f.title]
    assert len(places) == 2  # one row a change: heads of 512, and of 256 with a window
    shares = [f.terms.share for f in places if f.terms]
    assert sum(shares) == pytest.approx(0.43 * 0.778, abs=0.01)  # both kinds of layer, of prefill's weight


def command(*, json_wanted: bool = True, **given: Any) -> int:
    plain: dict[str, Any] = {
        "arch": "gfx950", "model": WIDE, "night": None, "vllm": [], "aiter": None, "python": "", "flags": [], "env": [],
        "compilation": [], "profiles": [], "engine_logs": [], "workload": (None, None, None),
        "readers": ["roofline", "kv_dtype"], "without": [], "top": 5,
    }  # fmt: skip
    return audit_command(**{**plain, **given}, json_wanted=json_wanted)


def test_json_has_the_card_the_model_and_every_term(capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 0
    (told,) = json.loads(capsys.readouterr().out)["audits"]
    assert (told["card"]["arch"], told["model"]["layers"], told["vllm"]["version"]) == ("gfx950", 60, "unknown")
    assert told["findings"] and all(f["evidence"] for f in told["findings"])
    assert all(f["gain"] >= 1 and f["rank"] for f in told["findings"] if f["kind"] == "opportunity")


def test_the_screen_says_that_nothing_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(json_wanted=False) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "gfx950 (AMD Instinct MI355X" in out and "Nothing ran on a card: gains are predictions." in out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"arch": "gfx9000"}, "there is no sheet for gfx9000; there are gfx906 (AMD Radeon Instinct MI50 (32 GB)"),
        ({"model": Path("nowhere.json")}, "nowhere.json cannot be read (No such file or directory)"),
        ({"model": Path(__file__)}, "is not JSON"),
        ({"vllm": [Path("")]}, "the current folder (which an empty path means) holds no vllm"),
        ({"vllm": [Path("/proc")]}, "/proc holds no vllm: give an unpacked wheel, a checkout or the folder vllm"),
        ({"aiter": Path("/proc")}, "/proc holds no aiter"),
        ({"flags": ["=8"]}, "'=8' names nothing: write NAME=VALUE"),
        ({"profiles": [Path("no.json")]}, "no.json cannot be read"),
        ({"engine_logs": [Path("no.log")]}, "no.log is no file"),
        ({"python": "no/python"}, "no/python cannot be run: give an interpreter that has Triton"),
        ({"readers": ["rooflime"]}, "there is no reader rooflime; did you mean roofline?"),
        ({"without": ["nobody"]}, "there is no reader nobody"),
        ({"readers": ["roofline"], "without": ["roofline"]}, "no reader is left to ask"),
        ({"flags": ["tensor_parallel_size=7"]}, "flag tensor-parallel-size = 7: vLLM takes one that divides"),
        ({"compilation": ["cudagraph_capture_sizes=[1,2"]}, "= [1,2: vLLM takes a list of sizes there"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(**given) == 2
    shown = capsys.readouterr()
    assert told in shown.err and shown.err.count("\n") == 1 and not shown.out


NEITHER = "neither a trace (traceEvents) nor known shares (phases): x.json"


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("profiles", '{"prefill": {"attention": 0.43}}', NEITHER),
        ("profiles", '{"traceEvents": [{"ph": "X", "na', NEITHER),
        ("profiles", '{"phases": [{"phase": "prefill", "shares": {"attn": 0.43}}]}', "'attn' is none of attention"),
        ("engine_logs", "", "x.json is empty: give the log of an engine"),
        ("engine_logs", "\0\1", "x.json is no text: give the log of an engine"),
    ],
)
def test_a_named_file_that_cannot_be_used_is_wrong_usage(
    option: str, text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert command(**{option: [path]}) == 2
    shown = capsys.readouterr()
    assert told in shown.err and shown.err.count("\n") == 1 and not shown.out


def test_a_config_that_is_no_decoder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"hidden_size": "many"}')
    assert command(model=config) == 2
    assert "config.json has hidden_size = 'many'" in capsys.readouterr().err


def test_half_a_character_in_a_config_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(WIDE.read_text().replace("{", '{"note": "\\ud800", ', 1))
    assert command(model=config) == 2
    assert "config.json holds half a character" in capsys.readouterr().err


def test_a_file_name_that_is_no_unicode_is_written_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tree = tmp_path / "aiter"
    (tree / "ops").mkdir(parents=True)
    (tree / os.fsdecode(b"bad\xff.py")).write_text("@triton.jit\ndef kernel(x:\n    kernel[(1,)](x)\n")
    for json_wanted in (True, False):
        assert command(aiter=tree, readers=["compile_storms"], json_wanted=json_wanted, everything=True) == 0
        assert "aiter/bad\\udcff.py" in capsys.readouterr().out.replace("\\\\", "\\")


def test_a_screen_without_the_characters_gets_them_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert guarded_command(lambda: print("tür \udcff") or print_json(["tür \udcff"]) or 0) == 0
    sys.stdout.flush()
    first, *rest = out.getvalue().decode("ascii").splitlines()
    assert first == r"t\xfcr \udcff" and json.loads("".join(rest)) == ["tür \udcff"]


def test_a_screen_of_no_columns_is_printed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert command(json_wanted=False) == 0
    assert "predictions" in capsys.readouterr().out


def test_values_as_they_are_typed() -> None:
    assert settings(["max-num-seqs=64", "--dtype=half", "enforce-eager", 'x={"a": [1]}', "y="]) == {
        "max-num-seqs": 64, "dtype": "half", "enforce-eager": True, "x": {"a": [1]}, "y": "",
    }  # fmt: skip
    assert settings(["a=NaN", "b=1e999"]) == {"a": "NaN", "b": "1e999"}  # JSON has no such numbers
    assert settings(["VLLM_X=1"], plain=True) == {"VLLM_X": "1"}
    with pytest.raises(SubjectError):
        settings(["--"])
