"""Compiles a variant of an RMSNorm kernel once, loads it, and launches it with little host work.

A Triton launch through `kernel[grid](...)` binds and hashes every argument again: several times the cost of the CUDA launch.
Here the variant is compiled ahead, and a call hands integers to the C launcher that Triton built for it. That launcher is
not a stable interface, so it is used for the Triton releases it was tested with (`DIRECT`); any other release, and the CPU
interpreter, goes through `kernel[grid](...)`, without clusters and dependent launch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from robot_perf.errors import BackendUnavailableError, UsageError
from robot_perf.kernels import rmsnorm_ptx, rmsnorm_triton
from robot_perf.kernels.rmsnorm_config import POLICIES, DeviceFacts, Launch
from robot_perf.kernels.rmsnorm_support import slow_launch

__all__ = [
    "Loaded",
    "Variant",
    "compile_variant",
    "constants",
    "direct",
    "float_bits",
    "interpreting",
    "jit_options",
    "launch_jit",
    "load",
    "usable_facts",
]

POINTERS = ("x", "r", "w", "y", "s")
STRIDES = ("stride_x", "stride_r", "stride_y", "stride_s")


@dataclass(frozen=True, slots=True)
class Variant:
    """Everything that is fixed when a kernel is compiled. Dtypes are Triton's names; weight None = no weight."""

    launch: Launch
    d: int
    x: str
    weight: str | None
    vector: bool
    fused: bool = False
    offset: bool = False
    hf: bool = False
    round_sum: bool = True


def interpreting() -> bool:
    """True where TRITON_INTERPRET=1 was set when the kernels were imported: they run on CPU tensors, slowly."""
    return rmsnorm_triton.HAVE_TRITON and type(rmsnorm_triton.KERNELS["row"]).__name__ == "InterpretedFunction"


def direct() -> bool:
    """True where compiled kernels are launched directly (a tested Triton release)."""
    import triton

    return slow_launch(triton.__version__) is None and not interpreting()


def usable_facts(facts: DeviceFacts) -> DeviceFacts:
    """The facts as far as this Triton release can use them: without the direct launch, no clusters and no dependent launch."""
    return facts if direct() else replace(facts, capability=min(facts.capability, 89))


def constants(variant: Variant) -> dict[str, Any]:
    """The compile-time arguments of the variant's kernel."""
    launch, d = variant.launch, variant.d
    itemsize = 4 if variant.x == "fp32" else 2
    unit = 16 // itemsize if variant.vector else 1
    common: dict[str, Any] = {
        "D": d,
        "UNIT": unit,
        "HAS_R": variant.fused,
        "HAS_W": variant.weight is not None,
        "HAS_OFFSET": variant.offset,
        "HF": variant.hf,
        "ROUND_SUM": variant.round_sum,
        "PDL": launch.pdl,
    }
    x_policy, w_policy, out_policy = POLICIES[launch.policy]
    common["OUT_POLICY"] = out_policy
    if launch.kernel == "row":
        common.update(X_POLICY=x_policy, W_POLICY=w_policy, W_EARLY=launch.weight_early, PACK16=_packs(variant))
        return {**common, "BLOCK": launch.block, "ROWS": launch.rows}
    vector = 16 // itemsize
    part = -(-d // (launch.ctas * vector)) * vector  # elements per block of a cluster
    common["CTAS"] = launch.ctas
    numbers = launch.ctas if launch.kernel == "loop" else launch.ctas * launch.warps
    start = rmsnorm_ptx.cluster_start_asm(numbers, remote=launch.remote)
    common["START"] = start if launch.ctas > 1 else ""
    if launch.kernel == "loop":
        asm = rmsnorm_ptx.cluster_sum_asm(launch.ctas, remote=launch.remote) if launch.ctas > 1 else ""
        common.update(BLOCK=launch.block, SLICE=part if launch.ctas > 1 else d, ASM=asm)
        return {**common, "REVERSE": launch.reverse, "HINTS": x_policy == "evict_last"}
    threads = 32 * launch.warps
    repeat = 1 << max(0, -(-part // (threads * vector)) - 1).bit_length()
    asm = rmsnorm_ptx.block_sum_asm(launch.warps, launch.ctas, remote=launch.remote)
    common.update(SLICE=part, ASM="" if interpreting() else asm)
    common.update(X_POLICY=x_policy, W_POLICY=w_policy, W_EARLY=launch.weight_early, PACK16=_packs(variant))
    return {**common, "THREADS": threads, "REPEAT": repeat, "VECTOR": vector}


def _packs(variant: Variant) -> bool:
    # packed registers hold x.dtype: only right where that is what is normalised
    return variant.launch.pack16 and variant.x != "fp32" and (variant.round_sum or not variant.fused)


def compile_variant(variant: Variant, target: Any) -> Any:
    """Triton's compiled kernel for a GPUTarget; needs no GPU. The source of PTX and of the compiler's resource report."""
    import triton
    from triton.compiler import ASTSource

    kernel = rmsnorm_triton.KERNELS[variant.launch.kernel]
    fixed = constants(variant)
    weight = variant.weight or variant.x
    types = {"x": variant.x, "r": variant.x, "w": weight, "y": variant.x, "s": variant.x}
    signature = {name: f"*{types[name]}" for name in POINTERS}
    signature |= {"m": "i32"} | dict.fromkeys(STRIDES, "i64") | {"eps_bits": "i32", "offset_bits": "i32"}
    signature |= {name: "constexpr" for name in kernel.arg_names if name not in signature}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(POINTERS))} if variant.vector else {}
    options = {**_options(variant), "launch_pdl": variant.launch.pdl > 0}
    if variant.launch.registers:
        options["maxnreg"] = variant.launch.registers
    compiled = triton.compile(ASTSource(kernel, signature, fixed, aligned), target=target, options=options)
    if variant.launch.kernel == "split":
        _check_layout(variant, compiled)
    return compiled


def _check_layout(variant: Variant, compiled: Any) -> None:
    # The inline sum is right only if a thread's partial sum is exactly one element. A compiler that lays the tile out
    # differently would emit the block more than once, or shuffle before it: refuse rather than compute something else.
    launch = variant.launch
    mark = "mbarrier.arrive.expect_tx" if launch.remote and launch.ctas > 1 else ".shared .align 16 .b8 part["
    calls = compiled.asm["ptx"].count(mark)
    expected = f"threadsPerWarp = [32, 1, 1], warpsPerCTA = [{launch.warps}, 1, 1]"
    if calls != 1 or expected not in compiled.asm["ttgir"]:
        raise BackendUnavailableError(
            "rms_norm: this Triton lays the kernel's tile out in a way its sum does not allow",
            why=f"Expected one block sum and {expected}; found {calls} block sums.",
            do="Report this with the output of `python -m triton.runtime.errors` and your Triton version.",
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A variant on one device: the pieces of a call of Triton's C launcher, and what the compiler reported."""

    c_launch: Callable[..., None]
    function: int
    pdl: bool
    packed: tuple[int, int, int]  # warps, blocks per cluster, shared bytes
    fixed: tuple[None, ...]  # one place-holder per compile-time argument
    registers: int
    spills: int


_loaded: dict[tuple[Variant, int], Loaded] = {}


def load(variant: Variant, device: int) -> Loaded:
    """The variant, compiled and loaded on CUDA device `device`, which must be current; from memory after the first call.

    Raises UsageError if it isn't loaded yet while the current stream captures a CUDA graph.
    """
    found = _loaded.get((variant, device))
    if found is None:
        import torch

        if torch.cuda.is_current_stream_capturing():
            raise _unloaded(variant)
        found = _loaded[variant, device] = _load_direct(variant, device)
    return found


def _unloaded(variant: Variant) -> UsageError:
    return UsageError(
        f"rms_norm: the kernel for d = {variant.d}, {variant.x} is not loaded while the stream captures a CUDA graph",
        why="Loading a module inside a capture invalidates the graph.",
        do="Call robot_perf.kernels.rmsnorm.warmup([(M, d)], [dtype]) before the capture, or run the step once eagerly.",
    )


def _load_direct(variant: Variant, device: int) -> Loaded:
    import triton

    from robot_perf.kernels.rmsnorm_compile_error import explain_compile_error

    target = triton.runtime.driver.active.get_current_target()
    try:
        compiled = compile_variant(variant, target)
        runner = compiled.run  # loads the module
    except (RuntimeError, triton.runtime.errors.PTXASError) as error:
        raise explain_compile_error(error, target.arch) from error
    if runner.global_scratch_size or runner.profile_scratch_size:
        raise BackendUnavailableError(
            "rms_norm: Triton's launcher wants scratch memory",
            why="A Triton profiling hook is active.",
            do="Switch it off.",
        )
    return Loaded(
        c_launch=runner.launch,
        function=compiled.function,
        pdl=runner.launch_pdl,
        # the kernel counts its blocks itself, so the cluster is a property of the launch alone
        packed=(variant.launch.warps, variant.launch.ctas, int(compiled.metadata.shared)),
        fixed=(None,) * len(constants(variant)),
        registers=compiled.n_regs,
        spills=compiled.n_spills,
    )


def float_bits(value: float) -> int:
    """The bits of a number as FP32, as a signed integer: how the kernels take eps and offset."""
    bits: int = struct.unpack("i", struct.pack("f", value))[0]
    return bits


_launched: set[tuple[Any, ...]] = (
    set()
)  # what Triton's JIT has compiled and loaded: variant, device, which pointers are aligned


def launch_jit(
    variant: Variant, tensors: Sequence[Any], m: int, strides: Sequence[int], eps_bits: int, offset_bits: int
) -> None:
    """Queues the variant through `kernel[grid](...)`: the interpreter's way and that of untested Triton releases.

    Raises UsageError if it wasn't launched yet while the current stream captures a CUDA graph.
    """
    kernel = rmsnorm_triton.KERNELS[variant.launch.kernel]
    x = tensors[0]
    filled = [x if tensor is None else tensor for tensor in tensors]
    arguments = (*filled, m, *strides, eps_bits, offset_bits)
    run = kernel[(variant.launch.grid(m),)]
    if interpreting():
        run(*arguments, **constants(variant))
        return
    import torch

    seen = variant, x.get_device(), tuple(t.data_ptr() % 16 == 0 for t in filled)
    if seen not in _launched and torch.cuda.is_current_stream_capturing():
        raise _unloaded(variant)
    run(*arguments, **constants(variant), **jit_options(variant))
    _launched.add(seen)


def jit_options(variant: Variant) -> dict[str, Any]:
    """The compiler options of `compile_variant` for a launch through `kernel[grid](...)`, as far as this Triton has them."""
    from triton.backends.nvidia.compiler import CUDAOptions

    known = {field.name for field in fields(CUDAOptions)}
    return {name: value for name, value in _options(variant).items() if name in known}


def _options(variant: Variant) -> dict[str, Any]:
    return {
        "num_warps": variant.launch.warps,
        "num_stages": 1,
        # rsqrt must see subnormal sums: a row of 1e-20 with eps = 0 is not a row of infinities
        "enable_reflect_ftz": False,
        # which product of a sum becomes a fused multiply-add is the compiler's choice, and it chose differently for the plain
        # and the fused kernel: without contraction their bits agree
        "enable_fp_fusion": False,
    }
