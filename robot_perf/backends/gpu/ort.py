"""ONNX Runtime on a CUDA device: I/O bound to static buffers, one stream, its CUDA graph where asked for, no node on the CPU unasked.

The session computes on our stream. As a graph, policy and copies are queued together and waited for once. Without one a run ends in a
wait of the session's own, and a copy of ours would come after it and be waited for again: on CUDA's provider, unless buffers are mapped,
the session copies the answers to the host itself, before that wait. State is copied by us: its outputs stay on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robot_perf.backends.gpu import cudart, faults, ort_session
from robot_perf.backends.gpu import options as device_options
from robot_perf.backends.gpu.buffers import Buffers
from robot_perf.backends.gpu.footprint import Footprint
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.backends.gpu.undo import Undo, let_go
from robot_perf.backends.gpu.work import WITHOUT_GRAPH, StreamWork
from robot_perf.backends.protocol import Runner
from robot_perf.backends.shared import cpu_options
from robot_perf.backends.shared.onnx_session import check_signature, known_sizes, runtime_errors
from robot_perf.backends.shared.text import first_line
from robot_perf.errors import UsageError
from robot_perf.policies.asked import shown
from robot_perf.specs import PolicySpec

OWN = ("provider", "allow_cpu_nodes", "inter_threads", "conv_search")
# The first runs allocate and choose kernels; with a CUDA graph the runtime captures in the second or third of them.
WARM_UPS = 4


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner on a CUDA device.

    Options: those of `gpu.options`; `provider` (cuda, tensorrt), `allow_cpu_nodes` (False), `threads`, `inter_threads`,
    `conv_search` (the provider's own `cudnn_conv_algo_search`). Raises BackendUnavailableError for a missing provider or
    library, PolicyError for a model or node that it does not take.
    """
    settled = device_options.read(options, "onnxruntime", own=OWN)
    provider = str(options.get("provider") or "cuda")
    if provider not in ort_session.PROVIDERS:
        raise UsageError(
            f"provider {shown(provider)} is not offered on a CUDA device",
            why=f"Offered: {', '.join(ort_session.PROVIDERS)}.",
        )
    allowed = cpu_options.flag(options, "allow_cpu_nodes", False)
    ort_session.check_present(provider)
    arithmetic = ort_session.check_arithmetic(provider, settled.precision)
    policy = known_sizes(policy, options)
    device = {**cudart.open_device(settled), **arithmetic}
    ort_session.preload()
    footprint = Footprint()
    work = StreamWork(policy.name, settled)
    with Undo(work.close):
        _fill(work, policy, options, settled, provider, allowed, device, footprint)
        _warm_up(policy, work, settled)
        return QueuedRunner(policy, work)


def _fill(
    work: StreamWork,
    policy: PolicySpec,
    options: Mapping[str, Any],
    settled: DeviceOptions,
    provider: str,
    allowed: bool,
    device: Mapping[str, Any],
    footprint: Footprint,
) -> None:
    """Session, buffers and binding into `work`. No other name of them is left: the session must end while its stream exists."""
    source = ort_session.in_precision(policy, settled.precision, provider)
    chosen = ort_session.provider_options(provider, settled, work.stream.address, options)
    session = work.held["session"] = ort_session.open_session(policy, options, source, chosen, allowed)
    check_signature(policy, session)
    buffers = _allocated(work, policy, runtime_downloads=provider == "cuda" and not settled.cuda_graph)
    work.held["binding"] = _bound(buffers, policy, session, settled)
    work.held["run"] = session.run_with_iobinding
    # TensorRT's provider has a graph of its own, and the nodes that it leaves to CUDA's are run as without one.
    own_graph = settled.cuda_graph and provider == "cuda"
    enqueue = _queued(work.held, waits=not own_graph)
    counted = None if settled.cuda_graph else _queued(work.held, waits=False)
    facts = {
        "backend": "onnxruntime",
        **_versions(session),
        **device,
        "provider_options": {k: v for k, v in chosen[0][1].items() if "stream" not in k},
        "allow_cpu_nodes": allowed,
        # a run that ends in a wait of the runtime's own is over by then, whatever our stream is waited for with
        **({} if own_graph else {"sync": "runtime"}),
        **({"copied_by_runtime": sorted(buffers.on_host)} if buffers.on_host else {}),
        "captured": settled.cuda_graph,
        "captured_as": "the provider's own graph, without the copies" if settled.cuda_graph else None,
        "launches_per_step": 1 if settled.cuda_graph else None,
        "build_ns": None,
        **({"cpu_nodes": ort_session.cpu_nodes(policy, options, source, chosen)} if allowed else {}),
    }
    work.start(enqueue, lambda: facts | footprint.read(), capturable=False, counted=counted)


def _allocated(work: StreamWork, policy: PolicySpec, *, runtime_downloads: bool) -> Buffers:
    try:
        return work.allocate(policy, runtime_downloads=runtime_downloads)
    except cudart.CudaError as error:
        if faults.is_out_of_memory(error):
            raise faults.out_of_memory(policy.name, error) from error
        raise


def _bound(buffers: Buffers, policy: PolicySpec, session: Any, settled: DeviceOptions) -> Any:
    binding = session.io_binding()
    for tensor in policy.inputs:
        kind = np.dtype(tensor.dtype).type
        binding.bind_input(tensor.name, "cuda", settled.index, kind, tensor.shape, buffers.inputs[tensor.name])
    for name, address in buffers.outputs.items():
        tensor = next(t for t in policy.outputs if t.name == name)
        place, index = ("cpu", 0) if name in buffers.on_host else ("cuda", settled.index)
        binding.bind_output(name, place, index, np.dtype(tensor.dtype).type, tensor.shape, address)
    return binding


def _queued(held: Mapping[str, Any], *, waits: bool) -> Callable[[], None]:
    """Queues a run, which ends in a wait of the runtime's own, with the answers on the host; only its graph does without.

    In that wait the runtime takes back the pinned buffers that a run borrowed (an LSTM's, say). Without it they pile up from step
    to step, and ending the session frees them in a CUDA callback, which may not: onnxruntime-gpu 1.30 aborted there on an H200.
    Its graph's replays borrow nothing, and what the graph was captured with must stay where it is. A run that is only captured
    may not wait; it is followed by one that does.
    """
    raised = runtime_errors()
    given = () if waits else (_without_wait(),)

    def queue() -> None:
        try:
            held["run"](held["binding"], *given)
        except raised as error:
            # The runtime's own frames hold the session, and somebody may keep the error: a node does, until its cleanup.
            let_go(error)
            raise RuntimeError(f"onnxruntime: {first_line(error)}") from error

    return queue


def _without_wait() -> Any:
    """Options of a run that returns with its work queued.

    `gpu_graph_id` numbers the one graph that there is. The runtime's Python side (1.30, 1.32) looks it up in any options that it is given,
    and where it is not there catches an exception from C++: with such options each run was 37 µs longer on a CPU (41.4 for 4.6, n 6,000:
    `benchmarks/run_options.py --preset tiny`) and 42 beside an H200 (124 for 82, n 2,400). A run that waits is given none.
    """
    import onnxruntime as ort

    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    options.add_run_config_entry("gpu_graph_id", "1")
    return options


def _warm_up(policy: PolicySpec, work: StreamWork, settled: DeviceOptions) -> None:
    """Only for a graph, which the runtime captures in its first runs: without one the loop shall see the first call."""
    if not settled.cuda_graph:
        return
    try:
        for _ in range(WARM_UPS):
            work.run_policy()
    except RuntimeError as error:
        if faults.is_out_of_memory(error):
            raise faults.out_of_memory(policy.name, error) from error
        told = faults.not_captured(policy.name, error)
        told.do = WITHOUT_GRAPH
        raise told from error
    work.reset()


def _versions(session: Any) -> dict[str, Any]:
    import onnxruntime as ort

    return {"onnxruntime": ort.__version__, "providers": session.get_providers(), "execution": "sequential"}
