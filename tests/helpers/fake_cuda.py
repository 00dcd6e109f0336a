"""The part of CUDA's runtime that `backends.gpu` calls, on the host's memory: for tests of buffers, copies, graphs and their order.

Queued work runs as late as CUDA may run it: only when something waits for it. A copy that meets memory on which the default
stream has work left fails: on a device either could come first, and once in a thousand runs the wrong one does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

Work = tuple[str, Callable[[], None]]


class Error(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorNotReady = 600
    cudaErrorStreamCaptureUnsupported = 900
    cudaErrorStreamCaptureInvalidated = 901


class Copy(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3


class CaptureMode(IntEnum):
    cudaStreamCaptureModeThreadLocal = 1


OK = Error.cudaSuccess
NO_CAPTURE = Error.cudaErrorStreamCaptureUnsupported


class Stream:
    def __init__(self, number: int) -> None:
        self.number = number
        self.queue: list[Work] = []
        self.capture: list[Work] | None = None
        self.spoilt = False

    def __int__(self) -> int:
        return self.number

    def put(self, kind: str, work: Callable[[], None]) -> None:
        (self.queue if self.capture is None else self.capture).append((kind, work))


class FakeCuda:
    """Stands in for `cuda.bindings.runtime`. `log` names what was freed and destroyed, in order."""

    cudaError_t, cudaMemcpyKind, cudaStreamCaptureMode = Error, Copy, CaptureMode
    cudaStreamNonBlocking, cudaHostAllocPortable, cudaHostAllocMapped = 1, 1, 2
    cudaEventDefault, cudaEventBlockingSync, cudaEventDisableTiming = 0, 1, 2
    cudaEventRecordDefault, cudaEventRecordExternal = 0, 1

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.blocks: dict[int, Any] = {}
        self.default, self.streams = Stream(0), {}
        self.pending: list[tuple[int, int]] = []  # address and size of what the default stream has still to write
        self.now_ms = 0.0
        self.log: list[str] = []

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
        return OK, self.room - sum(len(b) for b in self.blocks.values()), self.room

    def cudaGetErrorString(self, error: Error) -> Any:
        return OK, error.name.encode()

    def cudaDeviceSynchronize(self) -> Any:
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
            return NO_CAPTURE, 0
        if self.cudaMemGetInfo()[1] < size:
            return Error.cudaErrorMemoryAllocation, 0
        return OK, self._block(size)

    def cudaHostAlloc(self, size: int, _flags: int) -> Any:
        return OK, self._block(size)

    def cudaHostGetDevicePointer(self, address: int, _flags: int) -> Any:
        return OK, address

    def _free(self, what: str, address: int) -> Any:
        if address:
            self.cudaDeviceSynchronize()
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

    def cudaStreamCreateWithPriority(self, _flags: int, _priority: int) -> Any:
        stream = Stream(0x1000 + len(self.streams))
        self.streams[stream.number] = stream
        return OK, stream

    def cudaStreamDestroy(self, stream: Stream) -> Any:
        assert not stream.queue, "a stream was destroyed before its work was waited for"
        del self.streams[stream.number]
        self.log.append("stream")
        return (OK,)

    def cudaStreamSynchronize(self, stream: Stream) -> Any:
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
        return OK, SimpleNamespace(at_ms=None, stream=None)

    def cudaEventRecordWithFlags(self, event: Any, stream: Stream, flags: int) -> Any:
        external = flags == self.cudaEventRecordExternal
        if external != (stream.capture is not None):
            return (Error.cudaErrorInvalidValue,)
        event.stream = stream
        stream.put("eventrecord", lambda: setattr(event, "at_ms", self.now_ms))
        return (OK,)

    def cudaEventRecord(self, event: Any, stream: Stream) -> Any:
        return self.cudaEventRecordWithFlags(event, stream, self.cudaEventRecordDefault)

    def cudaEventSynchronize(self, event: Any) -> Any:
        return self.cudaStreamSynchronize(event.stream)

    def cudaEventElapsedTime(self, start: Any, end: Any) -> Any:
        if start.at_ms is None or end.at_ms is None:
            return Error.cudaErrorNotReady, 0.0
        return OK, end.at_ms - start.at_ms

    def cudaEventDestroy(self, _event: Any) -> Any:
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
        return OK, captured

    def cudaGraphGetNodes(self, graph: list[Work], count: int) -> Any:
        return OK, list(graph[:count]), len(graph)

    def cudaGraphNodeGetType(self, node: Work) -> Any:
        return OK, SimpleNamespace(name=f"cudaGraphNodeType{node[0].capitalize()}")

    def cudaGraphInstantiate(self, graph: list[Work], _flags: int) -> Any:
        return OK, tuple(graph)

    def cudaGraphUpload(self, _executable: Any, _stream: Stream) -> Any:
        return (OK,)

    def cudaGraphLaunch(self, executable: tuple[Work, ...], stream: Stream) -> Any:
        for kind, work in executable:
            stream.put(kind, work)
        return (OK,)

    def cudaGraphExecDestroy(self, _executable: Any) -> Any:
        self.log.append("graph")
        return (OK,)

    def cudaGraphDestroy(self, _graph: Any) -> Any:
        return (OK,)
