"""What a kernel does, by its name: the only thing that every profiler tells. First match counts, so the order is part
of the table. Names are those that libraries gave their kernels (rocBLAS and hipBLASLt "Cijk_", Composable Kernel,
AITER, vLLM, PyTorch, Triton, NCCL and RCCL); a kernel that none of them fits is "other", never guessed.

Known to be coarse: a softmax by itself is counted as sampling (attention has its own fused kernels); a kernel that
Inductor fused out of several operations is "norm" where a norm is among them, "moe" where its name says so, else
"other"; rotary embedding and activation are "other"; linear attention and state-space scans are "other".
"""

from __future__ import annotations

import re

KERNEL_CATEGORIES = ("attention", "gemm", "moe", "norm", "sampling", "communication", "memory", "other")

# (^|[^a-z])x([^a-z]|$): x as a word of its own, so that "mla" is not found within another word.
_TABLE: tuple[tuple[str, str], ...] = (
    ("communication", r"nccl|rccl|all_?reduce|reduce_?scatter_?kernel|all_?gather|all_?to_?all|cross_device_reduce"),
    ("communication", r"quick_?reduce|nvshmem|deep_?ep|multimem|\bmori"),
    ("inductor", r"^triton_(poi|red|per|for)_"),
    ("moe", r"moe|expert|matmul_ogs|matmul_scatter|bitmatrix|routing|grouped_topk|_topk_(forward|backward)"),
    ("attention", r"attention|attn|flash_?fwd|flash_?bwd|fmha|flash_?infer|(^|[^a-z])(mha|mla|sdpa)([^a-z]|$)"),
    ("attention", r"reshape_and_cache|concat_and_cache|paged_?kv|reduce_segments|merge_state|splitkv"),
    ("attention", r"(batch|single)(prefill|decode)|^_?fwd_(kernel|grouped)|^_pa_|paged_attn"),
    ("sampling", r"sampl|top_?k_?top_?p|argmax|multinomial|gumbel|exponential|penalt|rejection|logits|log_?softmax"),
    ("sampling", r"softmax|radix|mbtopk|gathertopk|topk|bitonic|sort"),
    ("norm", r"rms_?norm|layer_?norm|group_?norm|add_?norm|rmsn"),
    ("gemm", r"^cijk_|gemm|gemv|matmul|wvsplitk|llmm1|cutlass|nvjet|xmma|splitk|skinny|xdlops|marlin|machete"),
    ("gemm", r"exllama|scaled_mm|triton_tem_|(^|[^a-z])(addmm|bmm|mm)([^a-z]|$)|(^|[^a-z])dot_kernel"),
    ("memory", r"copy|memset|fill|catarray|gather|index_?select|index_elementwise|transpose|(?<!rotary_)embedding"),
)
_PATTERNS = tuple((category, re.compile(pattern)) for category, pattern in _TABLE)
_INDUCTOR = (
    ("moe", re.compile(r"moe|expert")),
    ("norm", re.compile(r"rms_?norm|layer_?norm|(mean|pow).*rsqrt")),
    ("sampling", re.compile(r"softmax|argmax|sort|topk")),
)


def category(name: str) -> str:
    """One of KERNEL_CATEGORIES."""
    low = name.lower()
    found = next((c for c, pattern in _PATTERNS if pattern.search(low)), "other")
    if found == "inductor":
        return next((c for c, pattern in _INDUCTOR if pattern.search(low)), "other")
    return found
