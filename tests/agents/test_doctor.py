"""What doctor says, word for word, to somebody who has just been handed a Z100. The host is written down as a folder
(z100_host.py): nobody here has one. The interpreters are scripts that answer as an engine's would."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agents import machine_fit
from agents.doctor import Diagnosis, doctor, not_said_yet
from agents.host_fit import Host, limit_problems
from agents.preflight import Problem
from cards.detect import detect
from cards.installed import installed
from contracts import Card, EngineSettings, NightConfig, Workload
from tests.agents.z100_host import LI, LIMITS, host, interpreter, z100
from tests.cards.tenants import FIRST, GPU_ID, kfd, link, opened, process
from tests.cards.trees import cpu_node, gpu_node, machine, write
from tests.real import engine_python

GIB = 1 << 30
CHECKOUT = Path(__file__).resolve().parents[2]
CPU = Card(arch="x86_64", kind="cpu", name="CPU", memory_bytes=GIB, compute_units=2, source="test")
Ask = Callable[..., Diagnosis]
TORCH_ONLY = {"python": "3.10.12", "torch": "2.9.0", "hip": "6.3.25211", "triton": "3.5.0", "headers": True}


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who else is on this CPU is another test's matter."""
    monkeypatch.setattr(machine_fit, "busy_problem", lambda: None)
    monkeypatch.setattr(machine_fit, "git_problem", lambda: None)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """doctor, without a night file, with an interpreter that answers so."""

    def asked(where: Host, **answer: object) -> Diagnosis:
        monkeypatch.setenv("NIGHTGATE_ENGINE_PYTHON", str(interpreter(tmp_path / "engine", **answer)))
        return doctor(None, where)

    return asked


def test_the_whole_of_it_for_a_fresh_z100(tmp_path: Path, ask: Ask) -> None:
    """torch for ROCm is there, vLLM is not; the user is not in the group render."""
    lines = ask(host(z100(tmp_path / "root")), **TORCH_ONLY).lines()
    name = detect(tmp_path / "root")[0].name  # as the kernel's files or a list of device numbers give it
    assert [line for line in lines if not line.startswith("disk: ")] == [
        f"engine.python: {tmp_path}/engine/python",
        "python: 3.10.12",
        "torch: 2.9.0",
        "triton: 3.5.0",
        "build: rocm, HIP 6.3.25211",
        "driver: hydcu, 6.3.30-V1.9.0",
        "DTK: 26.04",
        "user: li (uid 1000), groups li (1000), docker (998)",
        "device files: /dev/kfd NO, /dev/mkfd NO, /dev/dri/renderD128 NO",
        "limits: open files 1048576, locked memory 8 MiB, /dev/shm 16.0 GiB",
        "ports: 20000 to 29999 on 127.0.0.1, a free one for each engine",
        "sheet of gfx906: 1024 GB/s; TFLOPS: fp32 13.3, fp16 26.5, int8 53; no matrix cores, bf16 arithmetic, FP8, "
        "MXFP4 (published, of AMD Radeon Instinct MI50 (32 GB); --measure measures yours)",
        f"cards: {name} (gfx906, 32 GiB, 60 CUs, 0000:04:00.0, GPU-0000000000001001); "
        "A CPU of the tests (x86_64, 32 GiB, 8 cores)",
        f"the night's card: none yet: the engine's interpreter has no vLLM; it would be {name} (gfx906)",
        "known of these versions on this card (sources: configs/versions.yaml):",
        "  ROCm 6.3.25211: ROCm 6.3 is what the two forks of vLLM for this arch install, and HIP 6.3 what the Z100 "
        "report ran [published]",
        "  torch 2.9.0: 2.9 is what nlzy's fork and the Z100 report used, 2.11.0 (until 2026-04 2.10.0) what "
        "mobydick's does, built with PYTORCH_ROCM_ARCH=gfx906 [published]",
        "  Triton 3.5.0: upstream Triton 3.5 to 3.7.1 refuses this arch (unsupported target: 'gfx906') [measured here]",
        "PROBLEM: li may not use /dev/kfd, /dev/mkfd, /dev/dri/renderD128",
        "  fix: sudo usermod -aG render li, then log in again (a running tmux keeps the old groups)",
        f"PROBLEM: engine.python: {tmp_path}/engine/python has no vLLM",
        "  fix: install a vLLM for gfx906 (docs/cards.md) and name its interpreter in NIGHTGATE_ENGINE_PYTHON; "
        "`make setup` brings one for the CPU only",
        "warning: Triton 3.5.0: upstream Triton 3.5 to 3.7.1 refuses this arch (unsupported target: 'gfx906') "
        "[measured here]",
        "  fix: take Triton 3.8 or 3.9, or a fork's build (mobydick's is triton-gfx906 3.6.0+gfx906), on a Hygon card "
        "DTK's own",
        "not fit for a night: mend the 2 marked PROBLEM (docs/cards.md says what to install for it)",
    ]


def words(found: Diagnosis) -> list[str]:
    return [f"{'PROBLEM' if p.fatal else 'warning'}: {p}" for p in found.problems]


def test_all_mended(tmp_path: Path, ask: Ask) -> None:
    """A fork's builds, and the user in the group."""
    answer = {**TORCH_ONLY, "triton": "3.6.0+gfx906", "vllm": "0.19.1rc0+gfx906", "vllm_distribution": "vllm"}
    found = ask(host(z100(tmp_path / "root"), LI.model_copy(update={"gids": (1000, 109)})), **answer)
    assert words(found) == [] and found.fit
    assert found.card.arch == "gfx906"
    assert found.found["device files"] == "/dev/kfd yes, /dev/mkfd yes, /dev/dri/renderD128 yes"
    assert "  vLLM 0.19.1rc0+gfx906: nobody has said whether it works on this card" in found.lines()
    assert found.lines()[-1] == "fit for a night"


def test_before_the_driver(tmp_path: Path, ask: Ask) -> None:
    found = ask(host(z100(tmp_path / "root", module=None)), python="3.10.12")
    assert words(found)[0] == (  # the driver first, whatever is to be installed later
        "PROBLEM: a Hygon card (0x54b7) sits at 0000:04:00.0, and no driver has it: install Hygon's DCU driver and DTK "
        "(Hygon's developer site), then `modprobe hydcu` (in some versions hycu)"
    )
    assert "install a vLLM for your card (docs/cards.md)" in words(found)[1]
    assert found.found["driver"] == "none is loaded for AMD or Hygon cards"


def test_a_driver_that_is_older_than_the_dtk(tmp_path: Path, ask: Ask) -> None:
    root = z100(tmp_path / "root")
    write(root / "sys/module/hydcu/version", "6.2.26-V1.9.0\n")
    assert (
        "warning: Hygon's list puts DTK 24.04 or 25.04 with driver 6.2.26-V1.9.0, and this is DTK 26.04: take a driver "
        "that it puts with DTK 26.04 (from 6.3.30 on), or another DTK"
    ) in words(ask(host(root), **TORCH_ONLY))


def test_before_torch_a_dtk_is_not_taken_for_a_rocm(tmp_path: Path, ask: Ask) -> None:
    """DTK's shell set-up names it in ROCM_PATH; "26.04" read as a ROCm was "6.4 or later, without kernels for it"."""
    root = z100(tmp_path / "root")
    found = ask(host(root, env={"ROCM_PATH": "/opt/dtk"}), python="3.10.12")
    assert "ROCm" not in found.found and found.found["DTK"] == "26.04"
    assert not [line for line in words(found) if "rocBLAS" in line]


def test_hygon_s_own_vllm(tmp_path: Path, ask: Ask) -> None:
    """Versions as its CI names them (vllm-plugin-das, hcu-runner-environment.json at 0e5f3e8)."""
    answer = {
        **TORCH_ONLY, "torch": "2.11.0+das.opt1.dtk2604.1", "triton": "3.6.0+das.opt1.dtk2604",
        "vllm": "0.25.1+das.9ae3515", "vllm_distribution": "vllm",
        "platforms": {"hcu": "vllm-hcu 0.25.1+das.9ae3515.dtk2604"},
    }  # fmt: skip
    member = LI.model_copy(update={"gids": (109,)})
    found = ask(host(z100(tmp_path / "root"), member), **answer)
    assert found.found["platform of vLLM"] == "a plugin's: hcu (vllm-hcu 0.25.1+das.9ae3515.dtk2604)"
    (line,) = words(found)
    assert line.startswith("warning: Hygon's plugin vllm_hcu 0.25.1+das.9ae3515.dtk2604: Hygon tests this plugin on")
    assert "for no card of this arch [read in source]" in line


def test_what_a_recipe_exports_and_no_engine_of_a_night_gets(tmp_path: Path) -> None:
    """As Hygon's recipes for K100_AI begin (inference-cookbook-das at ad2a8ff)."""
    shell = {
        "VLLM_HCU_USE_CUSTOM_OPS": "0", "VLLM_ROCM_USE_AITER": "0", "VLLM_CACHE_ROOT": "/x", "HIP_VISIBLE_DEVICES": "0",
    }  # fmt: skip
    engine = EngineSettings(python=sys.executable, model="/m", env={"VLLM_ROCM_USE_AITER": "0"})
    work = Workload(name="w", concurrency=1, requests=8, warmup_requests=0, input_tokens=(8, 8), output_tokens=(8, 8))
    config = NightConfig(name="n", minutes=60, engine=engine, workload=work)
    found = words(doctor(config, host(z100(tmp_path / "root"), env=shell)))
    assert (
        "warning: this shell sets VLLM_HCU_USE_CUSTOM_OPS, and engines get them from the night file alone: write what "
        "you serve with into engine.env, or unset them"
    ) in found
    assert "this shell sets" not in str(words(doctor(None, host(tmp_path / "root", env=shell))))  # no file to hold them


def test_in_a_container_without_its_devices(tmp_path: Path, ask: Ask) -> None:
    root = z100(tmp_path / "root", devices=False)
    (root / ".dockerenv").touch()
    found = ask(host(root), **TORCH_ONLY)
    assert found.found["inside"] == "a container (docker)"
    assert (
        "PROBLEM: there is no /dev/kfd, through which all compute work goes: start the container with "
        "--device=/dev/kfd --device=/dev/dri --group-add video --ipc=host --security-opt seccomp=unconfined "
        "--device=/dev/mkfd -v /opt/hyhal:/opt/hyhal:ro"
    ) in words(found)


def test_vllm_s_own_build_holds_nothing_for_this_card(tmp_path: Path, ask: Ask) -> None:
    """The library is made up, in the format of clang's offload bundles."""
    package = tmp_path / "site/vllm"
    write(
        package / "_rocm_C.abi3.so", "\x7fELF..hipv4-amdgcn-amd-amdhsa--gfx90a:xnack- hipv4-amdgcn-amd-amdhsa--gfx942 "
    )
    answer = {**TORCH_ONLY, "triton": "3.9.0", "vllm": "0.30.0+rocm700", "vllm_distribution": "vllm"}
    member = LI.model_copy(update={"gids": (109,)})
    found = words(ask(host(z100(tmp_path / "root"), member), **answer, vllm_folder=str(package)))
    assert [line.split(": ")[1][:60] for line in found] == [
        "vLLM 0.30.0+rocm700", "this vLLM's kernels were compiled for gfx90a, gfx942, not fo",
    ]  # fmt: skip
    write(package / "_rocm_C.abi3.so", "hipv4-amdgcn-amd-amdhsa--gfx906:sramecc+:xnack- ")  # somebody's own build
    assert words(ask(host(tmp_path / "root", member), **answer, vllm_folder=str(package))) == []


def test_a_fork_for_the_card_is_not_told_what_upstream_s_builds_lack(tmp_path: Path, ask: Ask) -> None:
    """A version as mobydick's setup.py (ff063e44e) puts it together: no "gfx906" is in it, in its code there is."""
    answer = {**TORCH_ONLY, "torch": "2.11.0", "triton": "3.6.0+gfx906", "vllm_distribution": "vllm"}
    answer |= {"vllm": "0.23.1rc1.dev9+gff063e44e.rocm633"}
    member = LI.model_copy(update={"gids": (109,)})
    upstream = ask(host(z100(tmp_path / "root"), member), **answer, named_archs=["gfx90a", "gfx950"])
    assert any("vLLM's own ROCm builds are compiled for" in line for line in words(upstream))
    installed.cache_clear()  # the same script answers otherwise now
    fork = ask(host(tmp_path / "root", member), **answer, named_archs=["gfx906", "gfx90a"])
    assert (
        words(fork) == []
        and "  vLLM 0.23.1rc1.dev9+gff063e44e.rocm633: nobody has said whether it works on this card" in fork.lines()
    )


def test_which_archs_an_installed_vllm_names(tmp_path: Path) -> None:
    write(tmp_path / "vllm/__init__.py", "")
    write(tmp_path / "vllm/platforms/rocm.py", "def on_gfx906() -> bool: ...\ndef on_gfx1x() -> bool: ...\n")
    write(tmp_path / "python", f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    assert installed(str(tmp_path / "python")).named_archs == ("gfx906",)


def test_an_engine_on_two_cards_and_a_model_that_is_not_there(tmp_path: Path) -> None:
    """One card is watched, and what is to be mended is not the card's software."""
    answer = {**TORCH_ONLY, "vllm": "0.23.1rc0+gfx906", "vllm_distribution": "vllm", "triton": "3.6.0+gfx906"}
    engine = EngineSettings(
        python=str(interpreter(tmp_path / "engine", **answer)), model=str(tmp_path), flags={"tensor-parallel-size": 2}
    )
    load = Workload(name="w", concurrency=1, requests=4, warmup_requests=1, input_tokens=(8, 8), output_tokens=(8, 8))
    member = LI.model_copy(update={"gids": (109,)})
    found = doctor(
        NightConfig(name="n", minutes=60, engine=engine, workload=load), host(z100(tmp_path / "root"), member)
    )
    assert found.card_reason.endswith("; of the engine's 2 cards it is the one that is watched")
    assert found.lines()[-1] == "not fit for a night: mend the 3 marked PROBLEM"


def test_an_mi355x_on_an_old_rocm(tmp_path: Path, ask: Ask) -> None:
    root = tmp_path / "root"
    machine(root)
    cpu_node(root, 0)
    gpu_node(root, 1, gfx=90500, simd_count=1024, bank_bytes=288 * GIB, location=0x7500, device=0x75A0, minor=128)
    write(root / "sys/module/amdgpu/version", "6.14.5\n")
    for name in ("kfd", "dri/renderD128"):
        write(root / "dev" / name, "")
    answer = {"python": "3.12.3", "torch": "2.7.0", "hip": "6.4.1", "vllm": "0.30.0", "vllm_distribution": "vllm"}
    found = ask(host(root, LI.model_copy(update={"gids": (109,)})), **answer)
    assert words(found) == [
        "warning: ROCm 6.4.1: the MI350 series needs ROCm 7.0 or later [published]: install ROCm 7, or start one of "
        "vLLM's ROCm images (vllm/vllm-openai-rocm)"
    ]
    assert any(
        line.startswith("  vLLM 0.30.0: the image") and line.endswith("[recorded night]") for line in found.lines()
    )


def test_an_mi50_in_a_container_without_kfd(tmp_path: Path, ask: Ask) -> None:
    """The device files are there, the kernel's list of cards is not: that stops the night, so it comes first."""
    root = tmp_path / "root"
    machine(root)
    (root / ".dockerenv").touch()
    pci = root / "sys/bus/pci/devices/0000:03:00.0"
    for name, text in (("vendor", "0x1002"), ("device", "0x66a1"), ("class", "0x038000")):
        write(pci / name, text + "\n")
    write(root / "sys/bus/pci/drivers/amdgpu/bind", "")
    (pci / "driver").symlink_to(root / "sys/bus/pci/drivers/amdgpu")
    for name in ("kfd", "dri/renderD128"):
        write(root / "dev" / name, "")
    member = LI.model_copy(update={"gids": (109,)})
    answer = {**TORCH_ONLY, "vllm": "0.19.1rc0+gfx906", "vllm_distribution": "vllm", "triton": "3.6.0+gfx906"}
    first = words(ask(host(root, member), **answer))[0]
    assert first.startswith("PROBLEM: 0000:03:00.0 can be seen, but /sys/class/kfd is not there")
    found = ask(host(root, member), **TORCH_ONLY)  # before there is a vLLM too
    assert "/sys/class/kfd is not there" in words(found)[0] and words(found)[0].startswith("PROBLEM")
    assert "--group-add $(stat -c %g /dev/kfd)" in words(found)[0]


def test_an_mi355x_that_somebody_is_on(tmp_path: Path, ask: Ask) -> None:
    """Asked of the machine that is looked at, with and without a night file."""
    root = tmp_path / "root"
    machine(root)
    gpu_node(
        root, 1, gfx=90500, simd_count=1024, bank_bytes=288 * GIB, location=0x7500, device=0x75A0, minor=128,
        vram_bytes=288 * GIB, used_bytes=200 * GIB, product_name="AMD Instinct MI355X",
    )  # fmt: skip
    write(root / "sys/class/kfd/kfd/topology/nodes/1/gpu_id", f"{GPU_ID}\n")
    link(root / "proc/self/ns/pid", FIRST)
    process(root, 777, "VLLM::EngineCor")
    opened(root, 777, 3, "/dev/kfd")
    kfd(root, 777, 199 * GIB)
    for name in ("kfd", "dri/renderD128"):
        write(root / "dev" / name, "")
    answer = {"python": "3.12.3", "torch": "2.9.0", "hip": "7.0.2", "vllm": "0.30.0", "vllm_distribution": "vllm"}
    assert words(ask(host(root, LI.model_copy(update={"gids": (109,)})), **answer)) == [
        "PROBLEM: AMD Instinct MI355X is in use: VLLM::EngineCor (pid 777) holds 199.0 GiB of it: end that work, "
        "choose another card, or set card.when_busy: wait in the night file"
    ]


def test_a_card_or_a_file_is_spoken_of_once() -> None:
    said = [Problem(what="li may not use /dev/kfd, /dev/dri/renderD128", fix="usermod")]
    found = (
        ("/dev/kfd may not be opened by this user", "usermod"),
        ("0000:04:00.0 has fallen off the bus", "reboot"),
        ("this machine has unlike AMD cards", "see the log"),
    )
    assert [p.what.split(" has")[0] for p in not_said_yet(found, said)] == ["0000:04:00.0", "this machine"]


def test_limits_that_engines_inherit() -> None:
    work = Workload(
        name="w", concurrency=2000, requests=8, warmup_requests=0, input_tokens=(8, 8), output_tokens=(8, 8)
    )
    engine = EngineSettings(model="/m", flags={"tensor-parallel-size": 2})
    config = NightConfig(name="n", minutes=60, engine=engine, workload=work)
    gpu = CPU.model_copy(update={"kind": "amd", "arch": "gfx906"})
    tight = {**LIMITS, "files": (1024, 4096), "cpu_s": (3600, 3600), "memory": (64 * GIB, 64 * GIB)}
    found = [f"{what}: {fix}" for what, fix, _ in limit_problems(Host(limits=tight, shared=64 << 20), gpu, config)]
    assert [line.split(":")[0] for line in found] == [
        "this process may open 4096 files at most, and a night wants 5024",
        "every process is ended after 3600 s of processor time (ulimit -t)",
        "address space is limited (ulimit -v), and a GPU's runtime reserves far more of it than it uses",
        "/dev/shm has 64 MiB, and engines on several cards talk through it",
    ]
    assert list(limit_problems(Host(limits=LIMITS, shared=64 << 20), CPU, None)) == []


@pytest.mark.engine_python
def test_as_json_and_measured_on_this_machine() -> None:
    """The real command, the real interpreter, the real copy test; a few seconds."""
    engine_python()
    command = [sys.executable, "run_night.py", "doctor", "--measure", "--json"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=150)
    told = json.loads(done.stdout)
    assert told["measured"]["copy_gb_s"]["value"] > 0.1, done.stderr
    assert "GB/s copied" in told["found"]["measured"]
    assert all(p["what"] and p["fix"] for p in told["problems"])
    assert done.returncode == (1 if any(p["fatal"] for p in told["problems"]) else 0)
