"""Runs an engine: named tensors on static buffers, `execute_async_v3` on one stream, the whole step as a CUDA graph by default."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from robot_perf.backends.gpu import cudart, faults
from robot_perf.backends.gpu import options as device_options
from robot_perf.backends.gpu.buffers import Buffers
from robot_perf.backends.gpu.footprint import Footprint
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.backends.gpu.undo import Undo
from robot_perf.backends.gpu.work import StreamWork
from robot_perf.backends.protocol import Runner
from robot_perf.backends.trt import api as trt_api
from robot_perf.backends.trt.api import Api
from robot_perf.backends.trt.build import engine_for
from robot_perf.errors import BackendUnavailableError, PolicyError
from robot_perf.specs import PolicySpec

OWN = ("engine", "engine_cache", "builder_level", "workspace_mib")


def load(edition: str, policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner on a CUDA device. Options: those of `gpu.options` (cuda_graph on by default), and of `trt.build.engine_for`.

    Raises PolicyError, BackendUnavailableError, or InvalidMeasurementError when the step can't be captured.
    """
    if reason := trt_api.unavailable(edition):
        raise BackendUnavailableError(f"backend {edition} can't run here", why=reason)
    settled = device_options.read(options, edition, own=OWN, cuda_graph=True)
    device = cudart.open_device(settled)
    api = trt_api.load(edition)
    footprint = Footprint()
    engine = engine_for(api, policy, settled.precision, device, options)
    try:
        work = StreamWork(policy.name, settled)
        with Undo(work.close):
            policy = _fill(work, api, policy, settled, engine.plan, {**device, **engine.facts}, footprint)
            return QueuedRunner(policy, work)
    except (cudart.CudaError, MemoryError) as error:
        if faults.is_out_of_memory(error):
            raise faults.out_of_memory(policy.name, error) from error
        raise


def _fill(
    work: StreamWork,
    api: Api,
    policy: PolicySpec,
    options: DeviceOptions,
    plan: bytes,
    facts: Mapping[str, Any],
    footprint: Footprint,
) -> PolicySpec:
    """Runtime, engine, context and buffers into `work`; the policy as the engine has it.

    A context must not outlive its engine, nor an engine its runtime.
    """
    said, held = api.heard, work.held
    runtime = held["runtime"] = api.module.Runtime(api.logger)
    engine = held["engine"] = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise _refused(api, policy, "does not take its engine", said)
    context = held["context"] = engine.create_execution_context()
    if context is None:
        raise _refused(api, policy, "can't make an execution context", said)
    held_as = tensors(api, engine, policy)
    policy = _sized(context, policy)
    _bind(api, context, policy, work.allocate(policy, held_as))
    held["run"] = context.execute_async_v3

    def enqueue(address: int = work.stream.address) -> None:
        if not held["run"](address):
            raise RuntimeError(f"{api.name} could not queue the step: {api.last_words(said)}")

    found = {"backend": api.edition, "version": api.version, **facts, "held_as": dict(held_as)}
    found.setdefault("build_ns", None)
    work.start(enqueue, lambda: found | footprint.read(), capturable=options.cuda_graph, counted=enqueue)
    return policy


def tensors(api: Api, engine: Any, policy: PolicySpec) -> dict[str, str]:
    """Names whose dtype in the engine is not the file's, with the engine's dtype. Raises PolicyError for a missing tensor."""
    names = _names(engine)
    wanted = [t.name for t in (*policy.inputs, *policy.outputs)]
    lost = [n for n in wanted if n not in names]
    # An input that no output depends on is dropped by the builder: the policy never reads it.
    unread = {t.name for t in policy.inputs}
    if missing := [n for n in lost if n not in unread]:
        raise PolicyError(
            f"{policy.name}: the engine lacks output {', '.join(missing)}", why=f"It has {', '.join(sorted(names))}."
        )
    found = {}
    for tensor in (*policy.inputs, *policy.outputs):
        if tensor.name in lost:
            continue
        dtype = _numpy_name(api.module, engine.get_tensor_dtype(tensor.name))
        if dtype != tensor.dtype:
            if dtype not in ("int32", "int64", "float32"):
                raise PolicyError(
                    f"{policy.name}: {tensor.name} is {dtype} in the engine, {tensor.dtype} in the file",
                    do="Export it with float32 inputs and outputs.",
                )
            found[tensor.name] = dtype
    return found


def _numpy_name(trt: Any, dtype: Any) -> str:
    try:
        return str(trt.nptype(dtype).__name__).rstrip("_")
    except TypeError:
        return str(dtype).rsplit(".", 1)[-1].lower()


def _sized(context: Any, policy: PolicySpec) -> PolicySpec:
    """`policy` with output sizes that its file leaves open, as the engine has them for these inputs."""
    names = _names(context.engine)
    for tensor in policy.inputs:
        if tensor.name in names and -1 in tuple(context.engine.get_tensor_shape(tensor.name)):
            context.set_input_shape(tensor.name, tensor.shape)
    outputs = []
    for tensor in policy.outputs:
        shape = tuple(int(n) for n in context.get_tensor_shape(tensor.name))
        known = all(n >= 0 for n in tensor.shape)
        if (known and shape != tensor.shape) or any(n < 0 for n in shape):
            raise PolicyError(
                f"{policy.name}: output {tensor.name} is {list(shape)} in the engine, {list(tensor.shape)} in the file",
                do="An output whose size depends on its values can't be run by this backend: use onnxruntime.",
            )
        outputs.append(dataclasses.replace(tensor, shape=shape))
    return dataclasses.replace(policy, outputs=tuple(outputs))


def _names(engine: Any) -> set[str]:
    return {engine.get_tensor_name(i) for i in range(engine.num_io_tensors)}


def _bind(api: Api, context: Any, policy: PolicySpec, buffers: Buffers) -> None:
    names = _names(context.engine)
    for name, address in {**buffers.inputs, **buffers.outputs}.items():
        if name in names and not context.set_tensor_address(name, address):
            raise PolicyError(f"{policy.name}: {api.name} refuses the address of {name}", detail=api.last_words())


def _refused(api: Api, policy: PolicySpec, what: str, said: int) -> PolicyError:
    words = api.last_words(said)
    if faults.is_out_of_memory(RuntimeError(words)):
        return faults.out_of_memory(policy.name, RuntimeError(words))
    return PolicyError(
        f"{policy.name}: {api.name} {what}", why=words, do="Delete the kept engine, or use another precision."
    )
