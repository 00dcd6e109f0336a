"""SM counts from CUDA beside NVML's GPUs: the two count them in different orders."""

from __future__ import annotations

import pytest

from robot_perf.devices.host import GpuFacts, HostFacts
from robot_perf.measure.machine import cuda_facts

Found = tuple[tuple[str, int | None, str], ...]


@pytest.mark.parametrize(
    ("nvml", "cuda", "expected"),
    [
        (("A", "B"), (("B", 132), ("A", 58)), (("A", 58, "NVML and CUDA"), ("B", 132, "NVML and CUDA"))),
        (("A", "A"), (("A", 58), ("A", 58)), (("A", 58, "NVML and CUDA"),) * 2),
        # one name for two sizes: which is which is not known
        (("A", "A"), (("A", 16), ("A", 20)), (("A", None, "NVML"),) * 2),
        (("A", "A", "B"), (("A", 16), ("B", 132), ("A", 20)), (("A", None, "NVML"),) * 2 + (("B", 132, "NVML and CUDA"),)),
        (("A", "B"), (("B", 132),), (("A", None, "NVML"), ("B", None, "NVML"))),
        (("A", "B"), (("B", 132), ("C", 58)), (("A", None, "NVML"), ("B", None, "NVML"))),
        (("Orin (nvgpu)",), (("Orin", 16),), (("Orin", 16, "CUDA"),)),
        ((), (("Orin", 16),), (("Orin", 16, "CUDA"),)),
    ],
)  # fmt: skip
def test_an_sm_count_is_of_the_gpu_that_has_it(
    monkeypatch: pytest.MonkeyPatch, nvml: tuple[str, ...], cuda: tuple[tuple[str, int], ...], expected: Found
) -> None:
    monkeypatch.setattr(cuda_facts, "has_cuda_device_file", lambda: True)
    monkeypatch.setattr(cuda_facts, "gather", lambda: HostFacts(gpus=tuple(GpuFacts(name, 2**30) for name in nvml)))
    monkeypatch.setattr(
        cuda_facts, "cuda_gpus", lambda: tuple(GpuFacts(name, 2**30, sms, "CUDA") for name, sms in cuda)
    )
    found = cuda_facts.host_facts().gpus
    assert tuple((gpu.name, gpu.sm_count, gpu.source) for gpu in found) == expected
