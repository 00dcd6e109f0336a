"""pynvml as far as finding a GPU and reading its clock, energy and use need it: `gpus` in NVML's order, by UUID."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NvmlError(Exception):
    """Stands for pynvml's NVMLError."""


class NotSupported(NvmlError):
    """A GPU or driver without that function."""


class FakeNvml:
    """A handle is the GPU's index. Each GPU reads its own clock (1000 MHz, 2000 MHz, …), energy and use, so that a mix-up shows."""

    NVMLError = NvmlError
    NVMLError_NotSupported = NotSupported
    NVMLError_FunctionNotFound = type("FunctionNotFound", (NvmlError,), {})

    def __init__(self, *gpus: str, mig: tuple[str, ...] = (), in_mig_mode: tuple[int, ...] = ()) -> None:
        self.gpus, self.mig, self.in_mig_mode = gpus, mig, in_mig_mode
        self.refused: tuple[int, ...] = ()
        self.open = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.refused:
            raise NvmlError("Insufficient Permissions")
        if index >= len(self.gpus):
            raise NvmlError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid in self.gpus:
            return self.gpus.index(uuid)
        if uuid in self.mig:
            return 1000
        raise NvmlError("Not Found")

    def nvmlDeviceGetMigMode(self, gpu: int) -> list[int]:
        if gpu not in self.in_mig_mode:
            raise NotSupported("Not Supported")
        return [1, 1]

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return self.gpus[gpu]

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return f"GPU {gpu} of NVML"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetClockInfo(self, gpu: int, kind: int) -> int:
        return 1000 * (gpu + 1) + (kind == 2)

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        return 1000 * (gpu + 1)

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        return SimpleNamespace(gpu=10 * (gpu + 1), memory=0)

    def nvmlGpmQueryDeviceSupport(self, gpu: int) -> Any:
        return SimpleNamespace(isSupportedDevice=False)
