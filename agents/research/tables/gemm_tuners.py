"""The command that tunes one GEMM shape, and where its winner goes. Names as in ROCm/aiter e4048607."""

from __future__ import annotations

from pathlib import Path

from agents.research.tables.dense_route import Route
from agents.research.tables.gemm_json import GemmTables, new_bucket, new_file
from agents.research.tables.table_file import files_in, function_text, read_source

# Family -> script of aiter/ops/triton/utils/_triton/tunning/, and what its README says about the tile of this family.
SCREENS = {
    "GEMM-A16W16": ("ut_a16w16_gemm.py", ""),
    "GEMM-A8W8_BLOCKSCALE": ("ut_a8w8_gemm_blockscale.py", " --block-size-k-range 128"),
    "GEMM-AFP4WFP4": ("ut_afp4wfp4_gemm.py", " --block-size-k-range 256 512 1024"),
    "GEMM-AFP4WFP4_PRESHUFFLED": ("ut_afp4wfp4_gemm_preshuffle.py", " --block-size-k-range 256 512 1024"),
}
# Family of CSV -> its tuner, from the root of a checkout.
CSV_TUNERS = {
    "a4w4_blockscale_tuned_gemm": "csrc/ck_gemm_a4w4_blockscale/gemm_a4w4_blockscale_tune.py",
    "a8w8_blockscale_tuned_gemm": "csrc/ck_gemm_a8w8_blockscale/gemm_a8w8_blockscale_tune.py",
    "a8w8_bpreshuffle_tuned_gemm": "csrc/ck_gemm_a8w8_bpreshuffle/gemm_a8w8_bpreshuffle_tune.py",
    "a8w8_tuned_gemm": "csrc/ck_gemm_a8w8/gemm_a8w8_tune.py",
    "bf16_tuned_gemm": "gradlib/gradlib/gemm_tuner.py",
}
# What an untuned row holds after M,N,K, where the family wants more.
CSV_MORE = {
    "a8w8_bpreshuffle_tuned_gemm": (",q_dtype_w", ",torch.float8_e4m3fn"),
    "a8w8_tuned_gemm": (",q_dtype_w", ",torch.float8_e4m3fn"),
    "bf16_tuned_gemm": (
        ",bias,dtype,outdtype,scaleAB,bpreshuffle",
        ",False,torch.bfloat16,torch.bfloat16,False,False",
    ),
}


def how_to_tune(one: Route, tables: GemmTables, aiter: Path, env: str) -> str:
    """Commands for a person at the card. `env`: the variable that names a CSV family's files."""
    if one.table.startswith("GEMM-"):
        return _triton(one, tables, aiter)
    more, cells = CSV_MORE.get(one.table, ("", ""))
    tuner = CSV_TUNERS.get(one.table, "the family's tuner in csrc/")
    return (
        f"printf 'M,N,K{more}\\n{one.m},{one.gemm.n},{one.gemm.k}{cells}\\n' > untuned.csv\n"
        f"python3 {tuner} -i untuned.csv -o {one.table}_more.csv   # from the root of an AITER checkout\n"
        f"then start the engine with {env or 'the variable of this family'}="
        f"<aiter>/configs/{one.table}.csv:<folder>/{one.table}_more.csv\n"
        "The variable replaces the merge list, model_configs included: name every file that is to count. "
        "A shape in two of the files makes AITER rewrite them and fail."
    )


def _triton(one: Route, tables: GemmTables, aiter: Path) -> str:
    n, k, m = one.gemm.n, one.gemm.k, one.m
    bucket, target = new_bucket(tables, one.table, m), new_file(tables, one.table, n, k)
    base = aiter / "ops/triton/utils/_triton"
    script, more = SCREENS.get(one.table, ("ut_<family>.py", ""))
    if files_in(base / "tuning", "tune_gemm.py"):
        kernel = script.removeprefix("ut_").removesuffix(".py")
        command = f"python3 aiter/ops/triton/utils/_triton/tuning/tune_gemm.py {kernel} M={m} N={n} K={k}"
    else:
        held = "" if files_in(base / "tunning", "screen.py") else "   # in a checkout: this tree has no tuner"
        command = (
            f"cd aiter/ops/triton/utils/_triton/tunning{held}\n"
            f"python3 screen.py {m} {n} {k} 0 {script}{more}\n"
            f"python3 view-screen.py {script} --n-list {n} --k-list {k}"
        )
    new = "the winner's entry goes under" if one.found and one.found.specialised else "a new file with"
    return (
        f"{command}\n{new} {bucket} of {target}; then restart the engine (AITER remembers missing files).\n"
        "A new file answers for every m of this shape: give it the default's other entries as well, "
        f"and one that answers at m = 128 (vLLM asks there whether the shape is tuned)."
    )


def switches_kernel(vllm: Path) -> str | None:
    """Where vLLM decides Triton or not by a specialised file, or None in a version that has a list of shapes."""
    held = function_text(read_source(vllm / "_aiter_ops.py"), "_triton_gemm_config_is_tuned")
    return f"vllm/_aiter_ops.py:{held[0]}" if held else None
