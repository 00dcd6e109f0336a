"""A step through cuda-python: static buffers, a runtime that queues the policy, and a CUDA graph of the whole where asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from robot_perf.backends.gpu import faults, nvtx
from robot_perf.backends.gpu.buffers import Buffers
from robot_perf.backends.gpu.cudart import CudaError, Graph, Marks, Stream
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.protocol import Array
from robot_perf.backends.shared.closed import closed
from robot_perf.specs import PolicySpec

# What such a policy is measured with instead; `eager` takes no ONNX file.
WITHOUT_GRAPH = "Measure it without the graph: --backend-option cuda_graph=false"


class StreamWork:
    """`gpu.runner.Work` over what a load puts into it: `held`, `allocate`, at last `start`. `close` ends what there is so far.

    `held` has the runtime's objects by name, the newest last, and they end in the other order. Nothing else may hold them, not even a
    closure: the frames of an error that somebody keeps hold their functions. What outlives the stream ends in a crash, not in an error.
    """

    def __init__(self, name: str, options: DeviceOptions) -> None:
        self._name, self._options = name, options
        self._graphs: dict[str, Graph] = {}
        self.held: dict[str, Any] = {}
        self._memory = contextlib.ExitStack()  # marks, buffers and stream, closed in this order
        self.stream = Stream(options)
        self._memory.callback(self.stream.close)
        self.wait, self.busy = self.stream.wait, self.stream.busy
        self.launch: Callable[[], None] = closed
        self._enqueue: Callable[[], None] = closed
        self._counted: Callable[[], None] | None = None

    def allocate(
        self, policy: PolicySpec, dtypes: Mapping[str, str] | None = None, *, runtime_downloads: bool = False
    ) -> Buffers:
        """The buffers; the arguments as they take them."""
        buffers = self._buffers = Buffers(policy, self._options, dtypes, runtime_downloads=runtime_downloads)
        self._memory.callback(buffers.close)
        self.staged, self.answers = buffers.staged, buffers.answers
        return buffers

    def start(
        self,
        enqueue: Callable[[], None],
        facts: Callable[[], Mapping[str, Any]],
        *,
        capturable: bool,
        counted: Callable[[], None] | None = None,
        warm_ups: int = 3,
    ) -> None:
        """Ready for steps, with the graph where one was asked for. `enqueue` queues the policy alone on the stream.

        `capturable`: the whole step may become one graph of ours; ONNX Runtime replays its own instead. `counted`: queues a run
        that may be captured to count its kernels, so one without a wait; None where nothing is counted. Both raise RuntimeError.
        """
        stream, buffers = self.stream, self._buffers
        self._enqueue = nvtx.within(nvtx.POLICY, enqueue)
        self._upload = nvtx.within(nvtx.H2D, buffers.uploading(stream))
        self._feed_back = buffers.feeding_back(stream)
        self._download = nvtx.within(nvtx.D2H, buffers.downloading(stream))
        self._facts = facts
        self._capturable, self._counted, self._warm_ups = capturable, counted, warm_ups
        self._marks = Marks(4)
        self._memory.callback(self._marks.close)
        self._timed = self._options.marks
        self.launch = self._plain()

    def _plain(self) -> Callable[[], None]:
        kind = "whole" if self._options.marks else "step"
        return self._prepared(kind)

    def _prepared(self, kind: str) -> Callable[[], None]:
        """What queues a step of this kind: the replay of a graph, made once, or the calls themselves."""
        if not (self._options.cuda_graph and self._capturable):
            return self._calls() if kind == "step" else lambda: self._queue(kind, captured=False)
        if kind not in self._graphs:
            self._capture(kind)
        return nvtx.within(nvtx.POLICY, self._graphs[kind].launch)  # the copies are inside the graph

    def _calls(self) -> Callable[[], None]:
        """The calls of a plain step; a closure, as in `gpu.runner`."""
        upload, enqueue, feed_back, download = self._upload, self._enqueue, self._feed_back, self._download

        def step() -> None:
            upload()
            enqueue()
            feed_back()
            download()

        return step

    def _capture(self, kind: str) -> None:
        for _ in range(self._warm_ups):
            # The first calls allocate and choose kernels, which a capture can't hold.
            self.run_policy()
        try:
            self._graphs[kind] = Graph(self.stream, lambda: self._queue(kind, captured=True))
        except (CudaError, RuntimeError) as error:
            told = faults.not_captured(self._name, error)
            told.do = WITHOUT_GRAPH
            raise told from error
        self.stream.wait()

    def _queue(self, kind: str, *, captured: bool) -> None:
        stream, marks = self.stream, self._marks
        phases, whole = kind == "phases", kind in ("phases", "whole")
        if kind == "policy":
            self._enqueue()
            return
        if whole:
            marks.record(0, stream, captured=captured)
        self._upload()
        if phases:
            marks.record(1, stream, captured=captured)
        self._enqueue()
        self._feed_back()
        if phases:
            marks.record(2, stream, captured=captured)
        self._download()
        if whole:
            marks.record(3, stream, captured=captured)

    def mark_phases(self, on: bool) -> None:
        """Another, marked graph, or the plain one again."""
        self.launch = self._prepared("phases") if on else self._plain()
        self._timed = on or self._options.marks

    def device_ns(self) -> int:
        """From before the first copy to after the last."""
        return self._marks.between(0, 3) if self._timed else -1

    def phases_ns(self) -> tuple[int, int, int]:
        """Host to device, policy, device to host."""
        marks = self._marks
        return marks.between(0, 1), marks.between(1, 2), marks.between(2, 3)

    @property
    def keep(self) -> Callable[[], None] | None:
        """Queues the copy of carried state aside; None where nothing is carried."""
        return self._keep if self._buffers.carries else None

    def _keep(self) -> None:
        self._buffers.keep(self.stream)

    def put_back(self) -> None:
        """The kept state, complete."""
        self._buffers.put_back(self.stream)
        self.wait()

    def run_policy(self) -> None:
        """The policy alone on what the buffers hold, waited for; state outputs are not fed back."""
        self._queue("policy", captured=False)
        self.wait()

    def poison(self) -> None:
        """The device's own output buffers."""
        self.stream.wait()
        self._buffers.poison()

    def reset(self) -> None:
        """Carried state at its start."""
        self.stream.wait()
        self._buffers.restart()

    def state(self) -> Mapping[str, Array]:
        """Carried values by input name."""
        self.stream.wait()
        return self._buffers.state()

    def counters(self) -> Mapping[str, int]:
        """Captures: none may happen inside the window."""
        return {"captures": len(self._graphs)} if self._capturable else {}

    def reasons(self) -> Mapping[str, str]:
        """No event has a reason of its own."""
        return {}

    def examine(self) -> Mapping[str, Any]:
        """Kernels of one run that is no graph, by capturing it and throwing the graph away."""
        if self._graphs or self._counted is None:
            return {}
        try:
            nodes = self._nodes(self._counted)
        except RuntimeError as error:
            return {"launches_per_step_reason": f"a run can't be captured to count it: {faults.last_line(error)}"}
        kernels = nodes.get("kernel", 0)
        return {"launches_per_step": kernels, "graph_nodes": nodes, "launches_are": "kernels of one captured run"}

    def _nodes(self, queue: Callable[[], None]) -> dict[str, int]:
        """Nodes by kind of what `queue` queues."""
        with contextlib.ExitStack() as made:
            try:
                graph = Graph(self.stream, queue)
                made.callback(graph.close)
            finally:
                # What a runtime lent to the captured run, a failed one too, comes back to it only at the end of one that is waited for.
                self.run_policy()
            return dict(graph.nodes)

    def facts(self) -> Mapping[str, Any]:
        """Options, captured nodes, pinned memory, and what the runtime says."""
        graph = self._graphs.get("whole" if self._options.marks else "step")
        found: dict[str, Any] = {
            **self._options.facts(),
            "stream_priority": self.stream.priority,
            "captured": graph is not None,
            "launches_per_step": 1 if graph is not None else None,
            "pinned_bytes": self._buffers.pinned_bytes,
        }
        if graph is not None:
            found["graph_nodes"] = dict(graph.nodes)
            found["kernels_per_step"] = graph.nodes.get("kernel", 0)
        return {**found, **self._facts()}

    def close(self) -> None:
        """Graphs and the runtime's own first, while the stream they use still exists; then memory and stream."""
        with self._memory, contextlib.ExitStack() as first:
            first.callback(self._let_go)
            for graph in self._graphs.values():
                first.callback(graph.close)
            first.callback(self.stream.wait)

    def _let_go(self) -> None:
        self._graphs.clear()
        self.launch, self._enqueue, self._counted = closed, closed, None
        while self.held:
            self.held.popitem()
