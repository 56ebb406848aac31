"""Good night files: what is filled in, where paths count from, and that every key is documented."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from agents.config import dump_resolved, engine_python, load_night
from agents.config_words import every_key
from agents.stages.opening import base_spec
from agents.strict_yaml import show_path
from contracts import Container, Lever, NightConfig
from tests.agents.night_files import CHECKOUT, FIRST_NIGHT, checkout, good, night, refused

__all__ = ["checkout"]  # a fixture


def test_paths_are_resolved_and_names_are_filled_in(checkout: Path) -> None:
    config = load_night(night(checkout, good(checkout)))
    assert config.name == "x"
    assert config.workload.name == "x"
    assert config.engine.model == str(checkout / "models/tiny")
    assert config.engine.python == sys.executable  # a virtual environment's link is not followed
    assert config.engine.env == {"VLLM_CPU_KVCACHE_SPACE": "1"}  # a number is text to an environment, as it was written


def test_outside_a_checkout_paths_count_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(good(tmp_path))
    assert load_night(path).engine.model == str(tmp_path / "models/tiny")


def test_the_workload_may_be_a_file(checkout: Path) -> None:
    text, workload = good(checkout).split("workload:\n")
    (checkout / "chat.yaml").write_text(workload.replace("  ", ""))
    config = load_night(night(checkout, text + "workload: chat.yaml\n"))
    assert (config.workload.name, config.workload.concurrency) == ("chat", 4)


def test_hours_override_minutes(checkout: Path) -> None:
    path = night(checkout, good(checkout))
    config = load_night(path, {"minutes": 480.0, "engine.port": 8000, "judge.max_tries": 3})
    assert (config.minutes, config.engine.port, config.judge.max_tries) == (480.0, 8000, 3)
    assert refused(path, {"minutes": -5}) == ["override: minutes must be above 0, got -5"]
    assert refused(path, {"engine.prot": 1}) == ["override: engine.prot is not a key here; did you mean engine.port?"]


def test_a_hub_name_is_found_in_the_local_cache(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = checkout / "hub/models--org--tiny"
    (cache / "snapshots/abc").mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text("abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(checkout / "hub"))
    path = night(checkout, good(checkout, model="model: org/tiny"))
    assert load_night(path).engine.model == str(cache / "snapshots/abc")


def test_auto_takes_the_variable_then_what_set_up_chose(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NIGHTGATE_ENGINE_PYTHON", raising=False)
    with pytest.raises(ValueError, match="make setup"):
        engine_python("auto", root=checkout)
    (checkout / ".engine-python").write_text("venv/bin/python\n")
    assert engine_python("auto", root=checkout) == checkout / "venv/bin/python"
    monkeypatch.setenv("NIGHTGATE_ENGINE_PYTHON", "/opt/vllm/bin/python")
    assert engine_python("auto", root=checkout) == Path("/opt/vllm/bin/python")


def test_the_dump_reads_back_to_the_same_night(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = load_night(
        night(checkout, good(checkout, env='env: {A: "1e3", B: "yes", C: "2026-11-29", D: " \\u00fc\\n"}'))
    )
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "night.yaml"
    elsewhere.write_text(dump_resolved(config), encoding="utf-8")
    assert load_night(elsewhere) == config


PATCH = """\
try_first:
  - lever: source_patch
    key: vllm/limit
    why: four was a guess
    after: |
      --- a/vllm/limits.py
      +++ b/vllm/limits.py
      @@ -1,3 +1,3 @@
       # What may run at a time.

      -LIMIT = 4
      +LIMIT = 8
"""


def test_a_patch_is_text_in_the_night_file(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = load_night(night(checkout, good(checkout) + PATCH))
    (item,) = config.try_first
    assert item.lever is Lever.SOURCE_PATCH and str(item.after).endswith(" time.\n\n-LIMIT = 4\n+LIMIT = 8\n")
    resolved = tmp_path_factory.mktemp("elsewhere") / "night.yaml"
    resolved.write_text(dump_resolved(config), encoding="utf-8")
    assert "\n    -LIMIT = 4\n" in resolved.read_text()  # as a person would write it
    assert load_night(resolved) == config


def test_tables_and_patches_that_run_already(checkout: Path) -> None:
    diff = json.dumps(yaml.safe_load(PATCH)["try_first"][0]["after"])
    text = good(checkout, flags=f"overlay: {{source_patch: {{vllm/limit: {diff}}}}}")
    config = load_night(night(checkout, text))
    assert base_spec(config).overlay == config.engine.overlay
    assert list(config.engine.overlay[Lever.SOURCE_PATCH]) == ["vllm/limit"]
    (told,) = refused(night(checkout, text + PATCH))
    assert told == "x.yaml:17: try_first[0].after changes nothing: vllm/limit is that already"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("overlay: {source_patch: {vllm: x}}", "engine.overlay.source_patch.vllm cannot be used: 'vllm' must be <dist"),
        ("overlay: {source_patch: {vllm/x: x}}", "cannot be used: patch vllm/x changes no file"),
        ("overlay: {source_patch: {vllm/x: }}", "has no value; remove the key to leave what is installed"),
        ("overlay: {environment: {A: x}}", "cannot be laid over installed files by environment; levers that can: "),
        ("overlay: {source_pach: {vllm/x: x}}", "did you mean source_patch?"),
    ],
)
def test_overlays_that_cannot_be_used(checkout: Path, line: str, says: str) -> None:
    (told,) = refused(night(checkout, good(checkout, flags=line)))
    assert says in told


def test_a_patch_to_try_that_cannot_be_used(checkout: Path) -> None:
    (told,) = refused(night(checkout, good(checkout) + PATCH.replace("+++ b/vllm", "+++ b/aiter")))
    assert "try_first[0].key cannot be used: patch vllm/limit touches b/aiter/limits.py, which is not in vllm" in told


def test_the_embedded_night_is_good_and_starts_badly_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTGATE_ENGINE_PYTHON", sys.executable)
    config = load_night(FIRST_NIGHT)
    assert config.engine.flags["enforce-eager"] is True
    assert config.gate.gsm8k is not None and config.gate.gsm8k.floor == 0.965  # accuracy is asked for
    assert all(item.planted for item in config.try_first)  # real improvements come from the readers
    yaml.safe_load(dump_resolved(config))


def test_every_key_is_in_the_documentation() -> None:
    text = (CHECKOUT / "docs/configuration.md").read_text()
    absent = [show_path(key) for key in every_key(NightConfig) if f"`{show_path(key)}`" not in text]
    assert not absent, f"docs/configuration.md says nothing about {', '.join(absent)}"


def in_a_container(checkout: Path, *lines: str) -> Path:
    """A good night whose engine is an image, with more keys below engine.container."""
    text = re.sub(r"(?m)^  python: .*$", "  container:\n    image: rocm/vllm:1\n" + "".join(
        f"    {line}\n" for line in lines), good(checkout))  # fmt: skip
    return night(checkout, text)


def test_an_engine_in_a_container_has_the_images_interpreter(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = load_night(in_a_container(checkout))
    assert config.engine.container == Container(image="rocm/vllm:1")
    assert config.engine.python == "python3"  # no path of the host, whatever set-up chose
    assert config.engine.container.devices == config.engine.container.groups == ("auto",)
    spec = base_spec(config)
    assert spec.container == config.engine.container and spec.python == "python3"
    moved = config.engine.container.model_copy(update={"image": "rocm/vllm:2"})
    assert spec.model_copy(update={"container": moved}).id != spec.id  # another image is another engine
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "night.yaml"
    elsewhere.write_text(dump_resolved(config), encoding="utf-8")
    assert load_night(elsewhere) == config


def test_a_containers_lists_may_be_auto_and_more(checkout: Path) -> None:
    config = load_night(
        in_a_container(checkout, "devices: auto", 'groups: [auto, "109"]', "mounts: [/data, /a:/b:ro]", "shm_gib: 4")
    )
    assert config.engine.container == Container(
        image="rocm/vllm:1", groups=("auto", "109"), mounts=("/data", "/a:/b:ro"), shm_gib=4
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("runtime: dockr", "engine.container.runtime must be docker or podman, got the text 'dockr'; did you mean"),
        ("mounts: [models:/models]", 'engine.container.mounts[0] is written "/on/the/host:/inside"'),
        ("extra: [--rm=false, --name=mine]", "engine.container.extra[1] --name names the container"),
        ("extra: [-it]", "engine.container.extra[0] -it is for a person at a terminal"),
        ("extra: [-tid]", "engine.container.extra[0] -t is for a person at a terminal"),
        ("extra: [-qd]", "engine.container.extra[0] -d would cut the engine's log off"),
        (
            "extra: [--pull=always]",
            "engine.container.extra[0] --pull is set by nightgate, which never fetches an image",
        ),
        (
            "extra: [--ulimit, memlock=-1]",
            "engine.container.extra[1] is no option: 'memlock=-1'; write an option and its",
        ),
        ("extra: [other/image]", "engine.container.extra[0] is no option: 'other/image'"),
        ("python: ''", "engine.container.python is no interpreter; write its path inside the image"),
        ("python: '-c'", "engine.container.python is no interpreter"),
        ("devices: ['--privileged']", "engine.container.devices[0] is no value of --device: '--privileged'"),
        ("groups: ['']", "engine.container.groups[0] is no value of --group-add: ''"),
        ('mounts: ["/a\\\\0:/b"]', "engine.container.mounts[0] holds a NUL character"),
        ("imag: x", "engine.container.imag is not a key here; did you mean engine.container.image?"),
        ("devices: /dev/kfd", "engine.container.devices must be a list, got the text '/dev/kfd'"),
        ("shm_gib: 0", "engine.container.shm_gib must be above 0, got 0"),
    ],
)
def test_a_container_that_cannot_be_meant(checkout: Path, line: str, words: str) -> None:
    (said,) = refused(in_a_container(checkout, line))
    assert words in said, said


def test_tables_and_patches_are_not_for_an_image(checkout: Path) -> None:
    patch = "--- a/vllm/x.py\\n+++ b/vllm/x.py\\n@@ -1 +1 @@\\n-a\\n+b\\n"
    held = (
        in_a_container(checkout)
        .read_text()
        .replace("engine:\n", f'engine:\n  overlay: {{source_patch: {{vllm/x: "{patch}"}}}}\n')
    )
    (said,) = refused(night(checkout, held))
    assert "engine.overlay.source_patch cannot be used: source_patch cannot be laid over the files of an image" in said


def test_two_interpreters_are_one_too_many(checkout: Path) -> None:
    text = good(checkout).replace("  model:", "  container: {image: rocm/vllm:1}\n  model:")
    (said,) = refused(night(checkout, text))
    assert "engine.python is the container's own: write engine.container.python" in said
