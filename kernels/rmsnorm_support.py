"""Which GPUs and dtypes the Triton kernels run on, by capability, and what to do where they don't.

`doctor` prints `ptxas_too_old` and `ptxas_export`; a failed compilation ends in the same words
(`rmsnorm_compile_error`).
"""

from __future__ import annotations

from robot_perf.errors import UsageError

__all__ = ["DIRECT", "check_dtype", "ptxas_export", "ptxas_too_old", "ptxas_variable", "slow_launch", "triton_advice"]

DIRECT = ("3.6",)  # Triton releases whose compiled-kernel launcher was tested

# First CUDA release whose ptxas knows the chip (NVIDIA, CUDA toolkit release notes). Orin's sm_87 is in every ptxas that
# Triton ever shipped; Thor became sm_110 in CUDA 13 (sm_101 before).
_NEEDS_CUDA: dict[int, tuple[int, int]] = {87: (11, 4), 89: (11, 8), 90: (11, 8), 100: (12, 8), 101: (12, 8), 103: (12, 9),
                                           110: (13, 0), 120: (12, 8), 121: (12, 9)}  # fmt: skip
FIRST_BF16 = 80
FIRST_SUPPORTED = 75


def check_dtype(name: str, dtype: str, capability: int) -> None:
    """Raises UsageError where the GPU lacks the dtype in hardware (BF16 before sm_80) or is older than Triton supports."""
    if capability < FIRST_SUPPORTED:
        raise UsageError(
            f"rms_norm: this GPU has compute capability {capability // 10}.{capability % 10}",
            why=f"Triton compiles for {FIRST_SUPPORTED // 10}.{FIRST_SUPPORTED % 10} and later.",
            do="Use torch.nn.functional.rms_norm on it.",
        )
    if dtype == "bfloat16" and capability < FIRST_BF16:
        raise UsageError(
            f"rms_norm: {name} is bfloat16 and this GPU (compute capability {capability // 10}.{capability % 10}) has no BF16",
            why="BF16 arithmetic starts with 8.0; this GPU computes float16 and float32.",
            do=f"Convert {name} to torch.float16.",
        )


def slow_launch(triton: str) -> str | None:
    """Why this Triton release launches the kernels the slow way, and what that costs; None where it doesn't."""
    if triton.rsplit(".", 1)[0] in DIRECT:
        return None
    return (
        f"the direct launch was tested with Triton {', '.join(DIRECT)} alone. Through {triton} a call costs more host time, and on "
        "compute capability 9.0 and later no row is split over a cluster and no launch overlaps the one before: none of the "
        "published figures of the RMSNorm kernels hold"
    )


def ptxas_variable(capability: int) -> str:
    """The environment variable that tells Triton which ptxas to run for a chip (Triton ships one for sm_100 and later apart)."""
    return "TRITON_PTXAS_BLACKWELL_PATH" if capability >= 100 else "TRITON_PTXAS_PATH"


def ptxas_export(capability: int) -> str:
    """The shell line that makes Triton run the system's ptxas for a chip."""
    variables = sorted({"TRITON_PTXAS_PATH", ptxas_variable(capability)})
    return f"export {' '.join(f'{v}=/usr/local/cuda/bin/ptxas' for v in variables)}"


def ptxas_too_old(capability: int, ptxas_cuda: tuple[int, ...] | None) -> str | None:
    """Why Triton's ptxas (of CUDA release `ptxas_cuda`, None unknown) can't assemble for the chip; None if it can."""
    needs = _NEEDS_CUDA.get(capability)
    if needs is None or ptxas_cuda is None or ptxas_cuda >= needs:
        return None
    has = f"{ptxas_cuda[0]}.{ptxas_cuda[1]}"
    return f"Triton's ptxas is of CUDA {has}, sm_{capability} needs {needs[0]}.{needs[1]} or later"


def triton_advice(capability: int, ptxas_cuda: tuple[int, ...] | None) -> str | None:
    """`ptxas_too_old`, and what to set; None if the ptxas knows the chip."""
    why = ptxas_too_old(capability, ptxas_cuda)
    if why is None:
        return None
    variables = " and ".join(sorted({"TRITON_PTXAS_PATH", ptxas_variable(capability)}))
    return f"{why}. Set {variables} to a newer one, for example {ptxas_export(capability)}."
