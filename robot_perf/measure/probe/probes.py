"""What this machine's memory and matrix units reach: named probes, warm, past the cache, on random data, interleaved."""

from __future__ import annotations

from robot_perf.errors import UsageError
from robot_perf.measure.probe import cpu, gpu
from robot_perf.specs.device import ProbeReport


def probe(device: str, *, seconds: float = 10.0) -> ProbeReport:
    """Probes `cpu` or `cuda:N` for about `seconds`. Raises UsageError for another device, BackendUnavailableError
    without torch.
    """
    if not 0 < seconds <= 600:
        raise UsageError(f"--seconds {seconds:g} is out of range", why="Above 0, at most 600.")
    if device == "cpu":
        return cpu.probe(seconds)
    if device.startswith("cuda"):
        return gpu.probe(device, seconds)
    raise UsageError(f"--device {device!r} is unknown", why="Allowed: cpu, cuda, cuda:N.")
