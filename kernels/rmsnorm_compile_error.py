"""Our error for a kernel that Triton could not compile, with the ptxas advice where that is the likely cause."""

from __future__ import annotations

from robot_perf.errors import BackendUnavailableError
from robot_perf.kernels.rmsnorm_support import ptxas_variable, triton_advice

__all__ = ["explain_compile_error", "triton_ptxas_cuda"]


def triton_ptxas_cuda(capability: int) -> tuple[int, int] | None:
    """CUDA release of the ptxas that Triton would run for the chip; None where Triton is absent or doesn't say."""
    try:
        from triton.backends.nvidia.compiler import get_ptxas
    except ImportError:
        return None
    try:
        major, minor = str(get_ptxas(capability).version).split(".")[:2]
    except (RuntimeError, ValueError, OSError):
        return None
    return int(major), int(minor)


def explain_compile_error(error: Exception, capability: int) -> BackendUnavailableError:
    """Our error for a kernel that Triton couldn't compile, with the ptxas advice where that is the likely cause."""
    text = str(error)
    blames_ptxas = "ptxas" in text.lower() or "gpu-name" in text
    advice = triton_advice(capability, triton_ptxas_cuda(capability))
    if advice is None and blames_ptxas:
        advice = (
            f"If Triton's ptxas is older than the chip (sm_{capability}; JetPack: use the one of the system's CUDA), set "
            f"{' and '.join(sorted({'TRITON_PTXAS_PATH', ptxas_variable(capability)}))} to /usr/local/cuda/bin/ptxas."
        )
    return BackendUnavailableError(
        f"rms_norm: Triton could not compile the kernel for sm_{capability}",
        do=advice or "Report this with your Triton version; torch.nn.functional.rms_norm works meanwhile.",
        detail=text,
    )
