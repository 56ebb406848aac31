"""The kernels of kernels/ and kernels that are wrong on purpose, through the numerics check, in the engine's
interpreter: all in one process, because importing torch costs more than most of them.
"""

from pathlib import Path

import pytest

from accuracy_gate.numerics.check import check
from accuracy_gate.numerics.launch import Kernel, Limits
from contracts import GateResult
from tests.kernels.faults import FAULTS, FOLDERS, HONEST, KERNELS, KILLER, ROOT, broken

pytestmark = [pytest.mark.engine_python]

NOT_REACHED = Kernel("add_rms_norm", "broken_kernels:honest")


@pytest.fixture(scope="module")
def results() -> dict[str, GateResult]:
    chosen = ROOT / ".engine-python"
    if not chosen.exists():
        pytest.skip("no engine here: run `make setup`")
    kernels = [*KERNELS, *map(broken, HONEST), *map(broken, FAULTS), broken(KILLER), NOT_REACHED]
    found = check(chosen.read_text().strip(), kernels, FOLDERS, device="cpu", limits=Limits(silent_s=60))
    names = [*(kernel.case for kernel in KERNELS), *HONEST, *FAULTS, KILLER, "not reached"]
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", [kernel.case for kernel in KERNELS])
def test_our_kernels_are_as_exact_as_plain_float32(results: dict[str, GateResult], name: str) -> None:
    result = results[name]
    if result.outcome == "not_run" and "needs Triton" in result.reason:
        pytest.skip(result.reason)
    assert result.outcome == "pass", result.reason
    assert result.statistic["interpreted"] is True
    assert result.power is not None and "what only compiled code or a real graph does" in result.power


@pytest.mark.parametrize("name", HONEST)
def test_other_honest_ways_to_compute_pass_with_their_graphs(results: dict[str, GateResult], name: str) -> None:
    result = results[name]
    assert result.outcome == "pass", result.reason
    assert "captures (op trace) are right" in result.reason


@pytest.mark.parametrize(("name", "by"), FAULTS.items())
def test_a_fault_is_caught_for_what_it_is(results: dict[str, GateResult], name: str, by: str) -> None:
    result = results[name]
    assert result.outcome == "fail"
    assert result.reason.startswith(f"broken_kernels:{name}: {by}: "), result.reason


def failing(result: GateResult) -> set[str]:
    classes = result.statistic["classes"]
    assert isinstance(classes, dict)
    return {label for label, found in classes.items() if isinstance(found, dict) and found["failed"]}


def test_faults_of_edges_and_views_show_there_and_nowhere_else(results: dict[str, GateResult]) -> None:
    assert failing(results["one_tile_short"]) == {"rows edges"}
    assert "rows=17 " in results["one_tile_short"].reason
    assert all(label.startswith("view: ") for label in failing(results["ignores_the_stride"]))
    assert failing(results["size_set_by_host_code"]) == failing(results["batch_wide_scale"]) == set()


def test_a_fault_of_replay_is_right_outside_a_graph(results: dict[str, GateResult]) -> None:
    for name in ("size_set_by_host_code", "batch_wide_scale"):
        assert "the same call outside a graph is right" in results[name].reason


def test_a_kernel_that_kills_its_process_fails_and_the_next_is_not_run(results: dict[str, GateResult]) -> None:
    killed = results[KILLER]
    assert killed.outcome == "fail"
    assert "died of SIGABRT, at float16 rows=16 cols=96 contiguous" in killed.reason
    assert results["not reached"].outcome == "not_run" and "SIGABRT" in results["not reached"].reason


def test_the_distribution_names_its_entry_point() -> None:
    text = (Path(ROOT) / "kernels" / "pyproject.toml").read_text()
    assert '[project.entry-points."vllm.general_plugins"]' in text
    assert 'nightgate_kernels = "nightgate_kernels.plugin:register"' in text
