"""A runner whose steps and phases are marked for profilers. It reads no clock: the profiler does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from robot_perf.backends.protocol import Arrays, DeviceRunner, Runner, StagedRunner
from robot_perf.errors import BackendUnavailableError

STEP = "policy_step"
Mark = Callable[[str], AbstractContextManager[Any]]


class MarkedRunner:
    """Wraps a runner: each step is a range `policy_step`."""

    def __init__(self, runner: Runner, mark: Mark) -> None:
        self.spec = runner.spec
        self._runner, self._mark = runner, mark

    def step(self, observation: Arrays) -> Arrays:
        """One marked step."""
        with self._mark(STEP):
            return self._runner.step(observation)

    def reset(self) -> None:
        """As the wrapped runner's."""
        self._runner.reset()

    def counters(self) -> Mapping[str, int]:
        """As the wrapped runner's."""
        return self._runner.counters()

    def facts(self) -> Mapping[str, Any]:
        """As the wrapped runner's."""
        return self._runner.facts()

    def close(self) -> None:
        """As the wrapped runner's."""
        self._runner.close()


class MarkedDeviceRunner(MarkedRunner):
    """A step of two phases, `enqueue` and `wait`, inside one range."""

    def __init__(self, runner: Any, mark: Mark) -> None:
        super().__init__(runner, mark)
        self._device: DeviceRunner = runner
        self._open: AbstractContextManager[Any] = nullcontext()

    def enqueue(self, observation: Arrays) -> None:
        """Opens the step's range, which `finish` closes."""
        self._open = self._mark(STEP)
        self._open.__enter__()
        with self._mark("enqueue"):
            self._device.enqueue(observation)

    def finish(self) -> Arrays:
        """Waits, and closes the step's range."""
        try:
            with self._mark("wait"):
                return self._device.finish()
        finally:
            self._open.__exit__(None, None, None)

    def device_ns(self) -> int:
        """As the wrapped runner's."""
        return self._device.device_ns()

    def pending(self) -> bool:
        """As the wrapped runner's."""
        return self._device.pending()


class MarkedStagedRunner(MarkedRunner):
    """A pipeline: each stage is a range of its own name inside the step's."""

    def __init__(self, runner: Any, mark: Mark) -> None:
        super().__init__(runner, mark)
        self._staged: StagedRunner = runner
        self.stage_names = runner.stage_names
        self._open: AbstractContextManager[Any] = nullcontext()

    def run_stage(self, index: int, observation: Arrays) -> None:
        """Runs a stage; the first opens the step's range, the last closes it."""
        if index == 0:
            self._open = self._mark(STEP)
            self._open.__enter__()
        with self._mark(self.stage_names[index]):
            self._staged.run_stage(index, observation)
        if index == len(self.stage_names) - 1:
            self._open.__exit__(None, None, None)

    def outputs(self) -> Arrays:
        """As the wrapped runner's."""
        return self._staged.outputs()


def marked(runner: Runner, mark: Mark) -> Runner:
    """The runner with its steps marked, of the kind it is."""
    if isinstance(runner, StagedRunner):
        return MarkedStagedRunner(runner, mark)
    if isinstance(runner, DeviceRunner):
        return MarkedDeviceRunner(runner, mark)
    return MarkedRunner(runner, mark)


def nvtx_mark() -> Mark:
    """NVTX ranges from torch or from the nvtx package. Raises BackendUnavailableError when neither is there."""
    try:
        import torch

        if torch.version.cuda is not None:
            mark: Mark = torch.cuda.nvtx.range
            return mark
    except ImportError:
        pass
    try:
        import nvtx
    except ImportError:
        raise BackendUnavailableError(
            "NVTX ranges need torch with CUDA or the package nvtx", do="pip install nvtx"
        ) from None
    annotate: Mark = nvtx.annotate
    return annotate


def profiler_control(name: str) -> None:
    """cuProfilerStart or cuProfilerStop of the driver: opens and closes `-c cudaProfilerApi`. Raises BackendUnavailableError."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise BackendUnavailableError(
            "no CUDA driver: nsys and ncu have nothing to record here", detail=str(error)
        ) from None
    code = int(getattr(driver, name)())
    if code not in (0, 7):  # 7: CUDA_ERROR_PROFILER_ALREADY_STARTED in old drivers
        raise BackendUnavailableError(
            f"{name} failed with CUDA error {code}",
            why="The policy created no CUDA context.",
            do="Profile a policy that runs on the GPU.",
        )
