"""Energy, power, clocks, temperature and throttle reasons of a GPU, read from outside the measured process through NVML.

Read at one second or slower, and once before and after a window: a query takes a lock of the driver. A Jetson's GPU has no such
counters; its power rails are in `robot_perf.measure.watch.rails`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from robot_perf.errors import install_line
from robot_perf.measure.watch.rails import Rails
from robot_perf.measure.watch.sample import DeviceSample
from robot_perf.measure.watch.which_gpu import UnknownGpuError, find_gpu

# nvml.h, nvmlClocksEventReason*; 1 (idle) and 2 (a clock that somebody set) say nothing about throttling
REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
HARMLESS = ("idle", "application clocks")


class Meter(Protocol):
    """Something that knows a device's energy and state."""

    source: str

    def sample(self) -> DeviceSample:
        """The state now."""
        ...

    def energy_j(self) -> float | None:
        """A counter of energy used, J; None where the device has none (power samples are integrated then)."""
        ...

    def identity(self) -> dict[str, Any]:
        """Name, UUID, driver, limits: what a reader must know to compare. None = not readable."""
        ...

    def close(self) -> None:
        """Lets go of the library."""
        ...


class Nvml:
    """NVML's view of `cuda:N`, which is another GPU to a process with another environment. `gpu` is NVML's handle."""

    source = "NVML"

    def __init__(self, device: str, nvml: Any, environment: Mapping[str, str] | None = None) -> None:
        """`nvml` is the module pynvml. Raises NVMLError, and UnknownGpuError where NVML's GPU is not known for certain."""
        self._nvml = nvml
        nvml.nvmlInit()
        try:
            self.gpu = find_gpu(device, nvml, os.environ if environment is None else environment)
        except BaseException:
            nvml.nvmlShutdown()
            raise

    def _read(self, name: str, *arguments: Any) -> Any:
        """The value, or None where this GPU or driver doesn't offer it."""
        function: Callable[..., Any] | None = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            return function(self.gpu, *arguments)
        except self._nvml.NVMLError:
            return None

    def sample(self) -> DeviceSample:
        """Clocks, temperature, power and throttle reasons now."""
        sm, memory = (self._read("nvmlDeviceGetClockInfo", kind) for kind in (1, 2))  # NVML_CLOCK_SM, NVML_CLOCK_MEM
        power = self._read("nvmlDeviceGetPowerUsage")
        bits = self._read("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons")
        temperature = self._read("nvmlDeviceGetTemperature", 0)
        return DeviceSample(
            at_ns=time.monotonic_ns(),
            sm_hz=None if sm is None else int(sm) * 1_000_000,
            memory_hz=None if memory is None else int(memory) * 1_000_000,
            temperature_c=None if temperature is None else float(temperature),
            power_w=None if power is None else power / 1000,
            throttle=tuple(words for bit, words in REASONS.items() if bits is not None and int(bits) & bit),
            throttle_read=bits is not None,
        )

    def energy_j(self) -> float | None:
        """The total-energy counter since the driver was loaded (Volta and later)."""
        millijoules = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def identity(self) -> dict[str, Any]:
        """Name, UUID, driver, power limit, highest clocks, persistence."""

        def text(value: Any) -> str | None:
            return value.decode() if isinstance(value, bytes) else None if value is None else str(value)

        limit = self._read("nvmlDeviceGetPowerManagementLimit")
        highest = self._read("nvmlDeviceGetMaxClockInfo", 1)
        application = self._read("nvmlDeviceGetApplicationsClock", 1)
        persistence = self._read("nvmlDeviceGetPersistenceMode")
        capability = self._read("nvmlDeviceGetCudaComputeCapability")
        return {
            "name": text(self._read("nvmlDeviceGetName")),
            "uuid": text(self._read("nvmlDeviceGetUUID")),
            "driver": text(self._nvml.nvmlSystemGetDriverVersion()),
            "compute_capability": None if capability is None else ".".join(map(str, capability)),
            "power_limit_w": None if limit is None else limit / 1000,
            "highest_sm_hz": None if highest is None else int(highest) * 1_000_000,
            "application_sm_hz": None if application is None else int(application) * 1_000_000,
            "persistence": None if persistence is None else bool(persistence),
        }

    def close(self) -> None:
        """Ends NVML's session."""
        self._nvml.nvmlShutdown()


def open_meter(device: str, environment: Mapping[str, str] | None = None) -> tuple[Meter | None, str]:
    """A meter for `cpu` or `cuda:N`, or None and why there is none. A Jetson's rails are taken before NVML.

    `environment` is that of the process whose `cuda:N` is meant (default: this one's): CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER
    choose the GPU, and another one's watts are no answer.
    """
    rails = Rails.find()
    if rails is not None:
        return rails, ""
    if not device.startswith("cuda"):
        return None, "no power rails to read, and the policy runs on the CPU"
    try:
        import pynvml
    except ImportError:
        return None, f"nvidia-ml-py is not installed: {install_line('gpu')}"
    try:
        return Nvml(device, pynvml, environment), ""
    except (pynvml.NVMLError, UnknownGpuError) as error:
        return None, f"NVML: {error}"
