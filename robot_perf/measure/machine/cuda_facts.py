"""What the CUDA runtime says about this machine's GPUs, where the facts of the operating system do not suffice."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from robot_perf.devices.host import GpuFacts, HostFacts, gather

# one of these exists wherever a CUDA driver could answer: without them torch need not be imported to hear "no"
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/nvmap")


def has_cuda_device_file() -> bool:
    """Whether the operating system shows a device that a CUDA driver could answer for."""
    return any(Path(p).exists() for p in _DEVICE_FILES)


def host_facts() -> HostFacts:
    """The host's facts, with names, memory and SM counts from CUDA where NVML or the device tree leave them open."""
    facts = gather()
    if not has_cuda_device_file():
        return facts
    gpus = cuda_gpus()
    if not gpus:
        return facts
    if not facts.gpus:
        return dataclasses.replace(facts, gpus=gpus)
    if sorted(g.name for g in facts.gpus) == sorted(g.name for g in gpus):
        return dataclasses.replace(facts, gpus=tuple(_with_sm_count(gpu, gpus) for gpu in facts.gpus))
    if len(facts.gpus) == len(gpus) == 1:
        return dataclasses.replace(facts, gpus=gpus)
    return facts


def _with_sm_count(gpu: GpuFacts, gpus: Sequence[GpuFacts]) -> GpuFacts:
    """NVML's GPU with the SM count that all CUDA's of its name have: the two count GPUs in different orders."""
    counts = {g.sm_count for g in gpus if g.name == gpu.name}
    return dataclasses.replace(gpu, sm_count=counts.pop(), source="NVML and CUDA") if len(counts) == 1 else gpu


def cuda_gpus() -> tuple[GpuFacts, ...]:
    """The GPUs that torch's CUDA runtime sees; empty without torch or without a GPU."""
    if importlib.util.find_spec("torch") is None:
        return ()
    import torch

    if not torch.cuda.is_available():
        return ()
    found = []
    for index in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(index)
        found.append(GpuFacts(p.name, int(p.total_memory), int(p.multi_processor_count), "CUDA"))
    return tuple(found)
