"""The watcher beside another finder of imports, as Hygon's vllm_hcu has one (vllm_hcu/patch/import_coordinator.py,
HYGON-AI/vllm-plugin-das at 13272b6): it asks every finder but itself, and acts behind the loader that it is given. The
other one here is made up in that shape; the processes are real, aiter is the made-up one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.made_up_aiter import write
from tests.kernels.test_evidence_plugin import REGISTER, lines, run

OTHER = """
import importlib.abc, sys
class Behind(importlib.abc.Loader):
    def __init__(self, loader): self.loader = loader
    def create_module(self, spec): return self.loader.create_module(spec)
    def exec_module(self, module):
        self.loader.exec_module(module)
        if not getattr(module, "of_the_other", False):
            module.of_the_other = True
            print("the other saw", module.__name__)
    def __getattr__(self, name): return getattr(self.loader, name)
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "aiter.ops.triton.utils.gemm_config_utils": return None
        for finder in tuple(sys.meta_path):
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                spec.loader = Behind(spec.loader)
                return spec
sys.meta_path.insert(0, Finder())
"""
ASK = """
from aiter.ops.triton.utils.gemm_config_utils import get_gemm_config
get_gemm_config('GEMM-A16W16', 100, N=512)
"""


@pytest.mark.parametrize("code", [OTHER + REGISTER + ASK, REGISTER + OTHER + ASK], ids=["ours first", "theirs first"])
def test_both_see_the_module_once_and_neither_asks_for_ever(tmp_path: Path, code: str) -> None:
    done = run(code, write(tmp_path))
    (row,) = lines(done, "table_row")
    assert row["asked"]["M"] == 100 and not lines(done, "problem")
    assert done.stdout.splitlines() == ["the other saw aiter.ops.triton.utils.gemm_config_utils"]
