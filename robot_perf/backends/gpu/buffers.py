"""The static buffers of a policy on a device without torch: pinned arrays, device addresses, and the copies between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.backends.gpu.cudart import Memory, Stream, check, runtime, tensor_bytes
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.undo import Undo
from robot_perf.backends.protocol import Array
from robot_perf.policies.observations import initial_state
from robot_perf.specs import PolicySpec, TensorSpec

Copy = tuple[int, int, int]  # target, source, bytes


class Buffers:
    """`inputs` and `outputs` are device addresses by name; `staged` and `answers` the host's arrays by position.

    `dtypes` names tensors that the runtime holds in another dtype than the file says (TensorRT before 10 keeps int64 as int32).
    With mapped buffers the device reads and writes the pinned memory itself: no copy is queued for them. `runtime_downloads`: nor is one
    for an output that is not carried, for the runtime copies it to the host's address in `outputs`; `on_host` names those.
    """

    def __init__(
        self,
        policy: PolicySpec,
        options: DeviceOptions,
        dtypes: Mapping[str, str] | None = None,
        *,
        runtime_downloads: bool = False,
    ) -> None:
        self._cu = runtime()
        kinds = self._cu.cudaMemcpyKind
        self._to_device, self._to_host = kinds.cudaMemcpyHostToDevice, kinds.cudaMemcpyDeviceToHost
        self._on_device = kinds.cudaMemcpyDeviceToDevice
        self._policy, self._memory, self._dtypes = policy, Memory(), dict(dtypes or {})
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        self.staged: list[Array] = []
        self.answers: list[Array] = []
        self._uploads: list[Copy] = []
        self._downloads: list[Copy] = []
        self._own_outputs: list[tuple[int, int]] = []
        self._aside: list[Copy] = []
        self.on_host: set[str] = set()
        inputs, outputs = policy.inputs, policy.outputs
        with Undo(self._memory.close):
            self._allocate(policy, options.mapped, runtime_downloads)
            self._carried: list[Copy] = [
                (self.inputs[inputs[p.target].name], self.outputs[outputs[p.source].name], self._size(inputs[p.target]))
                for p in policy.state
            ]
            self._initial = [
                np.ascontiguousarray(a.astype(self._held(inputs[p.target]).dtype, copy=False))
                for p, a in zip(policy.state, initial_state(policy), strict=True)
            ]
            self.restart()

    def _held(self, tensor: TensorSpec) -> TensorSpec:
        return dataclasses.replace(tensor, dtype=self._dtypes.get(tensor.name, tensor.dtype))

    def _size(self, tensor: TensorSpec) -> int:
        return tensor_bytes(self._held(tensor))

    def _allocate(self, policy: PolicySpec, mapped: bool, runtime_downloads: bool) -> None:
        fed = set(policy.fed)
        for i, tensor in enumerate(policy.inputs):
            size = self._size(tensor)
            if i not in fed:
                self.inputs[tensor.name] = self._memory.device(size)
                continue
            array, host, seen = self._memory.pinned(self._held(tensor))
            self.staged.append(array)
            self.inputs[tensor.name] = seen if mapped else self._memory.device(size)
            if not mapped and size:
                self._uploads.append((self.inputs[tensor.name], host, size))
        carried = {p.source for p in policy.state}
        for i, tensor in enumerate(policy.outputs):
            size = self._size(tensor)
            array, host, seen = self._memory.pinned(self._held(tensor))
            self.answers.append(array)
            # A repeated output name is one tensor of the runtime, copied to each of its positions. State stays on the device:
            # reading it back through the host's memory would cost its next step.
            first = tensor.name not in self.outputs
            alone = sum(t.name == tensor.name for t in policy.outputs) == 1
            if (mapped or runtime_downloads) and alone and i not in carried:
                self.outputs[tensor.name] = seen if mapped else host
                if not mapped:
                    self.on_host.add(tensor.name)
                continue
            if first:
                self.outputs[tensor.name] = self._memory.device(size)
                self._own_outputs.append((self.outputs[tensor.name], size))
            if size:
                self._downloads.append((host, self.outputs[tensor.name], size))

    def uploading(self, stream: Stream) -> Callable[[], None]:
        """What queues host to device."""
        return self._queueing(self._uploads, self._to_device, stream)

    def feeding_back(self, stream: Stream) -> Callable[[], None]:
        """What queues state outputs into state inputs."""
        return self._queueing(self._carried, self._on_device, stream)

    def downloading(self, stream: Stream) -> Callable[[], None]:
        """What queues device to host."""
        return self._queueing(self._downloads, self._to_host, stream)

    def _queueing(self, copies: Sequence[Copy], kind: Any, stream: Stream) -> Callable[[], None]:
        """A closure, as in `gpu.runner`: without a graph it is part of every step."""
        queue, handle, fixed = self._cu.cudaMemcpyAsync, stream.handle, tuple(copies)

        def queue_all() -> None:
            for target, source, size in fixed:
                (error,) = queue(target, source, size, kind, handle)
                if error:
                    check("cudaMemcpyAsync", (error,))

        return queue_all

    @property
    def carries(self) -> bool:
        """True when outputs feed inputs."""
        return any(size for _, _, size in self._carried)

    def keep(self, stream: Stream) -> None:
        """Queues a copy of the carried values aside, into memory that is made once."""
        if not self._aside:
            self._aside = [(self._memory.device(size), target, size) for target, _, size in self._carried if size]
        self._queueing(self._aside, self._on_device, stream)()

    def put_back(self, stream: Stream) -> None:
        """Queues the kept values back."""
        back = [(target, place, size) for place, target, size in self._aside]
        self._queueing(back, self._on_device, stream)()

    def restart(self) -> None:
        """Carried state at its start, complete on return."""
        for (target, _, size), value in zip(self._carried, self._initial, strict=True):
            if size:
                check("cudaMemcpy", self._cu.cudaMemcpy(target, value.ctypes.data, size, self._to_device))
        check("cudaDeviceSynchronize", self._cu.cudaDeviceSynchronize())

    def poison(self) -> None:
        """Every bit of the device's own output buffers: NaN in any floating-point format."""
        for address, size in self._own_outputs:
            check("cudaMemset", self._cu.cudaMemset(address, 0xFF, max(1, size)))
        check("cudaDeviceSynchronize", self._cu.cudaDeviceSynchronize())

    def state(self) -> dict[str, Array]:
        """Carried values by input name, on the host."""
        found = {}
        for pair, (target, _, size) in zip(self._policy.state, self._carried, strict=True):
            tensor = self._held(self._policy.inputs[pair.target])
            array = np.zeros(tensor.shape, tensor.dtype)
            if size:
                check("cudaMemcpy", self._cu.cudaMemcpy(array.ctypes.data, target, size, self._to_host))
            found[tensor.name] = array
        return found

    @property
    def pinned_bytes(self) -> int:
        """Bytes of pinned host memory."""
        return self._memory.pinned_bytes

    def close(self) -> None:
        """Frees all of it."""
        self.staged, self.answers = [], []
        self._memory.close()
