"""A stand-in for vLLM's source tree: the few shapes of code that knobs are read from, as vLLM 0.32.0 writes them."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "_version.py": "__version__ = version = '9.8.7'\n",
    "__init__.py": "raise SystemExit('nothing of the engine may be imported')\n",
    "config/__init__.py": "",
    "config/utils.py": "def config(cls=None, **kw): ...\n",
    "config/kernel.py": """
from typing import Literal
MoEBackend = Literal["auto", "triton"]
@config
class KernelConfig:
    moe_backend: MoEBackend = "auto"
""",
    "config/model.py": """
from typing import Literal, ClassVar
ModelDType = Literal["auto", "half", "float16"]
@config
class ModelConfig:
    dtype: ModelDType | torch.dtype = "auto"
    enforce_eager: bool = False
    max_model_len: int = Field(default=None, ge=-1)
    hf_token: bool | str | None = None
""",
    "config/scheduler.py": """
@config
class SchedulerConfig:
    DEFAULT_MAX_NUM_SEQS: ClassVar[int] = 128
    max_num_seqs: int = Field(default=128, ge=1)
    '''How many sequences run at a time. A limit of 1 is not deprecated.'''
    policy: "SchedulerPolicy" = "fcfs"
SchedulerPolicy = Literal["fcfs", "priority"]
""",
    "config/compilation.py": """
class CompilationMode(enum.IntEnum):
    NONE = 0
@config
class PassConfig:
    fuse_norm_quant: bool = Field(default=None)
    '''Whether to fuse. It was once called by a deprecated name.'''
@config
class CompilationConfig:
    mode: CompilationMode = Field(default=None)
    cudagraph_capture_sizes: list[int] | None = None
    '''Deprecated: sizes are found by
    themselves, and this option will be removed in
    v10.0. Until then it works.'''
    inductor_passes: dict[str, str] = field(default_factory=dict)
    pass_config: PassConfig = field(default_factory=PassConfig)
    static_forward_context: dict[str, Any] = field(default_factory=dict, init=False)
""",
    "engine/__init__.py": "",
    "engine/arg_utils.py": """
_OLD = ("--old-switch is deprecated and has no effect. " "It will be removed in v9.8.0.")
@dataclass
class EngineArgs:
    max_num_seqs: int | None = None
    @staticmethod
    def add_cli_args(parser):
        model_kwargs = get_kwargs(ModelConfig)
        group.add_argument("--dtype", **model_kwargs["dtype"])
        group.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
        group.add_argument("--max-model-len", **model_kwargs["max_model_len"])
        group.add_argument("--hf-token", **model_kwargs["hf_token"])
        scheduler_kwargs = get_kwargs(SchedulerConfig)
        group.add_argument("--max-num-seqs", **{**scheduler_kwargs["max_num_seqs"], "default": None})
        group.add_argument("--scheduling-policy", **scheduler_kwargs["policy"])
        kernel_kwargs = get_kwargs(KernelConfig)
        moe = kernel_kwargs["moe_backend"]
        group.add_argument("--moe-backend", **moe)
        compilation = get_kwargs(VllmConfig)["compilation_config"]
        group.add_argument("--compilation-config", "-cc", **compilation)
        group.add_argument("--old-switch", action="store_true", help=_OLD)
        parser.add_argument(some_variable, help="not a literal")
""",
    "config/vllm.py": """
@config
class VllmConfig:
    compilation_config: CompilationConfig = Field(default_factory=CompilationConfig)
""",
    "config/broken.py": "def half(:\n",
    "entrypoints/openai/cli_args.py": """
@config
class FrontendArgs:
    port: int = 8000
    allowed_headers: list[str] = field(default_factory=lambda: ["*"])
""",
    "envs.py": """
if TYPE_CHECKING:
    VLLM_CPU_KVCACHE_SPACE: int | None = 0
    VLLM_ROCM_USE_AITER: bool = False
    VLLM_CACHE_MB: int = 0
    VLLM_DERIVED: str = "declared"
environment_variables: dict[str, Callable[[], Any]] = {
    "VLLM_CPU_KVCACHE_SPACE": lambda: int(os.getenv("VLLM_CPU_KVCACHE_SPACE", "0")),
    "VLLM_ROCM_USE_AITER": lambda: os.getenv("VLLM_ROCM_USE_AITER", "0") == "1",
    "VLLM_CACHE_MB": lambda: int(os.environ.get("VLLM_CACHE_MB", "512")),
    # Deprecated: use VLLM_UNTYPED. It will be removed in v9.9.
    "VLLM_DERIVED": lambda: os.getenv("VLLM_DERIVED", root() + "/x"),
    "VLLM_CHOICE": lambda: {"1": True}.get(os.getenv("VLLM_CHOICE", "")),
    "VLLM_NAMED": lambda: os.getenv("VLLM_NAMED", "").lower() or "13.0",
    "VLLM_UNTYPED": lambda: os.getenv("VLLM_UNTYPED", "x"),
}
""",
}


def plant(site: Path) -> Path:
    """Writes the tree under `site` and returns its vllm folder."""
    for name, text in FILES.items():
        path = site / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return site / "vllm"
