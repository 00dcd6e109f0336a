"""What a saved RMSNorm bench report must have to be summarised: a file that somebody cut or wrote by hand is refused with the place."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robot_perf.measure.kernel_bench.points import BIG_BYTES

__all__ = ["wrong_in"]

Dtype = Literal["bfloat16", "float16", "float32"]
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Samples = dict[str, Annotated[list[Number], Field(min_length=1)]]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())


class _Gpu(_Part):
    name: str
    capability: str
    sm: Count
    l2_bytes: Count
    memory_bytes: Count | None = None


class _Copy(_Part):
    way: str | None = None
    samples_us: Samples = {}


class _Provider(_Part):
    error: str | None = None
    failed: str | None = None
    samples_us: Samples = {}
    cold_by: Literal["rotation", "flush"] | None = None
    sets: Count | None = None
    rotated_bytes: Count | None = None
    order: str | None = None
    max_ulp: Number | None = None
    nodes_per_call: dict[str, Number] | None = None
    gap_us: Number | None = None
    kernel_us: Number | None = None
    fused_op_ran: bool | None = None
    profile_error: str | None = None


class _Clocks(_Part):
    sm_mhz: Number | None
    memory_mhz: Number | None
    throttle: list[str]


class _Point(_Part):
    op: Literal["rms_norm", "add_rms_norm"]
    m: Count
    d: Count
    dtype: Dtype
    weight: Dtype
    bytes: Count
    providers: dict[str, _Provider]
    copy_: _Copy = Field(alias="copy")
    clocks: list[_Clocks | None] = []


class _Known(_Part):
    version: str | None = None
    unavailable: str | None = None
    restarts: int | None = None


class _Rule(_Part):
    why: str
    points: int


class _Machine(_Part):
    driver: str | None = None
    power_limit_w: Number | None = None


class _Report(_Part):
    gpu: _Gpu
    torch: str
    triton: str | None = None
    kernels: str | None = None
    rounds: Count
    replays: Count
    providers: dict[str, _Known]
    points: list[_Point]
    empty_kernel_us: Positive | None = None
    machine: _Machine = _Machine()
    compile_s: dict[str, dict[str, Any]] = {}
    ahead_s: Number | None = None
    left_out: dict[str, _Rule] = {}
    not_reached: list[str] = []
    date: str = ""
    command: str = ""


def wrong_in(report: dict[str, Any]) -> str | None:
    """The first thing that is wrong in a raw report, with its place; None where it can be summarised."""
    try:
        found = _Report.model_validate(report)
    except ValidationError as error:
        first, more = error.errors(include_url=False)[0], error.error_count() - 1
        also = f", and {more} more" if more else ""
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}{also}"
    return next(filter(None, (_unusable(p, i, found.rounds) for i, p in enumerate(found.points))), None)


def _unusable(point: _Point, i: int, rounds: int) -> str | None:
    """What a point that fits the model lacks: samples that are not whole turns, or figures that go with others."""
    for name, provider in point.providers.items():
        warm, cold = (provider.samples_us.get(kind) for kind in ("warm", "cold"))
        place = f"points.{i}.providers.{name}"
        if provider.error or provider.failed or not warm or not cold:
            continue
        if provider.cold_by is None:
            return f"{place}.cold_by: Field required"
        for kind, samples in (("warm", warm), ("cold", cold)):
            if len(samples) % rounds:
                return (
                    f"{place}.samples_us.{kind}: {len(samples)} samples are no {rounds} rounds of as many replays each"
                )
        if min(warm) <= 0 or (provider.cold_by == "rotation" and min(cold) <= 0):
            return f"{place}.samples_us: a time of 0 µs or less"
        for one, other in (("gap_us", "kernel_us"), ("order", "max_ulp"), ("rotated_bytes", "sets")):
            if getattr(provider, one) is not None and getattr(provider, other) is None:
                return f"{place}.{other}: Field required beside {one}"
    if point.bytes >= BIG_BYTES and min(point.copy_.samples_us.get("cold", [1.0])) <= 0:
        return f"points.{i}.copy.samples_us.cold: a time of 0 µs or less"
    return None
