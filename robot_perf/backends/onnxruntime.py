"""The `onnxruntime` backend: on the CPU sequential, spinning off, threads stated; on a CUDA device by `gpu.ort`.

One thread is the default below 5 M parameters: the runtime's own default, a spinning thread per core, starves the rest of a
robot's computer and gains nothing at these sizes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

from robot_perf.backends.gpu import options as gpu_options
from robot_perf.backends.protocol import Array, Arrays, Runner
from robot_perf.backends.shared import cpu_options
from robot_perf.backends.shared.closed import closed
from robot_perf.backends.shared.formats import taken_by
from robot_perf.backends.shared.onnx_session import (
    PROVIDER,
    check_signature,
    known_sizes,
    library_of,
    refused,
    runtime_errors,
    session_settings,
    source_of,
)
from robot_perf.backends.shared.text import first_line
from robot_perf.errors import PolicyError, UsageError, install_line
from robot_perf.policies.builtin import NETWORKS
from robot_perf.policies.observations import initial_state
from robot_perf.specs import PolicySpec

OPTIONS = ("inter_threads", "spin", "arena", "provider")


def unavailable() -> str | None:
    """Why onnxruntime can't run here, with the install line."""
    try:
        import onnxruntime  # noqa: F401 - a wheel may be there and still lack a library that it links to
    except (ImportError, OSError) as error:
        if importlib.util.find_spec("onnxruntime") is None:
            return f"onnxruntime is not installed for {sys.executable}; install it: {install_line('onnx')}"
        return f"onnxruntime is installed but can't be imported: {first_line(error)}"
    return None


def takes(policy: PolicySpec) -> str | None:
    """Why this backend can't take the policy's format; None when it can."""
    if policy.kind == "onnx" or (policy.kind == "builtin" and policy.builtin["name"] in NETWORKS):
        return None
    if policy.kind in ("torchscript", "torch_export"):
        return f"It runs ONNX; {taken_by(policy)}. Or export the network to ONNX."
    return "It runs ONNX files and the built-in networks; use --backend python."


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A session on the CPU provider, or on a CUDA device by `robot_perf.backends.gpu.ort`.

    Options: `threads` (intra-op), `inter_threads`, `spin` (default False), `arena` (default True), `ort_library`, `device`.
    Raises PolicyError with the runtime's first line when it refuses the model.
    """
    import onnxruntime as ort

    if gpu_options.on_cuda(options):
        from robot_perf.backends.gpu import ort as on_cuda

        return on_cuda.load(policy, options)
    cpu_options.check(options, "onnxruntime", OPTIONS)
    if str(options.get("provider") or "cpu") != "cpu":
        raise UsageError(f"provider {options['provider']} runs on a CUDA device", do="Add --device cuda:0.")
    settings = session_settings(policy, options)
    policy = known_sizes(policy, options)
    try:
        session = ort.InferenceSession(source_of(policy), settings, providers=[PROVIDER])
    except runtime_errors() as error:
        raise refused(policy, error) from error
    session.disable_fallback()
    if session.get_providers() != [PROVIDER]:
        raise PolicyError(f"{policy.name}: onnxruntime uses {session.get_providers()} instead of {PROVIDER}")
    check_signature(policy, session)
    return OnnxRunner(
        policy,
        session,
        {
            "threads": settings.intra_op_num_threads,
            "inter_threads": settings.inter_op_num_threads,
            "arena": settings.enable_cpu_mem_arena,
            "spin": cpu_options.flag(options, "spin", False),
            "ort_library": library_of(policy, options),
        },
    )


class OnnxRunner:
    """One session; state outputs of a step are the state inputs of the next, without a copy."""

    def __init__(self, policy: PolicySpec, session: Any, settings: Mapping[str, Any]) -> None:
        self.spec = policy
        self._session = session
        self._settings = dict(settings)
        self._run = session.run
        self._outputs = [t.name for t in policy.outputs]
        self._feed: dict[str, Array] = {}
        self._fed = [policy.inputs[i].name for i in policy.fed]
        self._carried = [(policy.inputs[p.target].name, p.source) for p in policy.state]
        self._initial = initial_state(policy)
        self.reset()

    def step(self, observation: Arrays) -> Arrays:
        """All outputs by position; a repeated name gives its value at each of its positions."""
        feed = self._feed
        for name, array in zip(self._fed, observation):  # noqa: B905 - checked once in reset's caller, not in every step
            feed[name] = array
        outputs: list[Array] = self._run(self._outputs, feed)
        for name, source in self._carried:
            feed[name] = outputs[source]
        return outputs

    def rehearse_on(self, observation: Arrays) -> None:
        """The same work for keep-warm: the outputs are thrown away, the state stays as it is."""
        feed = self._feed
        for name, array in zip(self._fed, observation):  # noqa: B905 - checked once in reset's caller, not in every step
            feed[name] = array
        self._run(self._outputs, feed)

    def reset(self) -> None:
        """The initial state again: zeros, or the recorded values."""
        for (name, _), value in zip(self._carried, self._initial, strict=True):
            self._feed[name] = value

    def state(self) -> Mapping[str, Array]:
        """The carried values by input name."""
        return {name: self._feed[name] for name, _ in self._carried}

    def counters(self) -> Mapping[str, int]:
        """No event can spoil the window: no provider can change and nothing is compiled after loading."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Version, the providers really used, threads, spinning, arena."""
        import onnxruntime as ort

        return {
            "backend": "onnxruntime",
            "onnxruntime": ort.__version__,
            "providers": self._session.get_providers(),
            "execution": "sequential",
            **self._settings,
        }

    def close(self) -> None:
        """Frees the session."""
        self._feed.clear()
        self._run = self._session = closed
