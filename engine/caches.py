"""Where an engine's compilers keep what they made. Pure.

A warm start must not carry code from one arm into the other, and the installed trees must be the same after a night.

- **The spec's own folder**: vLLM's graphs and their Inductor and Triton kernels. Seconds to a minute to make again, and
  keyed by less than an arm can change. Each spec pays its own warm-up.
- **A folder by build**: C++ that takes minutes to an hour. Specs share one when they agree in everything that reaches
  such a compiler: build_key().
- **By build, but only for a patched spec or a container**: FlashInfer's and torch's extensions. Their files are named
  by version, arch and sources, so the user's own folder is warm (minutes saved at a night's first start) and holds
  nothing of an arm, unless the arm patches those sources: then it must leave nothing there.
- Not moved: the drivers' caches (CUDA's, comgr's). Their files are named by the hash of all that went in.

AITER (read in ROCm/aiter e4048607, aiter/jit/core.py and csrc/cpp_itfs/utils.py; never run on a card by us) needs this
most. Its modules are files called by their name alone, module_gemm_a8w8.so, whatever source they were made from; they
are written into the installed package where that is writable, so a patched arm would leave its code to the other one.
AITER_JIT_DIR moves them, but then modules that came with the installation are not found and are built anew, an hour of
C++ for all of them: engine/aiter_modules.py copies those into each folder first.

AITER_ASM_DIR is not here: AITER sets it itself, over anything inherited, and only reads there. /tmp/aiter_configs,
where it writes merged tables, cannot be moved by a variable; a container has a /tmp of its own.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from contracts import EngineSpec, Lever, content_hash

AITER_MODULES = "aiter_jit"  # inside the build's folder

# variable -> folder inside the spec's own
OF_SPEC = {
    "VLLM_CACHE_ROOT": "vllm",  # DeepGEMM's follow it
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
}
# variable -> folder inside the build's
OF_BUILD = {
    "AITER_JIT_DIR": AITER_MODULES,
    "AITER_ROOT_DIR": "aiter",  # of its templates under csrc/cpp_itfs
    "FLYDSL_RUNTIME_CACHE_DIR": f"{AITER_MODULES}/flydsl_cache",  # else the installed aiter/jit/flydsl_cache
    "MIOPEN_USER_DB_PATH": "miopen",  # what it found fastest, too: not the other arm's findings
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen",
}
OF_PATCHED = {"FLASHINFER_WORKSPACE_BASE": "flashinfer", "TORCH_EXTENSIONS_DIR": "torch_extensions"}
# Patched and tuned rows are in the key: AITER's GEMM modules are generated from the rows of its tuned CSVs
# (optCompilerConfig.json, gen_instances.py --tune_file).
BUILT_FROM = (Lever.SOURCE_PATCH, Lever.AITER_CSV)


def build_key(spec: EngineSpec) -> str:
    """The same for two specs whose C++ comes out the same. vLLM's own variables reach no such compiler."""
    env: JsonValue = {name: value for name, value in spec.env.items() if not name.startswith("VLLM_")}
    laid: JsonValue = {lever.value: spec.overlay[lever] for lever in BUILT_FROM if spec.overlay.get(lever)}
    container = spec.container.model_dump(mode="json") if spec.container else None
    return content_hash([spec.python, container, list(spec.plugin_paths), env, laid])


def build_folder(spec: EngineSpec, cache_dir: Path) -> Path:
    """Beside the spec's own folder: night/artifacts/compile_cache/build-<key>."""
    return cache_dir.parent / f"build-{build_key(spec)}"


def cache_environment(spec: EngineSpec, cache_dir: Path) -> dict[str, str]:
    """`cache_dir` is the spec's own folder and no other's."""
    build = build_folder(spec, cache_dir)
    patched = spec.container is not None or bool(spec.overlay.get(Lever.SOURCE_PATCH))
    by_build = OF_BUILD | (OF_PATCHED if patched else {})
    return {name: str(cache_dir / folder) for name, folder in OF_SPEC.items()} | {
        name: str(build / folder) for name, folder in by_build.items()
    }
