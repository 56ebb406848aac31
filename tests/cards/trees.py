"""Small /sys and /proc trees as the Linux kernel writes them (amdkfd's kfd_topology.c, fs/proc, cgroup-v1 and -v2)."""

from __future__ import annotations

from pathlib import Path

# drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show(): every line of a discrete card's properties, in its order.
GPU_PROPERTIES = """\
cpu_cores_count 0
simd_count {simd_count}
mem_banks_count 1
caches_count 0
io_links_count 1
p2p_links_count 0
cpu_core_id_base 0
simd_id_base 2147487744
max_waves_per_simd 10
lds_size_in_kb 64
gds_size_in_kb 0
num_gws 64
wave_front_size 64
array_count 4
simd_arrays_per_engine 1
cu_per_simd_array 16
simd_per_cu 4
max_slots_scratch_cu 32
gfx_target_version {gfx}
vendor_id {vendor}
device_id {device}
location_id {location}
domain {domain}
drm_render_minor {minor}
hive_id 0
num_sdma_engines 2
num_sdma_xgmi_engines 0
num_sdma_queues_per_engine 8
num_cp_queues 24
max_engine_clk_fcompute 1725
local_mem_size 0
fw_version 469
capability 671597184
debug_prop 1495
sdma_fw_version 145
unique_id {unique_id}
num_xcc {num_xcc}
max_engine_clk_ccompute 2600
"""
CPU_PROPERTIES = """\
cpu_cores_count 16
simd_count 0
mem_banks_count 1
simd_per_cu 0
gfx_target_version 0
vendor_id 0
location_id 0
domain 0
drm_render_minor 0
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def cpu_node(root: Path, number: int) -> None:
    node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    write(node / "properties", CPU_PROPERTIES)
    write(node / "mem_banks/0/properties", "heap_type 0\nsize_in_bytes 67320193024\nflags 0\nwidth 64\nmem_clk_max 0\n")


def gpu_node(
    root: Path,
    number: int,
    *,
    gfx: int,
    simd_count: int,
    bank_bytes: int,
    location: int,
    domain: int = 0,
    vendor: int = 0x1002,
    device: int = 0x66A1,
    minor: int = 128,
    vram_bytes: int | None = None,
    used_bytes: int = 0,
    product_name: str | None = None,
    unique_id: int | None = None,
    num_xcc: int = 1,
) -> None:
    """A card's topology node, and its amdgpu folder under the PCI address when `vram_bytes` is given."""
    node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    text = GPU_PROPERTIES.format(
        gfx=gfx, simd_count=simd_count, location=location, domain=domain, vendor=vendor, device=device, minor=minor,
        unique_id=0x1000 + number if unique_id is None else unique_id, num_xcc=num_xcc,
    )  # fmt: skip
    write(node / "properties", text)
    write(
        node / "mem_banks/0/properties",
        f"heap_type 2\nsize_in_bytes {bank_bytes}\nflags 0\nwidth 4096\nmem_clk_max 1000\n",
    )
    if vram_bytes is None:
        return
    address = f"{domain:04x}:{location >> 8 & 255:02x}:{location >> 3 & 31:02x}.{location & 7:x}"
    pci = root / f"sys/devices/pci0000:00/{address}"
    write(pci / "mem_info_vram_total", f"{vram_bytes}\n")
    write(pci / "mem_info_vram_used", f"{used_bytes}\n")
    if product_name is not None:
        write(pci / "product_name", product_name + "\n")
    for name in (f"card{number}", f"renderD{minor}"):
        link = root / f"sys/class/drm/{name}/device"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(pci)


def machine(root: Path, *, allowed: str = "0-7", total_kib: int = 32 << 20, available_kib: int = 24 << 20) -> None:
    """A plain x86 machine: 8 CPUs, 32 GiB."""
    write(
        root / "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: A CPU of the tests\nflags\t\t: fpu avx2 avx512f avx512_bf16\n\n"
        "processor\t: 1\nmodel name\t: A CPU of the tests\nflags\t\t: fpu\n",
    )
    write(root / "proc/self/status", f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\n")
    write(root / "proc/meminfo", f"MemTotal:       {total_kib} kB\nMemFree: 1 kB\nMemAvailable:   {available_kib} kB\n")
