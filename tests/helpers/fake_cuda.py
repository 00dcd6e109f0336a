"""The part of CUDA's runtime that `backends.gpu` calls, on the host's memory: for tests of buffers, copies, graphs and their order.

Queued work runs as late as CUDA may run it: only when something waits for it. A copy that meets memory on which the default
stream has work left fails: on a device either could come first, and once in a thousand runs the wrong one does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robot_perf.backends.gpu import buffers as device_buffers
from robot_perf.backends.gpu import cudart
from robot_perf.specs import PolicySpec, StatePair, TensorSpec

Work = tuple[str, Callable[[], None]]


class Error(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorNotReady = 600
    cudaErrorStreamCaptureUnsupported = 900
    cudaErrorStreamCaptureInvalidated = 901
    cudaErrorUnknown = 999


class Copy(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3


class CaptureMode(IntEnum):
    cudaStreamCaptureModeThreadLocal = 1


# How many values come after the error, where that is not none.
VALUES = {
    "cudaGetDeviceCount": 1,
    "cudaGetDeviceProperties": 1,
    "cudaDriverGetVersion": 1,
    "cudaGetErrorString": 1,
    "cudaMemGetInfo": 2,
    "cudaMalloc": 1,
    "cudaHostAlloc": 1,
    "cudaHostGetDevicePointer": 1,
    "cudaStreamCreateWithPriority": 1,
    "cudaStreamGetPriority": 1,
    "cudaDeviceGetStreamPriorityRange": 2,
    "cudaEventCreateWithFlags": 1,
    "cudaEventElapsedTime": 1,
    "cudaStreamEndCapture": 1,
    "cudaGraphGetNodes": 2,
    "cudaGraphNodeGetType": 1,
    "cudaGraphInstantiate": 1,
}

OK = Error.cudaSuccess
NO_CAPTURE = Error.cudaErrorStreamCaptureUnsupported


class Stream:
    def __init__(self, number: int, priority: int = 0) -> None:
        self.number, self.priority = number, priority
        self.queue: list[Work] = []
        self.capture: list[Work] | None = None
        self.spoilt = False

    def __int__(self) -> int:
        return self.number

    def put(self, kind: str, work: Callable[[], None]) -> None:
        (self.queue if self.capture is None else self.capture).append((kind, work))


class Event:
    def __init__(self) -> None:
        self.at_ms: float | None = None
        self.stream: Stream | None = None


class FakeCuda:
    """Stands in for `cuda.bindings.runtime`. `log` names what was freed and destroyed, in order; `left` what was not.

    `calls` names every call that the backends made. Call number `fails_at` fails, with `for_good` every later one too: CUDA answers
    so once a kernel has gone astray. What fails has no effect; a capture alone ends all the same.
    """

    cudaError_t, cudaMemcpyKind, cudaStreamCaptureMode = Error, Copy, CaptureMode
    cudaStreamNonBlocking, cudaHostAllocPortable, cudaHostAllocMapped = 1, 1, 2
    cudaEventDefault, cudaEventBlockingSync, cudaEventDisableTiming = 0, 1, 2
    cudaEventRecordDefault, cudaEventRecordExternal = 0, 1

    def __init__(self, room: int = 1 << 30) -> None:
        self.room, self.served_first = room, -5
        self.blocks: dict[int, Any] = {}
        self.default, self.streams = Stream(0), {}
        self.pending: list[tuple[int, int]] = []  # address and size of what the default stream has still to write
        self.events: dict[int, Any] = {}
        self.graphs: dict[int, Any] = {}
        self.executables: dict[int, Any] = {}
        self.now_ms = 0.0
        self.log: list[str] = []
        self.calls: list[str] = []
        self.fails_at: int | None = None
        self.for_good = False

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        # The bindings' functions are no methods: who keeps one keeps no runtime.
        return partial(self._call, name, found) if name.startswith("cuda") and isinstance(found, MethodType) else found

    def _call(self, name: str, call: Callable[..., Any], *given: Any) -> Any:
        number = len(self.calls)
        self.calls.append(name)
        fails = self.fails_at is not None and (number >= self.fails_at if self.for_good else number == self.fails_at)
        if name == "cudaGetErrorString" or not fails:
            return call(*given)
        if name == "cudaStreamEndCapture":
            given[0].capture = None
        return (Error.cudaErrorUnknown, *[None] * VALUES.get(name, 0))

    def left(self) -> dict[str, int]:
        """How many of each kind are open, kinds without any left out."""
        kinds = {
            "streams": self.streams,
            "events": self.events,
            "graphs": self.graphs,
            "executable graphs": self.executables,
            "allocations": self.blocks,
        }
        return {kind: len(found) for kind, found in kinds.items() if found}

    def busy(self) -> str:
        """How many streams there are, and whether one has work left."""
        return f"{len(self.streams)} stream" + (" with work" if any(s.queue for s in self.streams.values()) else "")

    # --- queues

    def submit(self, address: int, work: Callable[[], None], kind: str = "kernel") -> None:
        """A kernel of whatever runtime the test plays, on the stream of this address."""
        self.streams[address].put(kind, work)

    def capturing(self, address: int) -> bool:
        return self.streams[address].capture is not None

    def _drain(self, stream: Stream) -> None:
        while stream.queue:
            self._one(stream.queue.pop(0))

    def _one(self, work: Work) -> None:
        self.now_ms += 0.01
        work[1]()

    def _spoils(self) -> bool:
        """What waits or allocates may not, while this thread captures; the capture is lost."""
        caught = [s for s in self.streams.values() if s.capture is not None]
        for stream in caught:
            stream.spoilt = True
        return bool(caught)

    # --- device

    def cudaGetDeviceCount(self) -> Any:
        return OK, 1

    def cudaSetDevice(self, _index: int) -> Any:
        return (OK,)

    def cudaGetDeviceProperties(self, _index: int) -> Any:
        return OK, SimpleNamespace(name=b"Fake GPU", major=9, minor=0, integrated=0)

    def cudaDriverGetVersion(self) -> Any:
        return OK, 13000

    def cudaMemGetInfo(self) -> Any:
        return OK, self._room(), self.room

    def _room(self) -> int:
        return self.room - sum(len(b) for b in self.blocks.values())

    def cudaGetErrorString(self, error: Error) -> Any:
        return OK, error.name.encode()

    def cudaDeviceSynchronize(self) -> Any:
        return self._finish()

    def _finish(self) -> Any:
        if self._spoils():
            return (NO_CAPTURE,)
        self._finish_default()
        for stream in self.streams.values():
            self._drain(stream)
        return (OK,)

    def _finish_default(self) -> None:
        self._drain(self.default)
        self.pending.clear()

    # --- memory

    def _block(self, size: int) -> int:
        block = (ctypes.c_uint8 * size)()
        address = ctypes.addressof(block)
        self.blocks[address] = block
        return address

    def _sound(self, address: int, size: int) -> bool:
        return any(at <= address and address + size <= at + len(b) for at, b in self.blocks.items())

    def cudaMalloc(self, size: int) -> Any:
        if self._spoils():
            return NO_CAPTURE, None
        if self._room() < size:
            return Error.cudaErrorMemoryAllocation, None
        return OK, self._block(size)

    def cudaHostAlloc(self, size: int, _flags: int) -> Any:
        return OK, self._block(size)

    def cudaHostGetDevicePointer(self, address: int, _flags: int) -> Any:
        return OK, address

    def _free(self, what: str, address: int) -> Any:
        if address:
            self._finish()
            del self.blocks[address]
            self.log.append(what)
        return (OK,)

    def cudaFree(self, address: int) -> Any:
        return self._free("device memory", address)

    def cudaFreeHost(self, address: int) -> Any:
        return self._free("pinned memory", address)

    def cudaMemset(self, address: int, value: int, size: int) -> Any:
        """On the default stream, which other streams here do not wait for; the host does not either."""
        self.default.put("memset", lambda: self._set(address, value, size))
        self.pending.append((address, size))
        return (OK,)

    def _set(self, address: int, value: int, size: int) -> None:
        assert self._sound(address, size), "a memset outside of any allocation"
        ctypes.memset(address, value, size)

    def _move(self, target: int, source: int, size: int) -> None:
        assert self._sound(target, size) and self._sound(source, size), "a copy outside of any allocation"
        for address, length in self.pending:
            for at in (target, source):
                assert at + size <= address or address + length <= at, (
                    "a copy races with a memset of the default stream"
                )
        ctypes.memmove(target, source, size)

    def cudaMemcpy(self, target: int, source: int, size: int, _kind: Copy) -> Any:
        """Between the device and any memory of the host."""
        if self._spoils():
            return (NO_CAPTURE,)
        self._finish_default()
        ctypes.memmove(target, source, size)
        return (OK,)

    def cudaMemcpyAsync(self, target: int, source: int, size: int, _kind: Copy, stream: Stream) -> Any:
        stream.put("memcpy", lambda: self._move(target, source, size))
        return (OK,)

    # --- streams and events

    def cudaDeviceGetStreamPriorityRange(self) -> Any:
        return OK, 0, self.served_first

    def cudaStreamGetPriority(self, stream: Stream) -> Any:
        return OK, stream.priority

    def cudaStreamCreateWithPriority(self, _flags: int, priority: int) -> Any:
        stream = Stream(0x1000 + len(self.streams), min(0, max(self.served_first, priority)))  # clamped in silence
        self.streams[stream.number] = stream
        return OK, stream

    def cudaStreamDestroy(self, stream: Stream) -> Any:
        assert not stream.queue, "a stream was destroyed before its work was waited for"
        assert stream.capture is None, "a stream was destroyed while it captured"
        del self.streams[stream.number]
        self.log.append("stream")
        return (OK,)

    def cudaStreamSynchronize(self, stream: Stream) -> Any:
        return self._finish_stream(stream)

    def _finish_stream(self, stream: Stream) -> Any:
        if stream.capture is not None:
            stream.spoilt = True
            return (NO_CAPTURE,)
        self._drain(stream)
        return (OK,)

    def cudaStreamQuery(self, stream: Stream) -> Any:
        if stream.queue:
            self._one(stream.queue.pop(0))
            return (Error.cudaErrorNotReady,)
        return (OK,)

    def cudaEventCreateWithFlags(self, _flags: int) -> Any:
        event = Event()
        self.events[id(event)] = event
        return OK, event

    def cudaEventRecordWithFlags(self, event: Any, stream: Stream, flags: int) -> Any:
        return self._record(event, stream, flags)

    def _record(self, event: Any, stream: Stream, flags: int) -> Any:
        external = flags == self.cudaEventRecordExternal
        if external != (stream.capture is not None):
            return (Error.cudaErrorInvalidValue,)
        event.stream = stream
        stream.put("eventrecord", lambda: setattr(event, "at_ms", self.now_ms))
        return (OK,)

    def cudaEventRecord(self, event: Any, stream: Stream) -> Any:
        return self._record(event, stream, self.cudaEventRecordDefault)

    def cudaEventSynchronize(self, event: Any) -> Any:
        return self._finish_stream(event.stream)

    def cudaEventElapsedTime(self, start: Any, end: Any) -> Any:
        if start.at_ms is None or end.at_ms is None:
            return Error.cudaErrorNotReady, None
        return OK, end.at_ms - start.at_ms

    def cudaEventDestroy(self, event: Any) -> Any:
        del self.events[id(event)]
        self.log.append("event")
        return (OK,)

    # --- graphs

    def cudaStreamBeginCapture(self, stream: Stream, _mode: CaptureMode) -> Any:
        stream.capture, stream.spoilt = [], False
        return (OK,)

    def cudaStreamEndCapture(self, stream: Stream) -> Any:
        captured, stream.capture = stream.capture, None
        if stream.spoilt:
            return Error.cudaErrorStreamCaptureInvalidated, None
        self.graphs[id(captured)] = captured
        return OK, captured

    def cudaGraphGetNodes(self, graph: list[Work], count: int) -> Any:
        return OK, list(graph[:count]), len(graph)

    def cudaGraphNodeGetType(self, node: Work) -> Any:
        return OK, SimpleNamespace(name=f"cudaGraphNodeType{node[0].capitalize()}")

    def cudaGraphInstantiate(self, graph: list[Work], _flags: int) -> Any:
        executable = tuple(graph)
        self.executables[id(executable)] = executable
        return OK, executable

    def cudaGraphUpload(self, _executable: Any, _stream: Stream) -> Any:
        return (OK,)

    def cudaGraphLaunch(self, executable: tuple[Work, ...], stream: Stream) -> Any:
        for kind, work in executable:
            stream.put(kind, work)
        return (OK,)

    def cudaGraphExecDestroy(self, executable: Any) -> Any:
        del self.executables[id(executable)]
        self.log.append("graph")
        return (OK,)

    def cudaGraphDestroy(self, graph: Any) -> Any:
        del self.graphs[id(graph)]
        return (OK,)


def play(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> FakeCuda:
    """The backends' CUDA is this one."""
    monkeypatch.setattr(cudart, "runtime", lambda: fake)
    monkeypatch.setattr(device_buffers, "runtime", lambda: fake)
    monkeypatch.setattr(cudart, "unavailable", lambda: None)
    return fake


PAIR = (1, 2)
# A policy whose answer is what it was shown plus how often it was called.
COUNTING = PolicySpec(
    "counting",
    "builtin",
    inputs=(TensorSpec("obs", "float32", PAIR), TensorSpec("n_in", "float32", PAIR)),
    outputs=(TensorSpec("action", "float32", PAIR), TensorSpec("n_out", "float32", PAIR)),
    action=0,
    state=(StatePair(target=1, source=1),),
    state_note="1 pair carried",
)


def counting(fake: FakeCuda, places: Mapping[str, int]) -> Callable[[], None]:
    """The kernel of `COUNTING`, over addresses by name."""

    def compute() -> None:
        at = {n: np.frombuffer(fake.blocks[a], np.float32, count=2).reshape(PAIR) for n, a in places.items()}
        at["action"][...], at["n_out"][...] = at["obs"] + at["n_in"], at["n_in"] + 1

    return compute
