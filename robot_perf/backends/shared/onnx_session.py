"""ONNX Runtime's sessions, on whatever device: settings, the model, sizes that a file leaves open, what the runtime refuses."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from robot_perf.backends.shared import cpu_options
from robot_perf.backends.shared.child import in_child
from robot_perf.backends.shared.text import first_line
from robot_perf.errors import PolicyError
from robot_perf.policies.observations import random_array
from robot_perf.specs import PolicySpec

PROVIDER = "CPUExecutionProvider"
SMALL_PARAMETERS = 5_000_000


def session_settings(policy: PolicySpec, options: Mapping[str, Any]) -> Any:
    """SessionOptions: threads, spinning, arena, log level. Raises PolicyError for an operator library that can't be loaded."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = _threads(policy, options)
    settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    settings.enable_cpu_mem_arena = cpu_options.flag(options, "arena", True)
    settings.log_severity_level = 3
    spin = "1" if cpu_options.flag(options, "spin", False) else "0"
    for pool in ("intra", "inter"):
        settings.add_session_config_entry(f"session.{pool}_op.allow_spinning", spin)
    if library := library_of(policy, options):
        try:
            settings.register_custom_ops_library(library)
        except runtime_errors() as error:
            raise refused(policy, error) from error
    return settings


def source_of(policy: PolicySpec) -> str | bytes:
    """The model: a file's path, a built-in's bytes."""
    if policy.kind != "builtin":
        return str(policy.path)
    from robot_perf.policies.builtin.onnx_model import render

    return render(policy.builtin, policy.seed)


def library_of(policy: PolicySpec, options: Mapping[str, Any]) -> str | None:
    """The custom operator library that was asked for, or that the policy came with."""
    library = options.get("ort_library") or policy.asked.get("ort_library")
    return None if library is None else str(library)


def refused(policy: PolicySpec, error: BaseException) -> PolicyError:
    """The runtime does not load the model."""
    import onnxruntime as ort

    return PolicyError(
        f"{policy.path or policy.name}: onnxruntime {ort.__version__} refuses to load it",
        do="Check it with onnx.checker, or export it again.",
        detail=first_line(error),
    )


def known_sizes(policy: PolicySpec, options: Mapping[str, Any]) -> PolicySpec:
    """`policy` with output sizes that its file leaves open, by two calls in a forked child; what differs there stays open."""
    if not any(n < 0 for t in policy.outputs for n in t.shape):
        return policy

    def sizes() -> list[list[list[int]]]:
        import onnxruntime as ort

        rng = np.random.default_rng(policy.seed)
        try:
            session = ort.InferenceSession(source_of(policy), session_settings(policy, options), providers=[PROVIDER])
            return [
                [list(a.shape) for a in session.run(None, {t.name: random_array(rng, t) for t in policy.inputs})]
                for _ in range(2)
            ]
        except runtime_errors() as error:
            raise refused(policy, error) from error

    first, second = in_child(policy.name, sizes)
    shapes = [tuple(a if a == b else -1 for a, b in zip(x, y, strict=True)) for x, y in zip(first, second, strict=True)]
    outputs = tuple(dataclasses.replace(t, shape=s) for t, s in zip(policy.outputs, shapes, strict=True))
    return dataclasses.replace(policy, outputs=outputs)


def _threads(policy: PolicySpec, options: Mapping[str, Any]) -> tuple[int, int]:
    small = policy.cost is None or policy.cost.parameters < SMALL_PARAMETERS
    intra = cpu_options.threads(options, "threads", least=0)
    inter = cpu_options.threads(options, "inter_threads", least=0)
    return (1 if small else 0) if intra is None else intra, 1 if inter is None else inter


def runtime_errors() -> tuple[type[BaseException], ...]:
    """Everything that the runtime raises."""
    # The runtime's exceptions derive from Exception directly, one by one.
    module = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    own = tuple(v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Exception))
    return (*own, RuntimeError, ValueError, OSError, TypeError)


def check_signature(policy: PolicySpec, session: Any) -> None:
    """Raises PolicyError when the session's inputs or outputs are not those of the description."""
    inputs = [i.name for i in session.get_inputs()]
    outputs = [o.name for o in session.get_outputs()]
    if inputs != [t.name for t in policy.inputs] or outputs != [t.name for t in policy.outputs]:
        raise PolicyError(
            f"{policy.name}: the runtime sees another signature than the file's description",
            why=f"Inputs {inputs}, outputs {outputs}.",
            do="The file changed between reading and loading: run again.",
        )
