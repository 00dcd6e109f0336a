"""Steps that one writes by hand, which minimal_graph_loop.py holds robot-perf's step against: with TensorRT, and without a device.

Those with torch and with ONNX Runtime are in hand_written_torch.py and hand_written_onnx.py.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

Step = Callable[[int], int]  # step number -> execution, ns
Around = Callable[[], AbstractContextManager[object]]  # what a block of steps runs in: the stream of a torch loop


def minimal_tensorrt(spec, observations, plan: bytes) -> tuple[Step, Around]:
    """The same engine, captured and replayed through cuda-python."""
    import ctypes

    import tensorrt as trt
    from cuda.bindings import runtime as cu

    def ok(result):
        if int(result[0]):
            raise RuntimeError(str(result[0]))
        return result[1] if len(result) > 1 else None

    logger = trt.Logger(trt.Logger.ERROR)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    stream = ok(cu.cudaStreamCreateWithFlags(cu.cudaStreamNonBlocking))
    place: dict[str, tuple[int, np.ndarray, int]] = {}
    for tensor in (*spec.inputs, *spec.outputs):
        array = np.zeros(tensor.shape, tensor.dtype)
        host = ok(cu.cudaHostAlloc(array.nbytes, cu.cudaHostAllocDefault))
        view = np.frombuffer((ctypes.c_byte * array.nbytes).from_address(int(host)), tensor.dtype).reshape(tensor.shape)
        view[...] = 0
        device = ok(cu.cudaMalloc(array.nbytes))
        ok(cu.cudaMemset(device, 0, array.nbytes))
        place[tensor.name] = (int(host), view, int(device))
        context.set_tensor_address(tensor.name, int(device))
    action, fed = spec.outputs[spec.action].name, spec.inputs[0].name
    to_host, to_device, between = (
        cu.cudaMemcpyKind.cudaMemcpyDeviceToHost,
        cu.cudaMemcpyKind.cudaMemcpyHostToDevice,
        cu.cudaMemcpyKind.cudaMemcpyDeviceToDevice,
    )

    def body() -> None:
        host, view, device = place[fed]
        ok(cu.cudaMemcpyAsync(device, host, view.nbytes, to_device, stream))
        if not context.execute_async_v3(int(stream)):
            raise RuntimeError("execute_async_v3 failed")
        for pair in spec.state:
            source, target = place[spec.outputs[pair.source].name], place[spec.inputs[pair.target].name]
            ok(cu.cudaMemcpyAsync(target[2], source[2], source[1].nbytes, between, stream))
        for output in spec.outputs:
            host, view, device = place[output.name]
            ok(cu.cudaMemcpyAsync(host, device, view.nbytes, to_host, stream))

    for _ in range(5):
        body()
    ok(cu.cudaStreamSynchronize(stream))
    ok(cu.cudaStreamBeginCapture(stream, cu.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal))
    body()
    graph = ok(cu.cudaStreamEndCapture(stream))
    executable = ok(cu.cudaGraphInstantiate(graph, 0))
    launch, wait, now, at = cu.cudaGraphLaunch, cu.cudaStreamSynchronize, time.monotonic_ns, observations.reader()
    view, answer = place[fed][1], place[action][1]
    kept = (runtime, engine, context)

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        view[...] = observation
        launch(executable, stream)
        wait(stream)
        _ = answer[0, 0], kept
        return now() - start

    return step, nullcontext


class StandIn:
    """A `Work` whose launch and wait do nothing, in the form that cuda-python's have: a call that returns a tuple with an error."""

    def __init__(self, spec) -> None:
        self.staged = [np.zeros(spec.inputs[i].shape, spec.inputs[i].dtype) for i in spec.fed]
        self.answers = [np.zeros(t.shape, t.dtype) for t in spec.outputs]
        self.launch, self.wait = self.call("launch"), self.call("wait")
        self.busy, self.device_ns, self.phases_ns = bool, int, int  # each a C call that answers nothing, falsely

    @staticmethod
    def queue() -> Callable[[], tuple[int]]:
        """A C call that returns (0,)."""
        return functools.partial(tuple, (0,))

    def call(self, name: str) -> Callable[[], None]:
        """The call as the product makes it: its error looked at."""
        queue = self.queue()

        def call() -> None:
            (error,) = queue()
            if error:
                raise RuntimeError(name)

        return call

    def close(self) -> None:
        """Holds nothing."""


def minimal_stand_in(spec, observations) -> tuple[Step, Around]:
    """By hand: the observation into its place, both calls, a look at the answer."""
    work = StandIn(spec)
    launch, wait, now, at = work.queue(), work.queue(), time.monotonic_ns, observations.reader()
    view, answer = work.staged[0], work.answers[spec.action]

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        view[...] = observation
        launch()
        wait()
        _ = answer[0, 0]
        return now() - start

    return step, nullcontext


def engine_plan(spec, facts) -> bytes:
    """The engine that the runner has just read or built: the kept one of this policy on the device of these facts."""
    from robot_perf.backends.trt import api, build

    found = build.engine_for(api.load("tensorrt"), spec, facts["precision"], facts, {})
    if found.facts["engine"] != "kept":
        raise SystemExit("the runner's engine was not kept: nothing to compare with")
    return found.plan
