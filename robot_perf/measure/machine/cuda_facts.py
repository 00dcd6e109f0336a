"""What the CUDA runtime says about this machine's GPUs, where the facts of the operating system do not suffice."""

from __future__ import annotations

import dataclasses
import importlib.util
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
    if len(facts.gpus) == len(gpus):
        # the order of NVML and CUDA may differ, so SM counts are joined only where every name agrees in place
        if all(a.name == b.name for a, b in zip(facts.gpus, gpus, strict=True)):
            joined = zip(facts.gpus, gpus, strict=True)
            merged = tuple(dataclasses.replace(a, sm_count=b.sm_count, source="NVML and CUDA") for a, b in joined)
            return dataclasses.replace(facts, gpus=merged)
        if len(gpus) == 1:
            return dataclasses.replace(facts, gpus=gpus)
    return facts


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
