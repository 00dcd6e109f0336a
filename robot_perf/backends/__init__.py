"""Backends: a literal table, imported on use. A new backend is one file, one line here, one test."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from robot_perf.backends.protocol import Runner
from robot_perf.errors import BackendUnavailableError, PolicyError, UsageError
from robot_perf.policies.builtin import NETWORKS
from robot_perf.specs import PolicySpec

BACKENDS: dict[str, str] = {
    "python": "robot_perf.backends.python",
    "onnxruntime": "robot_perf.backends.onnxruntime",
    "eager": "robot_perf.backends.eager",
    "compile": "robot_perf.backends.compile",
    "cuda_graph": "robot_perf.backends.cuda_graph",
    "tensorrt": "robot_perf.backends.tensorrt",
    "tensorrt_rtx": "robot_perf.backends.tensorrt_rtx",
}


def backend_module(name: str) -> ModuleType:
    """The module of a backend. Raises UsageError with the allowed names."""
    if name not in BACKENDS:
        raise UsageError(f"backend {name!r} is unknown", why=f"Known: {', '.join(BACKENDS)}.")
    return importlib.import_module(BACKENDS[name])


def why_not(name: str, policy: PolicySpec) -> str | None:
    """Why backend `name` can't take the policy's format; None when it can. A pipeline is asked stage by stage."""
    if policy.kind != "pipeline":
        reason: str | None = backend_module(name).takes(policy)
        return reason
    for stage in policy.stages:
        chosen = str(stage.policy.asked.get("backend") or name)
        if found := why_not(chosen, stage.policy):
            return f"Stage {stage.name} on {chosen}: {found}"
    return None


def load(name: str, policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A loaded runner; a pipeline's stages each run on `name` unless the stage states its own backend.

    Raises BackendUnavailableError or PolicyError; never returns another backend's runner.
    """
    if policy.kind == "pipeline":
        backend_module(name)
        from robot_perf.backends import pipeline

        return pipeline.load(name, policy, options, load)
    module = backend_module(name)
    if reason := module.unavailable():
        raise BackendUnavailableError(f"backend {name} can't run here", why=reason)
    if reason := module.takes(policy):
        raise PolicyError(f"{policy.name}: backend {name} can't take it", why=reason)
    runner: Runner = module.load(policy, options)
    return runner


def default_backend(policy: PolicySpec) -> str:
    """onnxruntime for ONNX and the built-in networks, eager for torch files and factories, python for null, spin and numpy.

    A factory's module is not imported to find out: `policies` looked whether its source imports torch. A pipeline takes the
    backend of its first stage; a stage may state another one.
    """
    if policy.kind == "pipeline":
        return default_backend(policy.stages[0].policy)
    if policy.kind in ("torchscript", "torch_export") or policy.metadata.get("factory_uses") == "torch":
        return "eager"
    if policy.kind == "onnx" or policy.builtin.get("name") in NETWORKS:
        return "onnxruntime"
    return "python"
