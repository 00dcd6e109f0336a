"""The captured MLP actor of `keep_warm.py`, and its parts: hand-written, no robot-perf in them. The power of its device is read as `bench` does."""

from __future__ import annotations

import itertools
import time

import numpy as np

NS_PER_US = 1000


class Actor:
    """One captured graph: pinned observation -> device -> MLP -> pinned action; and graphs of its parts."""

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
        self.dev_out = torch.zeros(1, 12, device="cuda")
        self.small = torch.zeros(1, device="cuda")
        self.stream, self.other = torch.cuda.Stream(), torch.cuda.Stream()
        self.graph = self._captured(self._body)
        # the same kernels over tensors of their own, without copies: a rehearsal that a policy with state could bear too
        self.parts = {
            "an empty kernel": self._captured(lambda: self.small.add_(1)),
            "copy to the device": self._captured(lambda: self.dev_in.copy_(self.host_in, non_blocking=True)),
            "the network's kernels": self._captured(lambda: self.dev_out.copy_(self.net(self.dev_in))),
            "copy to the host": self._captured(lambda: self.host_out.copy_(self.dev_out, non_blocking=True)),
        }
        self.flush = torch.zeros(256 * 2**20, dtype=torch.uint8, device="cuda")
        self.host_junk = np.zeros(96 * 2**20, np.uint8)
        self.blocking = torch.cuda.Event(blocking=True)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.observations = np.random.default_rng(0).uniform(-1, 1, (256, 1, 48)).astype(np.float32)
        self.sm_hz = float(torch.cuda.get_device_properties(device).clock_rate) * 1000  # torch has kHz
        self.stream.synchronize()

    def _body(self) -> None:
        self.dev_in.copy_(self.host_in, non_blocking=True)
        self.host_out.copy_(self.net(self.dev_in), non_blocking=True)

    def _captured(self, body):
        torch = self.torch
        with torch.no_grad(), torch.cuda.stream(self.stream):
            for _ in range(3):
                body()
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                body()
        return graph

    def step(self, k: int, wait, graph=None) -> tuple[float, float, float]:
        """One step: µs in all, of which µs until the launch returned, of which µs to fill the pinned buffer."""
        now = time.monotonic_ns
        began = now()
        np.copyto(self.view_in, self.observations[k % 256])
        filled = now()
        with self.torch.cuda.stream(self.stream):
            (graph or self.graph).replay()
        queued = now()
        wait()
        _ = float(self.view_out[0, 0])
        return (now() - began) / NS_PER_US, (queued - began) / NS_PER_US, (filled - began) / NS_PER_US

    def device_us(self, k: int, graph=None, *, gated: bool = True) -> float:
        """One step between two events on the stream.

        A host that queues slowly leaves the device waiting between the first event and the graph, and the events count that.
        `gated`: a kernel of one thread holds the stream for 1 ms, until event, graph and event are all queued behind it.
        """
        with self.torch.cuda.stream(self.stream):
            if gated:
                self.torch.cuda._sleep(int(1e-3 * self.sm_hz))
            self.begin.record()
            np.copyto(self.view_in, self.observations[k % 256])
            (graph or self.graph).replay()
            self.end.record()
        self.stream.synchronize()
        return self.begin.elapsed_time(self.end) * NS_PER_US

    def nudge(self) -> None:
        """A one-element kernel, queued."""
        with self.torch.cuda.stream(self.stream):
            self.parts["an empty kernel"].replay()

    def rehearse(self) -> None:
        """The same graph, waited for."""
        with self.torch.cuda.stream(self.stream):
            self.graph.replay()
        self.stream.synchronize()

    def whole_step(self) -> None:
        """A step through the very calls of a step, for a rehearsal: observation, launch, wait, action."""
        self.step(0, self.wait_default)

    def rehearse_kernels(self) -> None:
        """The network's kernels without the copies, waited for."""
        with self.torch.cuda.stream(self.stream):
            self.parts["the network's kernels"].replay()
        self.stream.synchronize()

    def touch(self) -> None:
        """Reads every weight, waited for."""
        with self.torch.cuda.stream(self.stream):
            for p in self.net.parameters():
                p.sum()
        self.stream.synchronize()

    def occupy(self, us: float) -> None:
        """Queues a kernel of one thread that counts clock cycles for `us`, on another stream: the GPU is not idle meanwhile."""
        with self.torch.cuda.stream(self.other):
            self.torch.cuda._sleep(int(us * 1e-6 * self.sm_hz))

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

    def flush_l2(self) -> None:
        """Writes 256 MiB on the device: more than any L2."""
        with self.torch.cuda.stream(self.stream):
            self.flush.zero_()
        self.stream.synchronize()

    def pollute_cpu(self) -> None:
        """Writes one byte of each cache line of 96 MiB on the host."""
        self.host_junk[::64] += 1


class Power:
    """Energy and clock of the GPU that CUDA calls `device`; None where they can't be read."""

    def __init__(self, device: int) -> None:
        from robot_perf.measure.watch.nvml import open_meter

        self.meter, why = open_meter(f"cuda:{device}")
        if self.meter is None:
            print(f"no power: {why}")

    def energy_j(self) -> float | None:
        """The energy counter, J."""
        return None if self.meter is None else self.meter.energy_j()

    def sm_mhz(self) -> int | None:
        """The SM clock now."""
        sm_hz = None if self.meter is None else self.meter.sample().sm_hz
        return None if sm_hz is None else round(sm_hz / 1e6)
