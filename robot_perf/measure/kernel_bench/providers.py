"""What the RMSNorm bench compares: each provider is a function that makes a call of one op with one weight.

A provider must produce both outputs in fused mode (equal work). `norm_order` names the cast orders it may compute; which one it
did is found from its output, not assumed. Every provider runs in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from robot_perf.errors import install_line

__all__ = ["OURS", "PROVIDERS", "SERIAL", "Provider", "kernels_digest", "unavailable", "version_of"]

Tensor = Any
Call = Callable[[Tensor, Tensor | None], tuple[Tensor, ...]]  # x, residual -> (y,) or (y, s)
Make = Callable[[str, int, Tensor, float], Call]  # op, d, weight, eps

OURS = "robot-perf"
SERIAL = "robot-perf, no dependent launch"


@dataclass(frozen=True, slots=True)
class Provider:
    """One way to compute the ops. `needs` is the module that must import, `package` its distribution, `install` brings it."""

    make: Make
    needs: str
    package: str
    install: str
    note: str = ""
    compile_s: float = 0.0  # roughly, per op and width (or per shape): how many processes it gets when compiling ahead
    per_shape: bool = False  # compiles anew for every number of rows
    tuner: str = ""  # module whose autotuner keys leave out the number of rows: it is made to tune at each point


def unavailable(name: str) -> str | None:
    """Why the provider (or the copy baseline) can't run here, with the install line; None when it can."""
    provider = PROVIDERS.get(name)
    needs = ["torch", "triton"] if provider is None else ["torch", provider.needs]
    for module in needs:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a peer that breaks at import is a row with that reason, whatever it raised
            install = TORCH if provider is None else provider.install
            return f"{module} does not import ({type(error).__name__}: {str(error)[:160]}); {install}"
    import torch

    return None if torch.cuda.is_available() else "no CUDA GPU"


def version_of(provider: Provider) -> str | None:
    """The installed version of the provider's distribution; None where there is none."""
    try:
        return importlib.metadata.version(provider.package)
    except importlib.metadata.PackageNotFoundError:
        return None


def kernels_digest() -> str:
    """Of the kernels' source: which launch table a report is of."""
    from robot_perf import kernels

    whole = sha256()
    for path in sorted(Path(kernels.__file__).parent.glob("rmsnorm*.py")):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()[:12]


def _ours(op: str, d: int, weight: Tensor, eps: float) -> Call:
    from robot_perf.kernels.rmsnorm import add_rms_norm, rms_norm

    if op == "rms_norm":
        return lambda x, r: (rms_norm(x, weight, eps),)
    return lambda x, r: add_rms_norm(x, r, weight, eps)


def _ours_serial(op: str, d: int, weight: Tensor, eps: float) -> Call:
    from robot_perf.kernels import rmsnorm_config

    rmsnorm_config.DEPENDENT_LAUNCH = False
    return _ours(op, d, weight, eps)


def _formula(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    import torch

    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def _eager(op: str, d: int, weight: Tensor, eps: float) -> Call:
    if op == "rms_norm":
        return lambda x, r: (_formula(x, weight, eps),)

    def call(x: Tensor, r: Tensor | None) -> tuple[Tensor, ...]:
        s = x + r
        return _formula(s, weight, eps), s

    return call


def _fused_torch(op: str, d: int, weight: Tensor, eps: float) -> Call:
    from torch.nn.functional import rms_norm

    if op == "rms_norm":
        return lambda x, r: (rms_norm(x, (d,), weight, eps),)

    def call(x: Tensor, r: Tensor | None) -> tuple[Tensor, ...]:
        s = x + r
        return rms_norm(s, (d,), weight, eps), s

    return call


def _fresh(function: Any) -> Any:
    """The same function with a code object of its own: torch.compile keys its cache by code object."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_NAMES)}")
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def _compiled(op: str, d: int, weight: Tensor, eps: float, **options: Any) -> Call:
    import torch
    import torch._inductor.runtime.triton_heuristics  # so that its autotuner can be locked

    call: Call = torch.compile(_fresh(_eager(op, d, weight, eps)), dynamic=False, fullgraph=True, **options)
    return call


def _compiled_tuned(op: str, d: int, weight: Tensor, eps: float) -> Call:
    return _compiled(op, d, weight, eps, mode="max-autotune-no-cudagraphs")


def _liger(op: str, d: int, weight: Tensor, eps: float) -> Call:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    if op == "rms_norm":
        return lambda x, r: (LigerRMSNormFunction.apply(x, weight, eps, 0.0, "llama", False),)
    return lambda x, r: LigerFusedAddRMSNormFunction.apply(x, r, weight, eps, 0.0, "llama", False)


def _fla(op: str, d: int, weight: Tensor, eps: float) -> Call:
    from fla.modules.layernorm import rms_norm

    if op == "rms_norm":
        return lambda x, r: (rms_norm(x, weight, None, eps=eps),)
    return lambda x, r: rms_norm(x, weight, None, residual=r, eps=eps, prenorm=True)


def _quack(op: str, d: int, weight: Tensor, eps: float) -> Call:
    from quack.rmsnorm import rmsnorm

    if op == "rms_norm":
        return lambda x, r: (rmsnorm(x, weight, eps=eps),)
    return lambda x, r: rmsnorm(x, weight, residual=r, prenorm=True, eps=eps)


_NAMES = itertools.count()
TORCH = install_line("torch")
PROVIDERS: dict[str, Provider] = {
    OURS: Provider(_ours, "triton", "robot-perf", TORCH, compile_s=0.6),
    SERIAL: Provider(
        _ours_serial,
        "triton",
        "robot-perf",
        TORCH,
        "the same kernels, each launched after the one before has ended",
        compile_s=0.6,
    ),
    "eager": Provider(_eager, "torch", "torch", TORCH, "the FP32 formula in torch operations"),
    "F.rms_norm": Provider(_fused_torch, "torch", "torch", TORCH, "fused add: x + r, then F.rms_norm"),
    "torch.compile": Provider(
        _compiled, "triton", "torch", TORCH, "the eager formula, dynamic=False", compile_s=1.2, per_shape=True
    ),
    "torch.compile max-autotune": Provider(
        _compiled_tuned,
        "triton",
        "torch",
        TORCH,
        "the eager formula, dynamic=False, max-autotune-no-cudagraphs",
        compile_s=5.5,
        per_shape=True,
    ),
    "liger": Provider(
        _liger,
        "liger_kernel.ops.rms_norm",
        "liger-kernel",
        "pip install liger-kernel",
        "hf order; also stores rstd",
        compile_s=0.1,
    ),
    "fla": Provider(
        _fla,
        "fla.modules.layernorm",
        "fla-core",
        "pip install fla-core",
        "also stores rstd; rows up to 64 KB; tuned at each point, 30 ms a candidate instead of 125",
        compile_s=5.5,
        tuner="fla.modules.layernorm",
    ),
    "quack": Provider(
        _quack,
        "quack.rmsnorm",
        "quack-kernels",
        "pip install quack-kernels",
        "CuTe-DSL; no eager bypass",
        compile_s=0.8,
    ),
}
