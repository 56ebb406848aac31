"""What the assembly of a kernel says of its cost: registers, spills, LDS, instructions, and how many waves fit.

Occupancy is computed here from the registers and the LDS, because the compiler's own "; Occupancy" line is clamped by
waves_per_eu. The rules are LLVM's (AMDGPUBaseInfo.cpp, IsaInfo: getVGPRAllocGranule, getTotalNumVGPRs,
getOccupancyWithNumSGPRs; AMDGPU.td: FeatureMaxWavesPerEU8 and 10):

    waves a SIMD by VGPRs = total // round_up(VGPRs, granule), at most the arch's maximum
    waves a SIMD by SGPRs = 10 up to 80, 9 up to 88, 8 up to 100, else 7       (GFX8 and GFX9)
    waves a SIMD by LDS   = (LDS of a compute unit // LDS of a workgroup) * warps / 4 SIMDs

From gfx90a on, vector and accumulation registers come from one file of 512 and `.vgpr_count` is their sum.
"""

from __future__ import annotations

import re

from contracts import Frozen

SIMDS = 4  # in a compute unit, every GFX9


class Registers(Frozen):
    """An arch's register file and LDS. `lds_bytes` is both a workgroup's limit and a compute unit's total."""

    vgprs: int
    granule: int
    waves: int
    lds_bytes: int


# VGPRs, granule, waves: LLVM as above. LDS: 64 KiB, CDNA 4 ISA guide 160 KiB.
ARCHS = {
    "gfx906": Registers(vgprs=256, granule=4, waves=10, lds_bytes=65536),
    "gfx90a": Registers(vgprs=512, granule=8, waves=8, lds_bytes=65536),
    "gfx942": Registers(vgprs=512, granule=8, waves=8, lds_bytes=65536),
    "gfx950": Registers(vgprs=512, granule=8, waves=8, lds_bytes=163840),
}


class AssemblyError(ValueError):
    """The text has no kernel's metadata. One line."""


class KernelEvidence(Frozen):
    """Of one compiled kernel. Registers are of 32 bits a lane; `vgprs` includes `agprs` from gfx90a on."""

    arch: str
    warps: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int  # a lane
    lds_bytes: int  # a workgroup
    wavefront: int
    code_bytes: int
    mfma: int  # matrix instructions in the text, not how often they run
    dot: int  # v_dot2, v_dot4, v_dot8
    compile_s: float = 0.0

    @property
    def lds_limit(self) -> int:
        return ARCHS[self.arch].lds_bytes

    @property
    def fits(self) -> bool:
        """Whether it can be launched at all. Too much LDS is no error of the compiler."""
        return self.lds_bytes <= self.lds_limit

    @property
    def waves(self) -> int:
        """Waves that one SIMD holds at a time, 0 where the kernel cannot run."""
        return occupancy(self)

    def words(self) -> str:
        parts = [
            f"LDS {self.lds_bytes:,} of {self.lds_limit:,} bytes",
            f"{self.vgprs} VGPRs" + (f" ({self.agprs} of them AGPRs)" if self.agprs else ""),
            f"{self.sgprs} SGPRs",
            f"{self.vgpr_spills} VGPR and {self.sgpr_spills} SGPR spills",
            f"scratch {self.scratch_bytes} bytes a lane",
            f"{self.waves} waves a SIMD",
            f"{self.mfma} MFMA and {self.dot} dot instructions",
            f"{self.code_bytes:,} bytes of code",
        ]
        return ", ".join(parts)


def occupancy(kernel: KernelEvidence) -> int:
    """Waves a SIMD, by the rules above. Raises KeyError for an arch that is not in ARCHS."""
    arch = ARCHS[kernel.arch]
    if kernel.lds_bytes > arch.lds_bytes:
        return 0
    granules = max(1, -(-kernel.vgprs // arch.granule))
    waves = min(arch.waves, arch.vgprs // (granules * arch.granule))
    waves = min(waves, next((w for limit, w in ((80, 10), (88, 9), (100, 8)) if kernel.sgprs <= limit), 7))
    if kernel.lds_bytes:
        waves = min(waves, max(1, arch.lds_bytes // kernel.lds_bytes * kernel.warps // SIMDS))
    return waves


_FIELD = r"^\s*(?:- )?\.{}:\s+(\d+)\s*$"
_MATRIX = re.compile(r"^\s+v_s?mfmac?_", re.MULTILINE)
_DOT = re.compile(r"^\s+v_dot[248]", re.MULTILINE)
_CODE = re.compile(r"^; codeLenInByte = (\d+)", re.MULTILINE)


def parse_assembly(text: str, arch: str, warps: int, lds_bytes: int, compile_s: float = 0.0) -> KernelEvidence:
    """`text` is the amdgcn that Triton keeps of a kernel. `lds_bytes` comes from Triton (metadata.shared): the text
    counts only what is static. Raises AssemblyError where the kernel's metadata is missing."""

    def field(name: str, default: int | None = None) -> int:
        found = re.search(_FIELD.format(name), text, re.MULTILINE)
        if found:
            return int(found.group(1))
        if default is None:
            raise AssemblyError(f"the assembly has no .{name}: not the amdgcn of a kernel, or of a newer format")
        return default

    return KernelEvidence(
        arch=arch,
        warps=warps,
        vgprs=field("vgpr_count"),
        agprs=field("agpr_count", 0),
        sgprs=field("sgpr_count"),
        vgpr_spills=field("vgpr_spill_count"),
        sgpr_spills=field("sgpr_spill_count"),
        scratch_bytes=field("private_segment_fixed_size"),
        lds_bytes=max(lds_bytes, field("group_segment_fixed_size")),
        wavefront=field("wavefront_size"),
        code_bytes=sum(int(n) for n in _CODE.findall(text)),
        mfma=len(_MATRIX.findall(text)),
        dot=len(_DOT.findall(text)),
        compile_s=compile_s,
    )
