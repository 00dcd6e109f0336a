"""How much of a GPU was in use, as the driver tells it: NVML's utilisation and, from Hopper on, the GPM counters behind it.

None of these numbers is evidence of why something is slow (docs/utilisation.md); each is kept with its source and period.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from robot_perf.errors import install_line
from robot_perf.measure.watch.nvml import Nvml
from robot_perf.measure.watch.which_gpu import UnknownGpuError

# field -> nvml.h, nvmlGpmMetricId_t; percentages 0 to 100 of the time between two samples, rates in MiB/s
GPM = {
    "graphics_engine_pct": 1,
    "sm_activity_pct": 2,
    "sm_occupancy_pct": 3,
    "tensor_activity_pct": 5,
    "dram_bandwidth_pct": 10,
    "fp32_activity_pct": 12,
    "fp16_activity_pct": 13,
    "pcie_tx_mib_s": 20,
    "pcie_rx_mib_s": 21,
    "nvlink_rx_mib_s": 60,
    "nvlink_tx_mib_s": 61,
}
GPM_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
UTILISATION_SAMPLES = 1  # nvml.h, NVML_GPU_UTILIZATION_SAMPLES
# Where a Jetson's kernel shows the load of its GPU in thousandths; never run on a Jetson.
JETSON_LOAD = ("17000000.gpu", "17000000.ga10b", "gpu-gpc-0")


class Reader(Protocol):
    """Something that knows how much a GPU is in use."""

    source: str
    reasons: dict[str, str]

    def sample(self) -> dict[str, Any]:
        """What is known now; a field that can't be read is absent and named in `reasons`."""
        ...

    def identity(self) -> dict[str, Any]:
        """Name and driver."""
        ...

    def close(self) -> None:
        """Lets go of the library."""
        ...


class GpuUse:
    """NVML's view of one GPU. `reasons` says of every field that this GPU can't answer why."""

    source = "NVML"

    def __init__(self, device: str, nvml: Any, environment: Mapping[str, str] | None = None) -> None:
        """As `Nvml`."""
        self.reasons: dict[str, str] = {}
        self._nvml = nvml
        self._meter = Nvml(device, nvml, environment)
        self._gpu = self._meter.gpu
        self._seen_us = 0
        self._gpm: Gpm | None = None
        try:
            self._gpm = Gpm(self._gpu, nvml)
        except (nvml.NVMLError, AttributeError) as error:
            self.reasons |= dict.fromkeys(GPM, f"GPM counters: {_words(error)}")

    def sample(self) -> dict[str, Any]:
        """Utilisation in %, the driver's own recent samples, GPM, processes, clock, power. `took_ns` is what asking cost."""
        began = time.monotonic_ns()
        found: dict[str, Any] = {"at_ns": began}
        rates = self._ask("utilisation_pct", "nvmlDeviceGetUtilizationRates")
        if rates is not None:
            found |= {"utilisation_pct": float(rates.gpu), "memory_controller_pct": float(rates.memory)}
        recent = self._ask("driver_samples", "nvmlDeviceGetSamples", UTILISATION_SAMPLES, self._seen_us)
        if recent is not None:
            values = [(int(s.timeStamp), int(s.sampleValue.uiVal)) for s in recent[1] if int(s.timeStamp) > 0]
            found["driver_samples"] = [v for v in values if v[0] > self._seen_us]
            self._seen_us = max([self._seen_us, *(v[0] for v in values)])
        if self._gpm is not None:
            self._add_gpm(found)
        processes = self._ask("processes", "nvmlDeviceGetComputeRunningProcesses")
        if processes is not None:
            found["processes"] = sorted(int(p.pid) for p in processes)
        state = self._meter.sample()
        found |= {"sm_hz": state.sm_hz, "power_w": state.power_w, "throttle": list(state.throttle)}
        found["took_ns"] = time.monotonic_ns() - began
        return found

    def _add_gpm(self, found: dict[str, Any]) -> None:
        assert self._gpm is not None
        try:
            found |= self._gpm.read(self.reasons)
        except (self._nvml.NVMLError, AttributeError) as error:
            self.reasons |= dict.fromkeys(GPM, f"GPM counters: {_words(error)}")
            self._gpm.close()
            self._gpm = None

    def _ask(self, field: str, name: str, *arguments: Any) -> Any:
        function = getattr(self._nvml, name, None)
        if function is None:
            self.reasons[field] = f"this nvidia-ml-py has no {name}"
            return None
        try:
            return function(self._gpu, *arguments)
        except self._nvml.NVMLError as error:
            self.reasons[field] = f"{name}: {_words(error)}"
            return None

    def identity(self) -> dict[str, Any]:
        """As the meter's."""
        return self._meter.identity()

    def close(self) -> None:
        """Frees the counters' buffers and ends NVML's session."""
        if self._gpm is not None:
            self._gpm.close()
        self._meter.close()


class Gpm:
    """GPM counters of the time between two reads. Raises NVMLError or AttributeError where there are none."""

    def __init__(self, gpu: Any, nvml: Any) -> None:
        self._gpu, self._nvml = gpu, nvml
        if not nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
            raise AttributeError("this GPU has none (NVIDIA offers them from Hopper on)")
        self._old, self._new = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(gpu, self._old)
        self._old_ns = time.monotonic_ns()

    def read(self, reasons: dict[str, str]) -> dict[str, Any]:
        """Every metric since the last read, and `gpm_ns`, the time that it covers."""
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._gpu, self._new)
        now = time.monotonic_ns()
        query = nvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = GPM_VERSION, len(GPM)
        query.sample1, query.sample2 = self._old, self._new
        for i, number in enumerate(GPM.values()):
            query.metrics[i].metricId = number
        nvml.nvmlGpmMetricsGet(query)
        found: dict[str, Any] = {"gpm_ns": now - self._old_ns}
        for i, field in enumerate(GPM):
            metric = query.metrics[i]
            if metric.nvmlReturn != 0:
                reasons[field] = f"GPM counters: NVML error {int(metric.nvmlReturn)}"
            elif math.isfinite(metric.value):  # NaN or infinite where the time between was too short
                found[field] = float(metric.value)
        self._old, self._new, self._old_ns = self._new, self._old, now
        return found

    def close(self) -> None:
        """Frees both samples."""
        for sample in (self._old, self._new):
            self._nvml.nvmlGpmSampleFree(sample)


class JetsonLoad:
    """The GPU's load as a Jetson's kernel shows it (tegrastats' GR3D). Never run on a Jetson."""

    source = "GPU load of the kernel (sysfs)"

    def __init__(self, file: Path) -> None:
        self._file = file
        self.reasons = dict.fromkeys(GPM, "a Jetson's GPU has no GPM counters")
        self.reasons["processes"] = "a Jetson's GPU keeps no list of processes"

    @classmethod
    def find(cls, root: Path = Path("/")) -> JetsonLoad | None:
        """None on any other machine."""
        for name in JETSON_LOAD:
            if (file := root / "sys/class/devfreq" / name / "device/load").exists():
                return cls(file)
        return None

    def sample(self) -> dict[str, Any]:
        """The load in %."""
        began = time.monotonic_ns()
        found: dict[str, Any] = {"at_ns": began}
        try:
            found["utilisation_pct"] = float(self._file.read_text(encoding="ascii")) / 10
        except (OSError, ValueError) as error:
            self.reasons["utilisation_pct"] = f"{self._file.name}: {_words(error)}"
        found["took_ns"] = time.monotonic_ns() - began
        return found

    def identity(self) -> dict[str, Any]:
        """Nothing beyond the source."""
        return {"name": None}

    def close(self) -> None:
        """Nothing is held."""


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def open_reader(
    device: str, *, root: Path = Path("/"), environment: Mapping[str, str] | None = None
) -> tuple[Reader | None, str]:
    """A reader for `cuda:N`, or None and why there is none. `environment` as for `open_meter`."""
    jetson = JetsonLoad.find(root)
    if jetson is not None:
        return jetson, ""
    if not device.startswith("cuda"):
        return None, "the policy runs on the CPU"
    try:
        import pynvml
    except ImportError:
        return None, f"NVML is not there: nvidia-ml-py is not installed ({install_line('gpu')})"
    try:
        return GpuUse(device, pynvml, environment), ""
    except (pynvml.NVMLError, UnknownGpuError) as error:
        return None, f"NVML: {_words(error)}"
