"""CUDA without torch, through cuda-python: device, stream, pinned and device memory, graphs. One place knows its layouts.

cuda-python 12.6 and newer, and 13, have `cuda.bindings.runtime`; older ones (JetPack 6.0) `cuda.cudart`. Every call returns a
tuple whose first member is the error.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import math
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from robot_perf.backends.gpu import faults
from robot_perf.backends.gpu.capture import uncollected
from robot_perf.backends.gpu.options import DeviceOptions, check_priority
from robot_perf.backends.gpu.undo import Undo
from robot_perf.backends.protocol import Array
from robot_perf.errors import BackendUnavailableError, UsageError, install_line
from robot_perf.specs import TensorSpec


class CudaError(RuntimeError):
    """A CUDA call failed. The message holds its name, the error's name and CUDA's words."""


def unavailable() -> str | None:
    """Why cuda-python can't be used here, with the install line."""
    if not any(_found(name) for name in ("cuda.bindings.runtime", "cuda.cudart")):
        return f"cuda-python is not installed for {sys.executable}; install it: {install_line('gpu')}"
    try:
        runtime()
    except (ImportError, OSError, RuntimeError) as error:
        return f"cuda-python is installed but can't be loaded: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return None


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def runtime() -> ModuleType:
    """The runtime API's module, by either layout."""
    name = "cuda.bindings.runtime" if _found("cuda.bindings.runtime") else "cuda.cudart"
    return importlib.import_module(name)


def check(what: str, result: Any) -> Any:
    """The value of a call, None if it has none, a tuple if several. Raises CudaError."""
    error, *values = result if isinstance(result, tuple) else (result,)
    if int(error) != 0:
        cu = runtime()
        text = cu.cudaGetErrorString(error)[1]
        words = text.decode() if isinstance(text, bytes) else str(text)
        raise CudaError(f"{what}: {getattr(error, 'name', error)}: {words}")
    return values[0] if len(values) == 1 else (tuple(values) if values else None)


def open_device(options: DeviceOptions) -> dict[str, Any]:
    """Makes the device current and returns its facts. Raises BackendUnavailableError or UsageError."""
    if reason := unavailable():
        raise BackendUnavailableError("the device can't be reached without cuda-python", why=reason)
    cu = runtime()
    try:
        count = check("cudaGetDeviceCount", cu.cudaGetDeviceCount())
    except CudaError as error:
        raise BackendUnavailableError(
            "CUDA sees no device here", do="nvidia-smi says whether the driver does.", detail=str(error)
        ) from error
    except RuntimeError as error:  # cuda-python says so itself when libcuda or libcudart is not there
        raise faults.library_missing("CUDA", error, "Install the NVIDIA driver, and cuda-python's runtime.") from error
    if options.index >= count:
        raise UsageError(
            f"device {options.device}: there {'is' if count == 1 else 'are'} {count} here", why="Counted from cuda:0."
        )
    try:
        check("cudaSetDevice", cu.cudaSetDevice(options.index))
        check("cudaFree", cu.cudaFree(0))  # makes the context now, so that its memory is not counted as the policy's
        properties = check("cudaGetDeviceProperties", cu.cudaGetDeviceProperties(options.index))
        driver = check("cudaDriverGetVersion", cu.cudaDriverGetVersion())
    except CudaError as error:
        raise BackendUnavailableError(f"{options.device} can't be opened", detail=str(error)) from error
    name = properties.name
    return {
        "device_name": (name.decode() if isinstance(name, bytes) else str(name)).rstrip("\x00"),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "integrated": bool(properties.integrated),
        "cuda_driver": f"{driver // 1000}.{driver % 1000 // 10}",
    }


class Stream:
    """A stream with its way of waiting. `handle` is the object that cuda-python wants, `address` the number others want."""

    def __init__(self, options: DeviceOptions) -> None:
        cu = self._cu = runtime()
        made = self._made = contextlib.ExitStack()
        least, greatest = check("cudaDeviceGetStreamPriorityRange", cu.cudaDeviceGetStreamPriorityRange())
        check_priority(options.priority, int(least), int(greatest), options.device)
        with Undo(made.close):
            created = cu.cudaStreamCreateWithPriority(cu.cudaStreamNonBlocking, options.priority)
            handle = self.handle = check("cudaStreamCreateWithPriority", created)
            made.callback(lambda: check("cudaStreamDestroy", cu.cudaStreamDestroy(handle)))
            flags = cu.cudaEventBlockingSync | cu.cudaEventDisableTiming
            self._event = _event(cu, flags, made) if options.sync == "block" else None
            self.priority = int(check("cudaStreamGetPriority", cu.cudaStreamGetPriority(handle)))
        self.address = int(handle)
        self.wait: Callable[[], None] = _waiting(cu, handle, options.sync, self._event)

    def busy(self) -> bool:
        """True while work is unfinished. Raises CudaError when that work failed."""
        (error,) = self._cu.cudaStreamQuery(self.handle)
        if error == self._cu.cudaError_t.cudaErrorNotReady:
            return True
        check("cudaStreamQuery", (error,))
        return False

    def close(self) -> None:
        """Destroys it."""
        self._made.close()


def _waiting(cu: ModuleType, handle: Any, sync: str, event: Any) -> Callable[[], None]:
    """Waits for a stream: by the driver's own choice, asleep, or polling. Closures, as in `gpu.runner`."""
    synchronise, query, busy = cu.cudaStreamSynchronize, cu.cudaStreamQuery, cu.cudaError_t.cudaErrorNotReady

    def by_the_driver() -> None:
        (error,) = synchronise(handle)
        if error:
            check("cudaStreamSynchronize", (error,))

    def asleep() -> None:
        check("cudaEventRecord", cu.cudaEventRecord(event, handle))
        check("cudaEventSynchronize", cu.cudaEventSynchronize(event))

    def polling() -> None:
        (error,) = query(handle)
        while error == busy:
            (error,) = query(handle)
        if error:
            check("cudaStreamQuery", (error,))

    return {"auto": by_the_driver, "block": asleep, "spin": polling}[sync]


class Marks:
    """Timed events in a row. `record(i)` in a stream, inside a capture too; `between(i, j)` once both have passed."""

    def __init__(self, count: int) -> None:
        self._cu, self._made = runtime(), contextlib.ExitStack()
        with Undo(self._made.close):
            self._events = [_event(self._cu, self._cu.cudaEventDefault, self._made) for _ in range(count)]

    def record(self, i: int, stream: Stream, *, captured: bool = False) -> None:
        """Places event i. In a capture it becomes a node that is stamped anew at every replay."""
        cu = self._cu
        flags = cu.cudaEventRecordExternal if captured else cu.cudaEventRecordDefault
        check("cudaEventRecordWithFlags", cu.cudaEventRecordWithFlags(self._events[i], stream.handle, flags))

    def between(self, i: int, j: int) -> int:
        """ns between two events; CUDA answers in ms with a resolution of about 0.5 µs."""
        ms = check("cudaEventElapsedTime", self._cu.cudaEventElapsedTime(self._events[i], self._events[j]))
        return round(float(ms) * 1e6)

    def close(self) -> None:
        """Destroys them."""
        self._made.close()


class Memory:
    """Allocations of one runner, freed together."""

    def __init__(self) -> None:
        self._cu = runtime()
        self._made = contextlib.ExitStack()
        self.pinned_bytes = 0

    def pinned(self, tensor: TensorSpec) -> tuple[Array, int, int]:
        """(array over pinned memory, its address, the device's address of the same memory)."""
        cu = self._cu
        size = max(1, tensor_bytes(tensor))
        flags = cu.cudaHostAllocMapped | cu.cudaHostAllocPortable
        host = int(check("cudaHostAlloc", cu.cudaHostAlloc(size, flags)))
        self._made.callback(lambda: check("cudaFreeHost", cu.cudaFreeHost(host)))
        self.pinned_bytes += size
        device = int(check("cudaHostGetDevicePointer", cu.cudaHostGetDevicePointer(host, 0)))
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host))
        raw[...] = 0
        array = raw[: tensor_bytes(tensor)].view(tensor.dtype).reshape(tensor.shape)
        return array, host, device

    def device(self, size: int) -> int:
        """The address of `size` bytes on the device, zeroed on return."""
        cu = self._cu
        address = int(check("cudaMalloc", cu.cudaMalloc(max(1, size))))
        self._made.callback(lambda: check("cudaFree", cu.cudaFree(address)))
        check("cudaMemset", cu.cudaMemset(address, 0, max(1, size)))
        # A memset returns before it has happened, and our streams don't wait for the default one: it could wipe out a later copy.
        check("cudaDeviceSynchronize", cu.cudaDeviceSynchronize())
        return address

    def close(self) -> None:
        """Frees everything."""
        self._made.close()


class Graph:
    """An instantiated graph captured from what `work` queues on the stream."""

    def __init__(self, stream: Stream, work: Callable[[], None]) -> None:
        cu = runtime()
        made = self._made = contextlib.ExitStack()
        with Undo(made.close), uncollected():
            graph = self._captured(cu, stream, work)
            made.callback(lambda: check("cudaGraphDestroy", cu.cudaGraphDestroy(graph)))
            self.nodes = graph_nodes(graph)
            if not self.nodes:
                raise CudaError("cudaStreamEndCapture: the captured graph is empty")
            executable = check("cudaGraphInstantiate", cu.cudaGraphInstantiate(graph, 0))
            made.callback(lambda: check("cudaGraphExecDestroy", cu.cudaGraphExecDestroy(executable)))
            check("cudaGraphUpload", cu.cudaGraphUpload(executable, stream.handle))
        launch, handle = cu.cudaGraphLaunch, stream.handle

        def replay() -> None:
            (error,) = launch(executable, handle)
            if error:
                check("cudaGraphLaunch", (error,))

        self.launch = replay

    @staticmethod
    def _captured(cu: ModuleType, stream: Stream, work: Callable[[], None]) -> Any:
        mode = cu.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        check("cudaStreamBeginCapture", cu.cudaStreamBeginCapture(stream.handle, mode))
        try:
            work()
        except BaseException:
            error, graph = cu.cudaStreamEndCapture(stream.handle)  # its own error would only repeat the one on its way
            if int(error) == 0:  # what raised left the capture sound
                cu.cudaGraphDestroy(graph)
            raise
        return check("cudaStreamEndCapture", cu.cudaStreamEndCapture(stream.handle))

    def close(self) -> None:
        """Destroys it."""
        self._made.close()


def _event(cu: ModuleType, flags: int, made: contextlib.ExitStack) -> Any:
    event = check("cudaEventCreateWithFlags", cu.cudaEventCreateWithFlags(flags))
    made.callback(lambda: check("cudaEventDestroy", cu.cudaEventDestroy(event)))
    return event


def graph_nodes(graph: Any) -> Mapping[str, int]:
    """Nodes of a captured graph by kind: kernel, memcpy, memset, …"""
    cu = runtime()
    if isinstance(graph, int):
        graph = cu.cudaGraph_t(init_value=graph)
    _, count = check("cudaGraphGetNodes", cu.cudaGraphGetNodes(graph, 0))
    if not count:
        return {}
    nodes, _ = check("cudaGraphGetNodes", cu.cudaGraphGetNodes(graph, count))
    found: dict[str, int] = {}
    for node in nodes:
        kind = check("cudaGraphNodeGetType", cu.cudaGraphNodeGetType(node))
        word = str(kind.name).removeprefix("cudaGraphNodeType").lower()
        found[word] = found.get(word, 0) + 1
    return found


def tensor_bytes(tensor: TensorSpec) -> int:
    """Bytes of a tensor's elements."""
    return int(math.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize
