"""What this machine says about itself: device tree, memory, NVML, nvpmodel, clocks. Reads only; changes nothing."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from robot_perf.errors import install_line

_GPU_CLOCKS = ("17000000.gpu", "17000000.ga10b", "gpu-gpc-0")
_EMC_CLOCKS = ("sys/kernel/debug/bpmp/debug/clk/emc/rate", "sys/kernel/debug/clk/emc/clk_rate")


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU as a runtime reports it. None is not reported (NVML knows no memory on Orin, Thor and GB10)."""

    name: str
    memory_bytes: int | None = None
    sm_count: int | None = None
    source: str = "NVML"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Raw evidence for `detect`. None is unreadable or absent, never zero."""

    device_tree_model: str | None = None
    compatible: tuple[str, ...] = ()
    memory_bytes: int | None = None
    gpus: tuple[GpuFacts, ...] = ()
    nvpmodel_query: str | None = None
    nvpmodel_conf: str | None = None
    emc_hz: int | None = None
    gpu_hz: int | None = None
    cpu_name: str | None = None
    problems: tuple[str, ...] = field(default_factory=tuple)


def gather(root: Path = Path("/"), *, gpus: tuple[GpuFacts, ...] | None = None) -> HostFacts:
    """The facts of the machine whose file system is under `root`; `gpus` replaces what NVML would say."""
    found, problems = (gpus, ()) if gpus is not None else read_nvml()
    clocks = [root / "sys/class/devfreq" / name / "cur_freq" for name in _GPU_CLOCKS]
    return HostFacts(
        device_tree_model=_text(root / "proc/device-tree/model"),
        compatible=tuple((_text(root / "proc/device-tree/compatible") or "").split("\0")),
        memory_bytes=_meminfo(_text(root / "proc/meminfo")),
        gpus=found,
        nvpmodel_query=_query_nvpmodel() if root == Path("/") else None,
        nvpmodel_conf=_text(root / "etc/nvpmodel.conf"),
        emc_hz=_first_number(root / p for p in _EMC_CLOCKS),
        gpu_hz=_first_number(clocks),
        cpu_name=_cpu_name(_text(root / "proc/cpuinfo")),
        problems=problems,
    )


def read_nvml() -> tuple[tuple[GpuFacts, ...], tuple[str, ...]]:
    """The GPUs that NVML lists, and what kept it from listing them."""
    try:
        import pynvml
    except ImportError:
        return (), (f"nvidia-ml-py is not installed: {install_line('gpu')}",)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), (f"NVML: {error}",)
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return tuple(_nvml_gpu(pynvml, handle) for handle in handles), ()
    except pynvml.NVMLError as error:
        return (), (f"NVML: {error}",)
    finally:
        pynvml.nvmlShutdown()


def _nvml_gpu(nvml: object, handle: object) -> GpuFacts:
    import pynvml

    name = pynvml.nvmlDeviceGetName(handle)
    try:
        memory: int | None = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:  # "not supported" on integrated GPUs: unknown
        memory = None
    return GpuFacts(name.decode() if isinstance(name, bytes) else str(name), memory)


def _query_nvpmodel() -> str | None:
    program = shutil.which("nvpmodel")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-q"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace").strip("\0\n ")
    except OSError:
        return None


def _meminfo(text: str | None) -> int | None:
    for line in (text or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _cpu_name(text: str | None) -> str | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return None


def _first_number(paths: object) -> int | None:
    for path in paths:  # type: ignore[attr-defined]
        text = _text(path)
        if text and text.isdigit():
            return int(text)
    return None
