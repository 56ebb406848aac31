"""What is unfit for a night is said before it starts, with its fix. Real ports, disks, processes and interpreters; only
the model's folder is made up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents import engine_fit, machine_fit
from agents.doctor import doctor
from agents.machine_fit import HEAVY_CORES, Sample, heavy_processes, port_problem
from agents.preflight import Problem, engine_versions, memory_for_twins, preflight
from cards.tenancy import tenants
from contracts import Card, CardRule, EngineSettings, NightConfig, Workload
from tests.cards.tenants import computing, mi50

GIB = 1 << 30
STANDIN = Path(__file__).resolve().parents[1] / "standin/python"  # the stand-in engine's interpreter, not a real vLLM
CPU = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=1 << 50, compute_units=2, source="test")
GPU = CPU.model_copy(update={"arch": "sm_90", "kind": "nvidia", "name": "H200", "memory_bytes": 140 * GIB})
SMOLLM2 = {  # SmolLM2-135M's own numbers
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder in a model's shape; 1 MiB of weights."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1 << 20))
    return folder


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is on the CPU is looked at for a moment only; one test below looks for real."""
    monkeypatch.setattr(machine_fit, "LOOK_S", 0.02)


def night(model: Path, **engine: object) -> NightConfig:
    settings = {"python": str(STANDIN), "model": str(model), "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}, **engine}
    workload = Workload(
        name="w", concurrency=4, requests=8, warmup_requests=2, input_tokens=(8, 100), output_tokens=(8, 28)
    )
    return NightConfig(name="n", minutes=600, engine=EngineSettings.model_validate(settings), workload=workload)


def fatal(problems: tuple[Problem, ...]) -> list[str]:
    for problem in problems:
        assert "\n" not in f"{problem}" and problem.what and problem.fix
    return [str(problem) for problem in problems if problem.fatal]


def test_a_fit_night_has_no_fatal_problem(model: Path, tmp_path: Path) -> None:
    assert fatal(preflight(night(model), CPU, tmp_path / "logs/night")) == []
    assert not (tmp_path / "logs").exists()  # looking changes nothing


# --- the interpreter ----------------------------------------------------------------------------------------------


def test_an_interpreter_without_vllm(model: Path, tmp_path: Path) -> None:
    (line,) = fatal(preflight(night(model, python=sys.executable), CPU, tmp_path))
    assert line.startswith(f"engine.python: {sys.executable} has no vLLM: run `make setup`")
    (line,) = fatal(preflight(night(model, python=str(tmp_path / "python")), CPU, tmp_path))
    assert line.startswith(f"engine.python: {tmp_path}/python does not exist: run `make setup`")


def test_a_gpu_build_on_a_machine_without_that_maker_s_card(model: Path, tmp_path: Path) -> None:
    fake = tmp_path / "rocm-python"  # an interpreter that answers as one with a ROCm build would
    answer = {"python": "3.12.3", "vllm": "0.30.0", "vllm_distribution": "vllm", "torch": "2.9.0", "hip": "7.0"}
    fake.write_text(f"#!/bin/sh\necho 'nightgate-answer:{json.dumps(answer)}'\n")
    fake.chmod(0o755)
    lines = fatal(preflight(night(model, python=str(fake)), CPU, tmp_path))
    assert lines == [
        "the engine's vLLM is a rocm build, and no AMD card is visible here: "
        "mend what else `run_night.py doctor` says of driver, cards and device files, or use a CPU build of vLLM"
    ]
    assert engine_versions(str(fake)) == {"python": "3.12.3", "vllm": "0.30.0", "torch": "2.9.0", "build": "rocm"}


def test_a_named_card_that_the_engine_cannot_serve_on(model: Path, tmp_path: Path) -> None:
    (line,) = fatal(preflight(night(model, card="0000:03:00.0"), CPU, tmp_path))
    assert line.startswith("engine.card is 0000:03:00.0: the CPU, because the engine's vLLM ")
    assert line.endswith("or none, in engine.card and engine.env")


def test_a_card_that_can_only_be_given_by_number_is_a_warning(model: Path, tmp_path: Path) -> None:
    card = CPU.model_copy(update={"kind": "amd", "name": "MI50", "pci_address": "0000:03:00.0", "index": 1})
    said = [str(p) for p in preflight(night(model), card, tmp_path) if not p.fatal]
    assert any(s.startswith("0000:03:00.0 has no uuid of its own: it is given to the engine as number 1") for s in said)


def test_versions_come_from_the_interpreter_itself() -> None:
    assert engine_versions(str(STANDIN))["vllm"] == "0.0.0+standin"
    assert engine_versions("/nowhere/python") == {"python": None, "vllm": None, "torch": None, "build": None}


# --- the model and what fits ------------------------------------------------------------------------------------------


def test_model_folders_that_no_engine_could_load(model: Path) -> None:
    def found(**flags: object) -> list[str]:
        return [what for what, _ in engine_fit.folder_problems(model, flags)]  # type: ignore[arg-type]

    assert found() == []
    (model / "tokenizer.json").unlink()
    assert found() == [f"engine.model: {model} holds no tokenizer"]
    assert found(tokenizer="elsewhere") == []
    (model / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert found(tokenizer="x") == ["engine.model: model.safetensors is only a Git LFS pointer"]
    (model / "model.safetensors").unlink()
    assert found(tokenizer="x") == [f"engine.model: {model} holds no weights (*.safetensors, *.bin, *.pt, *.gguf)"]
    assert found(tokenizer="x", **{"load-format": "dummy"}) == []
    (model / "config.json").write_text("{")
    assert found(tokenizer="x", **{"load-format": "dummy"}) == [f"engine.model: {model} has a broken config.json"]
    assert [w for w, _ in engine_fit.folder_problems(model / "no", {})] == [f"engine.model: {model}/no is no folder"]


def test_half_a_download(model: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    ((what, _),) = engine_fit.folder_problems(model, {})
    assert what == "engine.model: model-00002.safetensors is named in the weights' index and absent"


def workload_lines(config: NightConfig, card: Card = CPU) -> list[str]:
    facts = engine_fit.read_model(Path(config.engine.model))
    assert facts is not None
    return [f"{what}: {fix}" for what, fix in engine_fit.workload_problems(config, card, facts)]


def test_a_request_must_fit_the_engine(model: Path) -> None:
    assert workload_lines(night(model, flags={"max-model-len": 128})) == []  # 100 + 28 tokens: just fits
    assert workload_lines(night(model, flags={"max-model-len": 127})) == [
        "a request can reach 128 tokens, and the engine takes 127 (engine.flags.max-model-len): "
        "shorten the workload's input_tokens or output_tokens, or raise max-model-len to 128"
    ]
    (model / "config.json").write_text(json.dumps({**SMOLLM2, "max_position_embeddings": 100}))
    assert "the engine takes 100 (the model's config.json)" in workload_lines(night(model))[0]
    assert workload_lines(night(model, flags={"max-num-seqs": 1})) == workload_lines(
        night(model)
    )  # queueing is no error


def test_the_kv_cache_must_hold_one_sequence(model: Path) -> None:
    facts = engine_fit.read_model(model)
    assert facts is not None and facts.kv_values_per_token == 2 * 30 * 3 * 64
    assert engine_fit.kv_bytes_per_token(night(model).engine, facts) == 23040  # bf16
    assert engine_fit.kv_bytes_per_token(night(model, flags={"dtype": "float32"}).engine, facts) == 46080
    assert workload_lines(night(model)) == []  # 1 GiB holds 46603 tokens of bf16
    (model / "config.json").write_text(json.dumps({**SMOLLM2, "max_position_embeddings": 131072}))
    assert workload_lines(night(model)) == [
        "the KV cache (1.0 GiB) holds 46603 tokens, less than one sequence (the model's longest, 131072): "
        "set engine.env.VLLM_CPU_KVCACHE_SPACE to 3, or engine.flags.max-model-len to 46592"
    ]
    assert workload_lines(night(model, flags={"max-model-len": "4k"})) == []
    assert workload_lines(night(model, flags={"max-model-len": "auto"})) == []
    assert workload_lines(night(model, flags={"kv-cache-dtype": "fp8", "kv-cache-memory-bytes": "4G"}, env={})) == []


def test_caches_of_another_kind_are_the_engine_s_to_judge(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**SMOLLM2, "kv_lora_rank": 512, "max_position_embeddings": 1 << 20}))
    assert workload_lines(night(model)) == []


@pytest.mark.parametrize(
    ("value", "number"),
    [(8192, 8192), ("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5k", 1500), ("x", None), (True, None), (None, None)],
)
def test_numbers_as_vllm_reads_them(value: object, number: int | None) -> None:
    assert engine_fit.whole_number(value) == number  # type: ignore[arg-type]


def test_an_engine_that_memory_cannot_hold(model: Path, tmp_path: Path) -> None:
    lines = fatal(preflight(night(model, env={"VLLM_CPU_KVCACHE_SPACE": "900000"}), CPU, tmp_path))
    assert len(lines) == 1
    assert "are free on CPU: end what else is on it, or lower VLLM_CPU_KVCACHE_SPACE" in lines[0]
    (line,) = fatal(preflight(night(model, env={"VLLM_CPU_KVCACHE_SPACE": "0.5"}), CPU, tmp_path))
    assert line == "VLLM_CPU_KVCACHE_SPACE is '0.5', and vLLM reads whole GiB: write \"1\" or more"


@pytest.mark.parametrize(
    ("card", "free_gib", "engine", "resident_gib", "begins"),
    [
        (CPU, 8, {}, None, "two engines at once: 8.0 GiB are free beside the first engine, and a second wants 3.9"),
        (CPU, 3, {}, None, "one engine at a time: 3.0 GiB are free"),
        (CPU, 8, {}, 9, "one engine at a time: 8.0 GiB are free beside the first engine, and a second wants 9.9"),
        (
            CPU,
            8,
            {"env": {}},
            None,
            "one engine at a time: each would take 92% of the memory (no KV cache size is set)",
        ),
        (GPU, 70, {"flags": {"gpu-memory-utilization": 0.4}}, None, "two engines at once"),
        (GPU, 12, {}, None, "one engine at a time: 12.0 GiB are free beside the first engine"),
        (GPU, None, {}, None, "one engine at a time: the card does not say"),
    ],
)
def test_twins_where_memory_holds_two(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    card: Card,
    free_gib: int | None,
    engine: dict[str, object],
    resident_gib: int | None,
    begins: str,
) -> None:
    free = None if free_gib is None else free_gib * GIB
    monkeypatch.setattr("agents.preflight.free_memory", lambda _card: free)
    enough, why = memory_for_twins(night(model, **engine), card, resident_gib and resident_gib * GIB)
    assert why.startswith(begins)
    assert enough == begins.startswith("two")


# --- the machine --------------------------------------------------------------------------------------------------


def test_a_taken_port_names_its_holder(model: Path, tmp_path: Path) -> None:
    code = "import socket, time; s = socket.create_server(('0.0.0.0',0)); print(s.getsockname()[1], flush=True)"
    code += "; time.sleep(99)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            (line,) = fatal(preflight(night(model, port=port), CPU, tmp_path))
        finally:
            server.kill()
    assert line.startswith(f"engine.port {port} is held by pid {server.pid} (")
    assert line.endswith("choose another engine.port, or remove it so that a free one is taken")
    assert port_problem(port) is None


def test_old_connections_do_not_look_like_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # this side closes first, so the port is left in TIME_WAIT
        client.close()
    assert port_problem(port) is None


def test_too_little_disk(tmp_path: Path) -> None:
    ((what, fix),) = machine_fit.folder_problems(tmp_path / "a/b", 1 << 60)
    assert what.startswith(f"{tmp_path} has ") and "limits.disk_free_bytes" in fix


def test_no_folder_can_be_made_inside_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ((what, _),) = machine_fit.folder_problems(tmp_path / "file/night", 0)
    assert what == f"{tmp_path}/file is a file, so no night's folder can be made there"


def test_a_place_that_cannot_be_written() -> None:
    if not os.path.isdir("/proc/self"):
        pytest.skip("no /proc: nothing here that even root cannot write to")
    ((what, _),) = machine_fit.folder_problems(Path("/proc/self/night"), 0)
    assert what.startswith("/proc/self cannot be written (")


def test_git_absent_or_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_fit.git_problem() is None
    fake = tmp_path / "git"
    fake.write_text("#!/bin/sh\necho git version 2.20.1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = machine_fit.git_problem()
    assert problem is not None and problem[0] == "git is too old (git version 2.20.1)"
    fake.unlink()
    problem = machine_fit.git_problem()
    assert problem is not None and problem[0] == "git is not installed"


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    problem = machine_fit.compiler_problem(True, True, {"PATH": str(tmp_path)})
    assert problem == ("no C++ compiler (g++): compiled modes cannot start", "apt-get install g++")
    compiler = tmp_path / "my-g++"
    compiler.touch(mode=0o755)
    assert machine_fit.compiler_problem(True, True, {"PATH": str(tmp_path), "CXX": "my-g++"}) is None
    problem = machine_fit.compiler_problem(True, False, {"PATH": str(tmp_path), "CXX": "my-g++"})
    assert problem is not None and "Python.h" in problem[0]


def test_heavy_neighbours_are_named_the_heaviest_first() -> None:
    before = {1: Sample("idle", 5.0), 2: Sample("train.py", 1.0), 3: Sample("make", 0.0), 5: Sample("old", 9.0)}
    after = {
        1: Sample("idle", 5.0),
        2: Sample("train.py", 1.8),
        3: Sample("make", 0.2),
        4: Sample("new", 3.0),
        5: Sample("other", 9.9),
    }
    assert heavy_processes(before, after, 0.4) == ["train.py, pid 2 (2.0 cores)", "make, pid 3 (0.5 cores)"]
    assert HEAVY_CORES < 0.5


def test_a_busy_neighbour_is_seen_for_real_and_our_own_children_are_not() -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    stranger = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -c 'while True: pass' & echo $!"], stdout=subprocess.PIPE, text=True
    )
    child = subprocess.Popen(spin)
    assert stranger.stdout is not None
    pid = int(stranger.stdout.readline())
    stranger.wait()  # its child is now nobody of ours
    try:
        first = machine_fit._look()
        assert pid in first and child.pid not in first
        deadline = time.monotonic() + 60
        while machine_fit._look()[pid].cpu_s < first[pid].cpu_s + 0.2:  # until it has really run
            assert time.monotonic() < deadline
        assert any(f"pid {pid} " in line for line in heavy_processes(first, machine_fit._look(), 0.4))
    finally:
        child.kill()
        child.wait()
        os.kill(pid, 9)


def test_a_budget_that_cannot_hold_a_night_is_a_warning(model: Path, tmp_path: Path) -> None:
    short = night(model, flags={"enforce-eager": True}).model_copy(update={"minutes": 3.0})
    warnings = [p for p in preflight(short, CPU, tmp_path) if not p.fatal and p.what.startswith("minutes is 3;")]
    assert len(warnings) == 1
    assert fatal(preflight(short, CPU, tmp_path)) == []


# --- doctor -------------------------------------------------------------------------------------------------------


def test_doctor_says_what_it_found(model: Path) -> None:
    diagnosis = doctor(night(model))
    assert diagnosis.found["vllm"] == "0.0.0+standin"
    assert diagnosis.card in diagnosis.cards
    assert diagnosis.fit
    assert json.loads(diagnosis.model_dump_json())["card"]["kind"] == diagnosis.card.kind
    lines = diagnosis.lines()
    assert "vllm: 0.0.0+standin" in lines and lines[-1] == "fit for a night"


def test_doctor_without_a_night_and_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTGATE_ENGINE_PYTHON", "/nowhere/python")
    diagnosis = doctor(None)
    assert not diagnosis.fit
    assert diagnosis.lines()[-1].startswith("not fit")
    assert fatal(diagnosis.problems)[0].startswith("engine.python: /nowhere/python does not exist: run `make setup`")


def test_an_image_that_cannot_be_asked_is_no_cpu_build(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of the host's memory, nor that the image has no vLLM; the copy test is said not to run."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    made = night(model, container={"image": "example.org/none:1"}, python="python3", env={})
    diagnosis = doctor(made.model_copy(update={"card": CardRule(copy_test=True)}))
    assert "the engine's interpreter does not answer" in diagnosis.card_reason
    assert "two engines at once" not in diagnosis.found
    (line,) = fatal(diagnosis.problems)
    assert line.startswith("engine.container: docker ")
    assert "card.copy_test does not run in a container yet" in [p.what for p in diagnosis.problems]


# --- somebody else on the card ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "is_fatal", "fix"),
    [
        (CardRule(), True, "end that work, choose another card, or set card.when_busy: wait in the night file"),
        (
            CardRule(when_busy="wait", wait_minutes=90),
            False,
            "the night waits until it is free, at most 90 minutes (card.wait_minutes)",
        ),
    ],
)
def test_a_busy_card_is_refused_or_said(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: CardRule, is_fatal: bool, fix: str
) -> None:
    card = mi50(tmp_path, used_bytes=3 << 30)
    computing(tmp_path, 4242, "train.py", 3 << 30)
    monkeypatch.setattr("agents.card_guard.tenants", lambda card, root: tenants(card, tmp_path))
    config = night(model).model_copy(update={"card": rule})
    what = "AMD Instinct MI50 is in use: train.py (pid 4242) holds 3.0 GiB of it"
    assert Problem(what=what, fix=fix, fatal=is_fatal) in preflight(config, card, tmp_path / "logs")
