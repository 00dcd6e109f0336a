"""A torch policy's step as one CUDA graph: pinned and device buffers that never move, copies inside, state fed back on the device.

Captured on a side stream after warm-up calls, with capture errors local to this thread. A policy that puts a new tensor into a
buffer would freeze its state in a graph: inside the graph that tensor is copied to where the buffer lay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robot_perf.backends.gpu import cudart, faults, nvtx
from robot_perf.backends.gpu.capture import uncollected
from robot_perf.backends.gpu.torch_body import Body
from robot_perf.backends.gpu.torch_cuda import memory_facts, priority_facts
from robot_perf.backends.gpu.torch_queue import Waiter, between
from robot_perf.backends.gpu.undo import Undo
from robot_perf.backends.protocol import Array
from robot_perf.errors import BackendUnavailableError, InvalidMeasurementError, RobotPerfError
from robot_perf.policies.observations import random_array

# TorchScript optimises in its second call and fuses after it; libraries choose kernels and make workspaces in the first.
WARM_UPS = 5
CHECKED = 4  # steps that the graph must answer as its own eager step does; two are too few for state that moves late
CLOSE = 1e-3  # relative: the same kernels on the same data, but reductions may be ordered otherwise


class GraphSteps:
    """`gpu.runner.Work` over replays. Raises InvalidMeasurementError when the step can't be captured or answers otherwise."""

    def __init__(self, body: Body, stream: Any, facts: Mapping[str, Any]) -> None:
        torch = self._torch = body.torch
        self.body, self._stream, self._facts = body, stream, dict(facts)
        self.staged, self.answers = body.staged, body.answers
        waiter = Waiter(torch, stream, body.options.sync)
        self.wait, self.busy = waiter.wait, waiter.busy
        self._marks = self._events() if body.options.marks else []
        self._graphs: dict[str, Any] = {}
        self._results: dict[str, list[Any]] = {}  # a graph's own result tensors
        self._looked = False
        self._keep: Callable[[], None] | None = None
        self._put_back: Callable[[], None] = _nothing
        self.nodes: Mapping[str, int] | None = None
        begin = time.monotonic_ns()
        with Undo(self.close):
            self._warm_up()
            self._kind = "whole" if body.options.marks else "step"
            self._now = self._kind
            self.launch: Callable[[], None] = self._prepared(self._kind)
            self.nodes, self._nodes_reason = _nodes(self._graphs[self._kind])
            self._verified = self._verify()
            self._build_ns = time.monotonic_ns() - begin
            self.reset()

    def _events(self) -> list[Any]:
        try:
            return [self._torch.cuda.Event(enable_timing=True, external=True) for _ in range(4)]
        except TypeError as error:
            raise BackendUnavailableError(
                f"torch {self._torch.__version__} has no events inside a CUDA graph",
                do="Use torch 2.8 or newer, or marks=false.",
            ) from error

    def _warm_up(self) -> None:
        for _ in range(WARM_UPS):
            self._eager("step")
        with self._torch.no_grad():
            held = self.body.kept_inputs()
        self.wait()
        if held:
            raise faults.keeps_inputs(self.body.policy.name, held, graph=True)

    def _eager(self, kind: str) -> None:
        """The pieces in order, as they are captured."""
        body, marks, stream = self.body, self._marks, self._stream
        phases, whole = kind == "phases", kind in ("phases", "whole")
        with self._torch.no_grad():
            if kind in ("keep", "put back"):
                body.keep() if kind == "keep" else body.put_back()
                return
            if whole:
                marks[0].record(stream)
            body.upload()
            if phases:
                marks[1].record(stream)
            body.compute()
            body.settle()
            body.feed_back()
            if phases:
                marks[2].record(stream)
            body.download()
            if whole:
                marks[3].record(stream)

    def _prepared(self, kind: str) -> Callable[[], None]:
        if kind not in self._graphs:
            self._graphs[kind] = self._capture(kind)
            self._results[kind] = self.body.results
        return nvtx.within(nvtx.POLICY, self._graphs[kind].replay)  # the copies are inside the graph

    def _capture(self, kind: str) -> Any:
        torch, name = self._torch, self.body.policy.name
        try:
            graph = torch.cuda.CUDAGraph(keep_graph=True)  # torch 2.8; it lets the nodes be counted
        except TypeError:
            graph = torch.cuda.CUDAGraph()
        try:
            with uncollected(), torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._eager(kind)
            if hasattr(graph, "instantiate"):
                graph.instantiate()
        except RobotPerfError:
            raise
        except Exception as error:
            if faults.is_out_of_memory(error):
                raise faults.out_of_memory(name, error) from error
            raise faults.not_captured(name, error) from error
        # Leaving the capture restores the stream that was current, which is this one.
        return graph

    def _verify(self) -> str:
        """The graph answers as its own eager step: state that hides outside of buffers is frozen by a capture."""
        rng = np.random.default_rng(0)
        fed = [[random_array(rng, self.body.policy.inputs[i]) for i in self.body.policy.fed] for _ in range(CHECKED)]
        want, again = self._answered(lambda: self._eager("step"), fed), self._answered(lambda: self._eager("step"), fed)
        if _differ(want, again, CLOSE) is not None:
            return "not compared: the policy's own answers differ from call to call"
        got = self._answered(self.launch, fed)
        found = _differ(want, got, CLOSE)
        if found is not None:
            step, output, worst = found
            raise InvalidMeasurementError(
                f"{self.body.policy.name}: its captured step answers otherwise than its eager step",
                why=f"Output {output} differs by {worst:.3g} of its largest value, first at step {step} after a reset.",
                do="Keep its state in buffers (register_buffer) or in its inputs and outputs; a graph can't follow anything else.",
            )
        return f"equal to its eager step over {CHECKED} steps from a reset"

    def _answered(self, run: Callable[[], None], fed: list[list[Array]]) -> list[list[Array]]:
        self.reset()
        answers = []
        for observation in fed:
            for place, array in zip(self.staged, observation, strict=True):
                place[...] = array
            run()
            self.wait()
            answers.append([a.copy() for a in self.answers])
        return answers

    def mark_phases(self, on: bool) -> None:
        """Another, marked graph, or the plain one again."""
        if on and not self._marks:
            self._marks = self._events()
        kind = "phases" if on else self._kind
        self.launch = self._prepared(kind)  # a capture that fails leaves what was there
        self._now = kind

    def device_ns(self) -> int:
        """From before the first copy to after the last."""
        return -1 if self._now == "step" else between(self._marks[0], self._marks[3])

    def phases_ns(self) -> tuple[int, int, int]:
        """Host to device, policy, device to host."""
        a, b, c, d = self._marks
        return between(a, b), between(b, c), between(c, d)

    @property
    def keep(self) -> Callable[[], None] | None:
        """Queues the copy of the state aside, as a graph; looks once whether there is any."""
        if not self._looked:
            self._looked = True
            with self._torch.no_grad():
                found = self.body.find_state()
                self.body.settle()  # that one call was no replay
            if found:
                self._eager("keep")  # allocates
                self._keep, self._put_back = self._prepared("keep"), self._prepared("put back")
            self.wait()
        return self._keep

    def put_back(self) -> None:
        """The kept state, in the buffers that the graph reads."""
        self._put_back()
        self.wait()

    def touch(self) -> None:
        """Reads every weight once, as one graph."""
        if "touch" not in self._graphs:
            weights = self.body.weights()
            graph = self._torch.cuda.CUDAGraph()
            with (
                self._torch.no_grad(),
                uncollected(),
                self._torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"),
            ):
                for tensor in weights:
                    tensor.sum()
            self._graphs["touch"] = graph
        self._graphs["touch"].replay()
        self.wait()

    def poison(self) -> None:
        """The graph's own result tensors on the device."""
        self.body.poison(self._results[self._now])
        self.wait()

    def reset(self) -> None:
        """The state as after loading, in the buffers that the graph reads."""
        self.wait()
        self.body.reset()

    def state(self) -> Mapping[str, Array]:
        """Carried values and changed buffers."""
        return self.body.state()

    def counters(self) -> Mapping[str, int]:
        """Captures: none may happen inside the window."""
        return {"captures": len(self._graphs)}

    def reasons(self) -> Mapping[str, str]:
        """No event has a reason of its own."""
        return {}

    def examine(self) -> Mapping[str, Any]:
        """Nothing that the facts do not say already."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Versions, options, memory, nodes."""
        nodes = self.nodes
        return {
            **self._facts,
            **self.body.options.facts(),
            **priority_facts(self._stream),
            **memory_facts(self.body.device),
            **self.body.facts(),
            "captured": True,
            "captured_as": "side stream, thread-local errors, copies and state inside the graph",
            "verified": self._verified,
            "launches_per_step": 1,
            "kernels_per_step": None if nodes is None else nodes.get("kernel", 0),
            "graph_nodes": None if nodes is None else dict(nodes),
            **({"graph_nodes_reason": self._nodes_reason} if nodes is None else {}),
            "build_ns": self._build_ns,
        }

    def close(self) -> None:
        """Graphs, then device memory."""
        self.wait()
        for graph in self._graphs.values():
            graph.reset()
        self._graphs.clear()
        self._results.clear()
        self.body.close()


def _nothing() -> None:
    return None


def _nodes(graph: Any) -> tuple[Mapping[str, int] | None, str]:
    """Nodes by kind, or why they can't be counted."""
    raw = getattr(graph, "raw_cuda_graph", None)
    if raw is None:
        return None, "torch before 2.8 doesn't hand out its graphs"
    if reason := cudart.unavailable():
        return None, reason
    return cudart.graph_nodes(raw()), ""


def _differ(want: list[list[Array]], got: list[list[Array]], relative: float) -> tuple[int, int, float] | None:
    """(step, output, difference relative to the output's largest value) of the first pair that is not close."""
    for step, (a, b) in enumerate(zip(want, got, strict=True)):
        for output, (x, y) in enumerate(zip(a, b, strict=True)):
            wide, other = x.astype(np.float64), y.astype(np.float64)
            scale = float(np.max(np.abs(wide), initial=0.0)) or 1.0
            if not np.allclose(wide, other, rtol=0, atol=relative * scale + 1e-6, equal_nan=True):
                return step, output, float(np.max(np.abs(wide - other))) / scale
    return None
