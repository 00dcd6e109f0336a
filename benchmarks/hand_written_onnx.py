"""Steps that one writes by hand with ONNX Runtime: on the CPU, on CUDA as its documentation has it, and with memory of one's own."""

from __future__ import annotations

import time
from contextlib import nullcontext

import numpy as np
from hand_written import Around, Step

from robot_perf.backends.gpu.cudart import Stream
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.shared.onnx_session import session_settings, source_of


def on_cpu(spec, observations) -> tuple[Step, Around]:
    """`session.run` with the product's settings of the session (threads, spinning), a dictionary of arrays, and all outputs."""
    import onnxruntime as ort

    session = ort.InferenceSession(source_of(spec), session_settings(spec, {}), providers=["CPUExecutionProvider"])
    fed, action = spec.inputs[0].name, spec.action
    carried = [(spec.inputs[pair.target].name, pair.source) for pair in spec.state]
    feed = {
        name: np.zeros(spec.inputs[pair.target].shape, np.float32)
        for (name, _), pair in zip(carried, spec.state, strict=True)
    }
    run, now, at = session.run, time.monotonic_ns, observations.reader()

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        feed[fed] = observation
        outputs = run(None, feed)
        for name, source in carried:
            feed[name] = outputs[source]
        _ = outputs[action][0, 0]
        return now() - start

    return step, nullcontext


def documented(spec, observations, **options: str) -> tuple[Step, Around]:
    """A session of the same model on CUDA's provider with these options of it, inputs and outputs bound on the host."""
    import onnxruntime as ort

    if spec.state:
        raise SystemExit("--backend onnxruntime takes policies without state on a device")
    session = ort.InferenceSession(source_of(spec), providers=[("CUDAExecutionProvider", options)])
    binding = session.io_binding()
    for output in spec.outputs:
        binding.bind_output(output.name, "cpu")
    run, fed, action = session.run_with_iobinding, spec.inputs[0].name, spec.action
    now, at = time.monotonic_ns, observations.reader()

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        binding.bind_cpu_input(fed, observation)
        run(binding)
        answer = binding.copy_outputs_to_cpu()[action]
        _ = answer[0, 0]
        return now() - start

    return step, nullcontext


def bound(spec, observations, *, download: bool) -> tuple[Step, Around]:
    """Device memory and a stream of ours bound once, the observation copied by us. The answers: by us after the run, or by its session."""
    import onnxruntime as ort
    from cuda.bindings import runtime as cu

    from robot_perf.backends.gpu.buffers import Buffers

    options = DeviceOptions()
    stream, buffers = Stream(options), Buffers(spec, options, runtime_downloads=not download)
    chosen = {"use_tf32": "0", "user_compute_stream": str(stream.address)}
    session = ort.InferenceSession(source_of(spec), providers=[("CUDAExecutionProvider", chosen)])
    binding = session.io_binding()
    for t in spec.inputs:
        binding.bind_input(t.name, "cuda", 0, np.dtype(t.dtype).type, t.shape, buffers.inputs[t.name])
    for t in spec.outputs:
        place = "cuda" if download else "cpu"
        binding.bind_output(t.name, place, 0, np.dtype(t.dtype).type, t.shape, buffers.outputs[t.name])
    copy, wait, to_device, to_host = (
        cu.cudaMemcpyAsync,
        cu.cudaStreamSynchronize,
        cu.cudaMemcpyKind.cudaMemcpyHostToDevice,
        cu.cudaMemcpyKind.cudaMemcpyDeviceToHost,
    )
    view, answer = buffers.staged[0], buffers.answers[spec.action]
    source, target, size = view.ctypes.data, buffers.inputs[spec.inputs[0].name], view.nbytes
    given, taken, many = answer.ctypes.data, buffers.outputs[spec.outputs[spec.action].name], answer.nbytes
    run, handle, now, at = session.run_with_iobinding, stream.handle, time.monotonic_ns, observations.reader()

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        view[...] = observation
        copy(target, source, size, to_device, handle)
        run(binding)
        if download:
            copy(given, taken, many, to_host, handle)
            wait(handle)
        _ = answer[0, 0]
        return now() - start

    return step, nullcontext
