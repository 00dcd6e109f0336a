"""Eager and compiled policies on a CUDA device: each step queues its pieces one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from robot_perf.backends.gpu import nvtx
from robot_perf.backends.gpu.torch_body import Body
from robot_perf.backends.gpu.torch_cuda import memory_facts, priority_facts
from robot_perf.backends.protocol import Array
from robot_perf.backends.shared.closed import closed
from robot_perf.backends.torch_policy.runner import NO_EVENTS, Events

# What counts as one launch in torch's profiler, by runtime and driver name.
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")


class Waiter:
    """Waits for a stream: by the driver's own choice, asleep, or polling."""

    def __init__(self, torch: Any, stream: Any, sync: str) -> None:
        self._stream, self._query = stream, stream.query
        self._event: Any = torch.cuda.Event(blocking=True) if sync == "block" else None
        self.wait: Callable[[], None] = {"auto": stream.synchronize, "block": self._asleep, "spin": self._polling}[sync]

    def _asleep(self) -> None:
        # An event with the blocking flag sleeps whatever the device's schedule is.
        event = self._event
        event.record(self._stream)
        event.synchronize()

    def _polling(self) -> None:
        query = self._query
        while not query():
            pass

    def busy(self) -> bool:
        """True while the stream has unfinished work."""
        return not self._query()


class QueuedSteps:
    """`gpu.runner.Work` for policies that torch runs operator by operator, or as compiled code.

    `before` is called before each step (CUDA graph trees want to be told where one begins).
    """

    def __init__(
        self,
        body: Body,
        stream: Any,
        facts: Mapping[str, Any],
        events: Events = NO_EVENTS,
        before: Callable[[], Any] | None = None,
    ) -> None:
        torch = body.torch
        self.body, self._stream, self._facts, self._events = body, stream, dict(facts), events
        self.staged, self.answers = body.staged, body.answers
        self._no_grad, self._before = torch.no_grad, before
        waiter = Waiter(torch, stream, body.options.sync)
        self.wait, self.busy = waiter.wait, waiter.busy
        self._upload, self._download = nvtx.within(nvtx.H2D, body.upload), nvtx.within(nvtx.D2H, body.download)
        self._compute = nvtx.within(nvtx.POLICY, body.compute)
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        self._plain: Callable[[], None] = self._launch_marked if body.options.marks else self._launch
        self.launch = self._plain
        self._timed = body.options.marks
        self._has_state: bool | None = None  # not looked yet

    def _launch(self) -> None:
        body = self.body
        with self._no_grad():
            if self._before is not None:
                self._before()
            self._upload()
            self._compute()
            body.feed_back()
            self._download()

    def _launch_marked(self) -> None:
        marks, stream = self._marks, self._stream
        marks[0].record(stream)
        self._launch()
        marks[3].record(stream)

    def _launch_phases(self) -> None:
        body, marks, stream = self.body, self._marks, self._stream
        with self._no_grad():
            if self._before is not None:
                self._before()
            marks[0].record(stream)
            self._upload()
            marks[1].record(stream)
            self._compute()
            body.feed_back()
            marks[2].record(stream)
            self._download()
            marks[3].record(stream)

    def mark_phases(self, on: bool) -> None:
        """Four events a step, or what the options say."""
        self.launch = self._launch_phases if on else self._plain
        self._timed = on or self.body.options.marks

    def device_ns(self) -> int:
        """From before the first copy to after the last."""
        return between(self._marks[0], self._marks[3]) if self._timed else -1

    def phases_ns(self) -> tuple[int, int, int]:
        """Host to device, policy, device to host."""
        a, b, c, d = self._marks
        return between(a, b), between(b, c), between(c, d)

    @property
    def keep(self) -> Callable[[], None] | None:
        """Queues the copy of the state aside; looks once whether there is any."""
        if self._has_state is None:
            with self._no_grad():
                self._has_state = self.body.find_state()
            self.wait()
        return self._kept if self._has_state else None

    def _kept(self) -> None:
        with self._no_grad():
            self.body.keep()

    def put_back(self) -> None:
        """The kept state, complete."""
        with self._no_grad():
            self.body.put_back()
        self.wait()

    def touch(self) -> None:
        """Reads every weight once."""
        with self._no_grad():
            for tensor in self.body.weights():
                tensor.sum()
        self.wait()

    def poison(self) -> None:
        """Results are new tensors in each step: nothing on the device outlives one."""

    def reset(self) -> None:
        """The state as after loading."""
        self.body.reset()

    def state(self) -> Mapping[str, Array]:
        """Carried values and changed buffers."""
        return self.body.state()

    def counters(self) -> Mapping[str, int]:
        """Compiles, graph breaks, skipped CUDA graphs; empty in eager mode."""
        return self._events()

    def reasons(self) -> Mapping[str, str]:
        """Why an event happened, by its name."""
        return self._events.reasons()

    def examine(self) -> Mapping[str, Any]:
        """Launches per step by torch's profiler, which stays attached: only once nothing is measured any more."""
        from torch.profiler import ProfilerActivity, profile

        with warnings.catch_warnings():
            # that a profiler keeps the events of its last cycle alone, of which there is one
            warnings.filterwarnings("ignore", message=".*Profiler clears events", category=UserWarning)
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                self.launch()
                self.wait()
        launches = sum(event.name in _LAUNCHES for event in profiler.events())
        if not launches:
            return {"launches_per_step": None, "launches_per_step_reason": "torch's profiler saw no launch here"}
        return {"launches_per_step": launches, "launches_are": "kernels and graphs of one step, by torch's profiler"}

    def facts(self) -> Mapping[str, Any]:
        """Versions, options, memory, what torch.compile did."""
        body, reasons, why = self.body, dict(self.reasons()), self._events.not_captured()
        return {
            **self._facts,
            **body.options.facts(),
            **priority_facts(self._stream),
            **memory_facts(body.device),
            **body.facts(),
            "captured": False,
            "launches_per_step": None,
            "build_ns": None,
            **({"events": dict(self._events()), "reasons": reasons} if reasons else {}),
            **({"not_captured": why} if why else {}),
        }

    def close(self) -> None:
        """Waits, and frees device memory."""
        self._events.close()
        self.wait()
        self.launch = self._plain = self._upload = self._compute = self._download = closed
        self.body.close()


def between(start: Any, end: Any) -> int:
    """ns between two recorded events; CUDA answers in ms with a resolution of about 0.5 µs."""
    return round(float(start.elapsed_time(end)) * 1e6)
