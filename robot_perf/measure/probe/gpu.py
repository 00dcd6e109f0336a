"""The probe of a CUDA GPU through torch: copy, read, write, weight streaming, and dense matrix rates by dtype."""

from __future__ import annotations

import datetime
import platform
import sys
from collections.abc import Callable
from typing import Any

from robot_perf.devices import matches
from robot_perf.errors import BackendUnavailableError, UsageError, install_line
from robot_perf.measure.probe.cases import Case, measure, working_set
from robot_perf.measure.watch.nvml import Meter, open_meter
from robot_perf.specs.device import ProbeReport

_WANTED = 4 * 2**30
_MATRIX = 8192
_SMALL_MATRIX = 4096  # on devices with less than 16 GiB free: the operands of all dtypes must fit
_COLUMNS = 8192


def probe(device: str, seconds: float) -> ProbeReport:
    """All readings of one GPU. Raises BackendUnavailableError without torch or its CUDA, UsageError for an absent
    GPU.
    """
    torch = _torch()
    index = torch.device(device).index or 0
    if index >= torch.cuda.device_count():
        raise UsageError(f"--device {device}: there are {torch.cuda.device_count()} GPUs here")
    torch.cuda.set_device(index)
    facts = torch.cuda.get_device_properties(index)
    l2 = int(getattr(facts, "L2_cache_size", 0)) or None
    free, total = torch.cuda.mem_get_info(index)
    size = working_set(l2, free, wanted=_WANTED)
    torch.manual_seed(0)
    meter, why_none = open_meter(f"cuda:{index}")
    try:
        before = _clocks(meter, why_none)
        bandwidth = measure(_bandwidth_cases(torch, size), seconds / 2)
        torch.cuda.empty_cache()
        cases, skipped = _matrix_cases(torch, _MATRIX if free >= 16 * 2**30 else _SMALL_MATRIX)
        matrices = measure(cases, seconds / 2)
        after = _clocks(meter, why_none)
    finally:
        if meter is not None:
            meter.close()
    rows = matches(facts.name, total)
    return ProbeReport(
        device=facts.name,
        table_name=rows[0].name if len(rows) == 1 else None,
        memory_bytes=total,
        l2_bytes=l2,
        readings=(*bandwidth, *matrices),
        skipped=skipped,
        conditions={
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "command": "robot-perf " + " ".join(sys.argv[1:]),
            "device": device,
            "compute_capability": f"{facts.major}.{facts.minor}",
            "sm_count": str(facts.multi_processor_count),
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda),
            "python": platform.python_version(),
            "clocks_before": before,
            "clocks_after": after,
            "method": "CUDA events around batches of calls, random data, 0.4 s warm-up, median of 20 interleaved rounds",
        },
    )


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise BackendUnavailableError(
            "the GPU probe needs torch",
            do=f"Install it: {install_line('torch')} (on a Jetson: the vendor's wheel).",
        ) from error
    if not torch.cuda.is_available():
        raise BackendUnavailableError(
            "torch sees no CUDA GPU here", do="robot-perf doctor says why; --device cpu probes the processor."
        )
    return torch


def _events(torch: Any, call: Callable[[], Any]) -> Callable[[int], float]:
    """A runner that times `calls` calls with a pair of CUDA events; ns."""

    def run(calls: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e6

    return run


def _bandwidth_cases(torch: Any, size: int) -> list[Case]:
    source = torch.rand(size // 4, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    rows = size // 2 // _COLUMNS
    weights = torch.randn(rows, _COLUMNS, device="cuda", dtype=torch.bfloat16)
    vector = torch.randn(_COLUMNS, device="cuda", dtype=torch.bfloat16)
    gemv_bytes = rows * _COLUMNS * 2
    detail = f"{size / 2**20:.0f} MiB a buffer"
    return [
        Case("copy", "bytes/s", 2.0 * size, 2 * size, _events(torch, lambda: target.copy_(source)), "fp32", detail),
        Case("read", "bytes/s", float(size), size, _events(torch, source.sum), "fp32", f"sum, {detail}"),
        Case(
            "write", "bytes/s", float(size), size, _events(torch, lambda: target.fill_(1.5)), "fp32", f"fill, {detail}"
        ),
        Case(
            "gemv",
            "bytes/s",
            float(gemv_bytes),
            gemv_bytes,
            _events(torch, lambda: torch.mv(weights, vector)),
            "bf16",
            f"weights {rows} x {_COLUMNS} times a vector",
        ),
    ]


def _matrix_cases(torch: Any, n: int) -> tuple[list[Case], dict[str, str]]:
    """Dense products of one size by dtype, and why a dtype is left out."""
    makers: dict[str, Callable[[], Callable[[], Any]]] = {
        "bf16": lambda: _float_product(torch, n, torch.bfloat16),
        "fp16": lambda: _float_product(torch, n, torch.float16),
        "fp32": lambda: _float_product(torch, n, torch.float32),
        "int8": lambda: _int8_product(torch, n),
        "fp8": lambda: _fp8_product(torch, n),
    }
    torch.backends.cuda.matmul.allow_tf32 = False
    cases, skipped = [], {}
    for dtype, make in makers.items():
        try:
            call = make()
            call()
            torch.cuda.synchronize()
        except (RuntimeError, AttributeError, NotImplementedError, TypeError) as error:
            skipped[f"matmul {dtype}"] = str(error).splitlines()[0][:200]
            continue
        item = {"fp32": 4, "int8": 1, "fp8": 1}.get(dtype, 2)
        cases.append(
            Case(
                "matmul",
                "OP/s" if dtype == "int8" else "FLOP/s",
                2.0 * n**3,
                3 * item * n**2,
                _events(torch, call),
                dtype,
                f"{n} x {n} x {n}{', TF32 off' if dtype == 'fp32' else ''}",
            )
        )
    return cases, skipped


def _float_product(torch: Any, n: int, dtype: Any) -> Callable[[], Any]:
    a = torch.randn(n, n, device="cuda", dtype=dtype)
    b = torch.randn(n, n, device="cuda", dtype=dtype)
    out = torch.empty(n, n, device="cuda", dtype=dtype)
    return lambda: torch.mm(a, b, out=out)


def _int8_product(torch: Any, n: int) -> Callable[[], Any]:
    a = torch.randint(-127, 127, (n, n), device="cuda", dtype=torch.int8)
    b = torch.randint(-127, 127, (n, n), device="cuda", dtype=torch.int8)
    return lambda: torch._int_mm(a, b.t())


def _fp8_product(torch: Any, n: int) -> Callable[[], Any]:
    a = torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _clocks(meter: Meter | None, why_none: str) -> str:
    """SM and memory clock now, MHz; says so where they can't be read."""
    if meter is None:
        return f"clocks unobserved ({why_none})"
    now = meter.sample()
    sm, memory = ("unobserved" if hz is None else f"{hz // 1_000_000} MHz" for hz in (now.sm_hz, now.memory_hz))
    return f"SM {sm}, memory {memory}"
