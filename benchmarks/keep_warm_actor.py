"""The captured MLP actor of `keep_warm.py`, and the power of its device: hand-written, no robot-perf in it."""

from __future__ import annotations

import itertools

import numpy as np


class Actor:
    """One captured graph: pinned observation -> device -> MLP -> pinned action."""

    def __init__(self, device: int) -> None:
        import torch

        self.torch = torch
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.manual_seed(0)
        sizes = (48, 512, 256, 128, 12)
        layers: list = []
        for a, b in itertools.pairwise(sizes):
            layers += [torch.nn.Linear(a, b), torch.nn.ELU()]
        self.net = torch.nn.Sequential(*layers[:-1]).cuda().eval()
        self.host_in = torch.zeros(1, 48).pin_memory()
        self.host_out = torch.zeros(1, 12).pin_memory()
        self.view_in, self.view_out = self.host_in.numpy(), self.host_out.numpy()
        self.dev_in = torch.zeros(1, 48, device="cuda")
        self.stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(self.stream):
            for _ in range(3):
                self._body()
            self.stream.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                self._body()
        self.small = torch.zeros(1, device="cuda")
        self.tiny = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream), torch.cuda.graph(self.tiny, stream=self.stream):
            self.small.add_(1)
        self.flush = torch.zeros(256 * 2**20, dtype=torch.uint8, device="cuda")
        self.host_junk = np.zeros(96 * 2**20, np.uint8)
        self.blocking = torch.cuda.Event(blocking=True)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.observations = np.random.default_rng(0).uniform(-1, 1, (256, 1, 48)).astype(np.float32)
        self.stream.synchronize()

    def _body(self) -> None:
        self.dev_in.copy_(self.host_in, non_blocking=True)
        self.host_out.copy_(self.net(self.dev_in), non_blocking=True)

    def launch(self, k: int) -> None:
        """Observation into pinned memory, graph queued."""
        np.copyto(self.view_in, self.observations[k % 256])
        with self.torch.cuda.stream(self.stream):
            self.graph.replay()

    def nudge(self) -> None:
        """A one-element kernel, queued."""
        with self.torch.cuda.stream(self.stream):
            self.tiny.replay()

    def wait_default(self) -> None:
        """The driver's own way of waiting."""
        self.stream.synchronize()

    def wait_block(self) -> None:
        """Sleeps until the device's interrupt."""
        self.blocking.record(self.stream)
        self.blocking.synchronize()

    def wait_poll(self) -> None:
        """Asks until it is done."""
        query = self.stream.query
        while not query():
            pass

    def rehearse(self) -> None:
        """The same graph, waited for."""
        with self.torch.cuda.stream(self.stream):
            self.graph.replay()
        self.stream.synchronize()

    def device_us(self, k: int) -> float:
        """One step, between two events on the stream."""
        with self.torch.cuda.stream(self.stream):
            self.begin.record()
            np.copyto(self.view_in, self.observations[k % 256])
            self.graph.replay()
            self.end.record()
        self.stream.synchronize()
        return self.begin.elapsed_time(self.end) * 1000


class Power:
    """Mean power by NVML's energy counter; None where it can't be read."""

    def __init__(self, device: int) -> None:
        self.handle = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self.nvml = pynvml
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(device)
        except Exception as error:  # noqa: BLE001 - a benchmark goes on without watts and prints why
            print(f"no power: {error}")

    def energy_mj(self) -> int | None:
        """The energy counter."""
        return None if self.handle is None else self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)

    def sm_mhz(self) -> int | None:
        """The SM clock now."""
        return None if self.handle is None else self.nvml.nvmlDeviceGetClockInfo(self.handle, 1)
