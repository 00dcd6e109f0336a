"""An empty kernel on the device that a policy runs on: wakes driver, channel and GPU front end and computes nothing.

Through the driver's own interface (cuda-python), in the primary context that every runtime shares, on a stream of its own. One
for a device in a process, which its end frees: `bench` keeps warm in many blocks of one process.
"""

from __future__ import annotations

from typing import Any

from robot_perf.errors import BackendUnavailableError, install_line

# PTX 6.0 for any GPU since Maxwell: the driver compiles it at load.
_PTX = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nudge()\n{\n ret;\n}\n\0"
_NON_BLOCKING = 1


class Nudge:
    """One loaded empty kernel. Raises BackendUnavailableError with the install line or the driver's error."""

    def __init__(self, device: int = 0) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise BackendUnavailableError(
                "keep-warm tiny-kernel needs cuda-python", why=str(error), do=install_line("gpu")
            ) from None
        self._driver = driver
        _checked(driver.cuInit(0))
        self._context = _checked(driver.cuDevicePrimaryCtxRetain(_checked(driver.cuDeviceGet(device))))
        self.enter()
        self._module = _checked(driver.cuModuleLoadData(_PTX))
        self._kernel = _checked(driver.cuModuleGetFunction(self._module, b"nudge"))
        self._stream = _checked(driver.cuStreamCreate(_NON_BLOCKING))

    def enter(self) -> None:
        """Makes the device's context current in this thread."""
        _checked(self._driver.cuCtxSetCurrent(self._context))

    def tiny_kernel(self) -> None:
        """Queues the empty kernel; returns without waiting."""
        result = self._driver.cuLaunchKernel(self._kernel, 1, 1, 1, 1, 1, 1, 0, self._stream, 0, 0)
        if int(result[0]):
            _checked(result)


_made: dict[int, Nudge] = {}


def nudge_of(device: int) -> Nudge:
    """The process's own for a device, ready in this thread. Raises as `Nudge`."""
    if device not in _made:
        _made[device] = Nudge(device)
    else:
        _made[device].enter()
    return _made[device]


def _checked(result: Any) -> Any:
    code, *values = result
    if int(code):
        raise BackendUnavailableError("keep-warm: the CUDA driver refused a call", why=str(code))
    return values[0] if values else None
