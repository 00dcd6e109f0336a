"""The `compile` backend: torch.compile over a torch module. Compiles, graph breaks and skipped CUDA graphs are counted.

The first call compiles, which takes seconds; a compile inside the measured window makes the measurement INVALID, with the guard
that failed. Modes with CUDA graphs (reduce-overhead, max-autotune) skip them for reasons of their own; each one is said. None at
all is INVALID, and so is a policy that torch stopped compiling, or never began to: by default it would run in eager mode.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from robot_perf.backends import eager
from robot_perf.backends.gpu import options as gpu_options
from robot_perf.backends.gpu.undo import Undo
from robot_perf.backends.protocol import Runner
from robot_perf.backends.shared import cpu_options
from robot_perf.backends.torch_policy.compile_events import CompileEvents
from robot_perf.backends.torch_policy.compiled import Compiled, refuse_if_off
from robot_perf.errors import BackendUnavailableError, PolicyError, UsageError
from robot_perf.specs import PolicySpec

OPTIONS = ("mode", "dynamic", "fullgraph", "inter_threads")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WITH_GRAPHS = ("reduce-overhead", "max-autotune")


def unavailable() -> str | None:
    """Why torch.compile can't run here: no torch, or no C++ compiler for its CPU kernels. Imports torch."""
    reason = eager.unavailable()
    if reason is not None:
        return reason
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    if not any(shutil.which(name.split()[0]) for name in wanted):
        return f"torch.compile needs a C++ compiler on the CPU and found none ({', '.join(wanted)}); install one: apt install g++"
    return None


def takes(policy: PolicySpec) -> str | None:
    """Why this backend can't take the policy's format; None when it can."""
    if policy.kind == "torchscript":
        return "torch.compile does not compile TorchScript; give the module as a factory (module:callable), or as torch.export."
    return eager.takes(policy)


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner. Options: `mode` (default …), `dynamic` (False, True, auto), `fullgraph` (False), `threads`, `device`; on a
    CUDA device also those of `gpu.options`.

    `dynamic` False compiles for the one shape that a control loop has; `auto` recompiles for the first other one.
    """
    import torch

    mode = str(options.get("mode") or "default")
    if mode not in MODES:
        raise UsageError(f"compile mode {mode!r} is unknown", why=f"Known: {', '.join(MODES)}.")
    fullgraph = cpu_options.flag(options, "fullgraph", False)
    dynamic = None if options.get("dynamic") == "auto" else cpu_options.flag(options, "dynamic", False)

    def wrap(call: Any) -> Any:
        if not isinstance(call, torch.nn.Module):
            raise PolicyError(
                f"{policy.name}: torch.compile needs a torch module, and the factory returned {type(call).__name__}",
                do="Return an nn.Module, or use --backend eager.",
            )
        refuse_if_off(policy.name)  # again: the policy's own code has run by now
        made = torch.compile(call, mode=None if mode == "default" else mode, dynamic=dynamic, fullgraph=fullgraph)
        return Compiled(policy.name, made, events)

    on_cuda = gpu_options.on_cuda(options)
    graphs = on_cuda and mode in WITH_GRAPHS
    if mode == "reduce-overhead" and not on_cuda:
        raise UsageError(
            f"{policy.name}: compile mode reduce-overhead does nothing on the CPU",
            why="It is CUDA graphs, and nothing else.",
            do="Leave the mode out, or add --device cuda:0.",
        )
    refuse_if_off(policy.name)
    _compile_here()
    if on_cuda and importlib.util.find_spec("triton") is None:
        raise BackendUnavailableError(
            "torch.compile needs Triton on a CUDA device, and it is not installed",
            why=f"Looked for with {sys.executable}.",
            do="pip install triton (on a Jetson: the wheel that goes with the vendor's torch).",
        )
    facts = {"compile_mode": mode, "dynamic": dynamic, "fullgraph": fullgraph}
    events = CompileEvents(graphs=graphs)
    with Undo(events.close):
        if not on_cuda:
            return eager.build(policy, options, backend="compile", own=OPTIONS, wrap=wrap, events=events, facts=facts)
        from robot_perf.backends.gpu import torch_backend

        before = torch.compiler.cudagraph_mark_step_begin if graphs else None
        return torch_backend.load(
            policy, options, "compile", own=OPTIONS, wrap=wrap, events=events, facts=facts, before=before
        )


def _compile_here() -> None:
    """Has kernels compiled in this process, unless TORCHINDUCTOR_COMPILE_THREADS says otherwise.

    Else torch keeps a process for each processor (32 at most) for a minute after the first call: beside the loop that is measured.
    Up to 2.12 it may also wait five minutes for them at its end (pytorch/pytorch#162199).
    """
    if "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ:
        import torch._inductor.config as inductor

        inductor.compile_threads = 1
