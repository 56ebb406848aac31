"""A vLLM whose platform comes from outside its tree. The plugin is made up, in the layout of Hygon's vllm_hcu (its
setup.py and platforms/envs.py, HYGON-AI/vllm-plugin-das, 2026); vLLM's own tree is the installed one, or fake_vllm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agents.research.attention_backends import BackendsError
from agents.research.backend_choice import backend_choice
from agents.research.image_tree import SCRIPT
from agents.research.knobs import Knobs
from agents.research.platform_plugins import platform_plugins, variables
from agents.research.readers import attention_backends
from agents.research.refused import refused
from agents.research.vllm_source import knobs_from_source
from agents.settings_fit import unknown_settings
from agents.tuning.levers.attention_backend import problem
from cards.ask import MARK, RUN
from cards.installed import QUESTION, Installed
from contracts import Change, EngineSpec, Lever
from tests.agents import fake_vllm, installed
from tests.cards.trees import write

POINTS = """\
[console_scripts]
vllm-hcu-doctor = vllm_hcu.doctor:main

[vllm.general_plugins]
hcu_model = vllm_hcu:register_model

[vllm.platform_plugins]
hcu = vllm_hcu:platform_plugin
"""
ENVS = """\
import os
variables = {
    "VLLM_HCU_USE_CUSTOM_OPS":
    lambda: os.environ.get("VLLM_HCU_USE_CUSTOM_OPS", "True").lower() in ("true", "1"),
    "VLLM_USE_NN": lambda: os.environ.get('VLLM_USE_NN', "True"),
}
"""


def plugin(site: Path, info: str = "vllm_hcu-0.25.1+das.dtk2604.dist-info") -> None:
    write(site / info / "entry_points.txt", POINTS)
    write(site / "vllm_hcu/platforms/envs.py", ENVS)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    fake_vllm.plant(tmp_path)
    plugin(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "info", ["vllm_hcu-0.25.1+das.dtk2604.dist-info", "vllm_hcu-0.25.1+das.dtk2604-py3.10-linux-x86_64.egg/EGG-INFO"]
)
def test_it_is_found_by_its_metadata(tmp_path: Path, info: str) -> None:
    plugin(tmp_path, info)
    (found,) = platform_plugins(tmp_path)
    assert (found.name, found.module, found.version) == ("hcu", "vllm_hcu", "0.25.1+das.dtk2604")
    assert str(found) == "hcu (vllm_hcu 0.25.1+das.dtk2604)"


def test_other_plugins_are_no_platforms(tmp_path: Path) -> None:
    write(tmp_path / "ours-1.dist-info/entry_points.txt", "[vllm.general_plugins]\nours = ours:register\n")
    write(tmp_path / "broken-1.dist-info/entry_points.txt", "no section = here\n")
    assert platform_plugins(tmp_path) == ()


def test_its_variables_are_known_with_the_line_that_names_them(site: Path) -> None:
    (found,) = platform_plugins(site)
    assert {n: k.source for n, k in variables(site, found).items()} == {
        "VLLM_HCU_USE_CUSTOM_OPS": "vllm_hcu/platforms/envs.py:3",
        "VLLM_USE_NN": "vllm_hcu/platforms/envs.py:5",
    }


def told(knobs: Knobs, **settings: object) -> list[str]:
    spec = EngineSpec(python="python", model="model", **settings)
    return [str(found) for _, found in unknown_settings(spec, knobs)]


def test_what_hygon_s_recipes_set_is_no_slip(site: Path) -> None:
    """inference-cookbook-das ad2a8ff: K100_AI under vLLM 0.21, and another card."""
    knobs = knobs_from_source(site / "vllm")
    env = {"VLLM_HCU_USE_CUSTOM_OPS": "0", "VLLM_ROCM_USE_AITER": "0"}
    assert told(knobs, env=env, flags={"dtype": "of_the_plugin"}) == []
    spec = EngineSpec(python="python", model="model", flags={"dtype": "of_the_plugin"})
    assert refused(spec, knobs, None) is None
    (line,) = told(knobs, env={"VLLM_HCU_USE_CUSTOM_OP": "0"})  # a slip still is one
    assert "did you mean VLLM_HCU_USE_CUSTOM_OPS?" in line


def test_without_the_plugin_both_are(tmp_path: Path) -> None:
    knobs = knobs_from_source(fake_vllm.plant(tmp_path))
    assert knobs.platforms == ()
    assert len(told(knobs, env={"VLLM_HCU_USE_CUSTOM_OPS": "0"}, flags={"dtype": "of_the_plugin"})) == 2


def test_nothing_is_said_of_an_order_that_the_plugin_makes(site: Path) -> None:
    """HCUPlatform asks a function of its own module for FLASH_ATTN and TRITON_ATTN, whatever rocm.py says."""
    stock = installed.about("gfx906")
    own = stock.model_copy(update={"knobs": stock.knobs.model_copy(update={"platforms": platform_plugins(site)})})
    assert any("tries" in f.title for f in attention_backends.look(stock))
    (fact,) = attention_backends.look(own)
    assert fact.kind == "fact" and "the platform plugin hcu (vllm_hcu 0.25.1+das.dtk2604) orders" in fact.title
    with pytest.raises(BackendsError, match="not vllm/platforms/rocm.py"):
        backend_choice(own)
    change = Change(lever=Lever.ENGINE_FLAG, key="attention-backend", before=None, after="FLASH_ATTN_CUSTOM")
    assert problem(change, own.spec, own) is None  # a name of the plugin's: path evidence decides
    assert "no attention back end FLASH_ATTN_CUSTOM" in str(problem(change, stock.spec, stock))


def test_an_interpreter_that_has_it_says_so(site: Path) -> None:
    """The question that doctor asks, with a list of plugins as an image may set one."""
    write(site / "vllm_hcu-0.25.1+das.dtk2604.dist-info/METADATA", "Name: vllm-hcu\nVersion: 0.25.1+das.dtk2604\n")
    env = {"PYTHONPATH": str(site), "VLLM_PLUGINS": "hcu"}
    done = subprocess.run([sys.executable, "-c", RUN, QUESTION], check=True, env=env, capture_output=True, text=True)
    answer = Installed.model_validate(json.loads(done.stdout.partition(MARK)[2]))
    assert answer.platforms == {"hcu": "vllm-hcu 0.25.1+das.dtk2604"} and answer.vllm_plugins == "hcu"


def test_it_is_copied_out_of_an_image_with_vllm(site: Path, tmp_path: Path) -> None:
    """The script that runs in the image, run here over folders in site-packages' layout."""
    write(site / "vllm/__init__.py", "")
    write(site / "vllm_hcu/__init__.py", "")
    write(site / "vllm_hcu-0.25.1+das.dtk2604.dist-info/METADATA", "Name: vllm-hcu\nVersion: 0.25.1+das.dtk2604\n")
    write(site / "odd-1.dist-info/METADATA", "Name: odd\nVersion: 1\n")
    write(site / "odd-1.dist-info/entry_points.txt", "[vllm.platform_plugins]\nodd = .nowhere:x\n")
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run([sys.executable, "-c", SCRIPT, str(out)], check=True, env={"PYTHONPATH": str(site)})
    knobs = knobs_from_source(out / "tree/vllm")
    assert [str(p) for p in knobs.platforms] == ["hcu (vllm_hcu 0.25.1+das.dtk2604)"]
    assert "VLLM_HCU_USE_CUSTOM_OPS" in knobs.env


def test_metadata_that_was_broken_off_costs_no_image(site: Path, tmp_path: Path) -> None:
    """entry_points.txt without METADATA: the plugin is told without a version."""
    write(site / "vllm/__init__.py", "")
    write(site / "vllm_hcu/__init__.py", "")
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run([sys.executable, "-c", SCRIPT, str(out)], check=True, env={"PYTHONPATH": str(site)})
    assert [str(p) for p in knobs_from_source(out / "tree/vllm").platforms] == ["hcu (vllm_hcu)"]


@pytest.mark.parametrize("target", ["..:x", "{outside}:x", ".x:y", "", "../outside:x", "a/b:c"])
def test_what_no_python_could_import_is_no_platform(tmp_path: Path, target: str) -> None:
    """vLLM cannot load it either. A path in its place would be searched for variables: all files of the machine."""
    package = fake_vllm.plant(tmp_path / "site")
    outside = tmp_path / "outside"
    write(outside / "secret.py", 'x = "VLLM_NOT_OURS"')
    points = f"[vllm.platform_plugins]\nodd = {target.format(outside=outside)}\nhcu = vllm_hcu:platform_plugin\n"
    write(package.parent / "odd-1.dist-info/entry_points.txt", points)
    plugin(package.parent)
    found = knobs_from_source(package)
    assert [p.name for p in found.platforms] == ["hcu"]
    assert "VLLM_NOT_OURS" not in found.env and "VLLM_USE_NN" in found.env
