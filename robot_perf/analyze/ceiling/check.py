"""A published or measured rate against its ceiling: the verdicts of docs/devices.md, never clamped."""

from __future__ import annotations

from dataclasses import dataclass

LOW = 0.20
# weight bits up to which -> (lower and upper quartile, median, best) of published plain single-stream decode rates, as
# fractions of the ceiling; computed from the rates in docs/achieved-shares.md.
BANDS: tuple[tuple[float, str, tuple[float, float, float, float]], ...] = (
    (6.0, "4 to 5 bit", (0.42, 0.65, 0.54, 0.80)),
    (12.0, "8 bit", (0.51, 0.67, 0.61, 0.89)),
    (32.0, "BF16 / FP16", (0.63, 0.81, 0.69, 0.87)),
)
MOE_BAND = ("MoE", (0.23, 0.46, 0.34, 0.61))


@dataclass(frozen=True, slots=True)
class RateVerdict:
    """What a rate says against its ceiling. `fraction` None: not computable; `ceiling` in the rate's own unit."""

    verdict: str
    fraction: float | None
    ceiling: float | None
    text: str


def judge_rate(
    rate: float,
    *,
    step_bytes: float | None,
    bandwidth_bytes_s: float | None,
    batch: int | None,
    kv_bytes: float = 0.0,
    accepted: float | None = None,
    speculative: bool = False,
    policy: bool = False,
    weight_bits: float | None = None,
    mixture: bool = False,
) -> RateVerdict:
    """The verdict on `rate` (tokens/s over all streams) against bandwidth / (step_bytes + batch x kv_bytes).

    `step_bytes` is the weights streamed per step, `kv_bytes` the cache of one stream. A speculative rate is compared
    per step: rate / accepted. A policy rate in ms or Hz has no bytes per token: "phase-wise", see `ceiling_phases`.
    """
    if policy:
        return RateVerdict("phase-wise", None, None, "a policy: compare with its phase floor (ceiling --model)")
    missing = [n for n, v in (("bytes per step", step_bytes), ("bandwidth", bandwidth_bytes_s)) if v is None]
    if step_bytes is None or bandwidth_bytes_s is None:
        return RateVerdict("not-checkable", None, None, f"unknown: {' and '.join(missing)}")
    ceiling = bandwidth_bytes_s / (step_bytes + (batch or 1) * kv_bytes)
    if speculative or (accepted is not None and accepted > 1):
        return _speculative(rate, ceiling, accepted)
    if batch is not None and batch > 1:
        share = rate / batch / ceiling
        text = f"aggregate of {batch} streams: {rate / batch:.3g} a stream, {_percent(share)} of {ceiling:.3g} steps/s"
        return RateVerdict("aggregate", share, ceiling, text)
    return _single_stream(rate / ceiling, ceiling, batch, band_text(weight_bits, mixture))


def _single_stream(fraction: float, ceiling: float, batch: int | None, band: str) -> RateVerdict:
    if fraction > 1:
        text = f"{_percent(fraction)} of the ceiling: batch? speculative? cached? pruned? wrong device or mode?"
        return RateVerdict("above-ceiling", fraction, ceiling, text)
    if batch is None:
        return RateVerdict("refuse", fraction, ceiling, "no batch size: ask for it before comparing")
    if fraction < LOW:
        text = (
            f"{_percent(fraction)} of the ceiling: check that the GPU path was taken (MoE, partial offload and very small, "
            "launch-bound models reach this honestly)"
        )
        return RateVerdict("suspect-low", fraction, ceiling, text)
    return RateVerdict("ok", fraction, ceiling, f"{_percent(fraction)} of the ceiling{band}")


def band_text(weight_bits: float | None, mixture: bool = False) -> str:
    """Where published rates of such weights lie; empty where the bits are unknown."""
    if mixture:
        name, band = MOE_BAND
    elif weight_bits is None:
        return ""
    else:
        name, band = next(((n, b) for top, n, b in BANDS if weight_bits <= top), (BANDS[-1][1], BANDS[-1][2]))
    return (
        f"; middle half of published {name} rates {_percent(band[0])} to {_percent(band[1])}, best {_percent(band[3])}"
    )


def _speculative(rate: float, ceiling: float, accepted: float | None) -> RateVerdict:
    if accepted is None:
        text = "speculative: accepted tokens per step unknown, not checked"
        return RateVerdict("speculative", None, ceiling, text)
    share = rate / accepted / ceiling
    text = f"speculative, {accepted:g} accepted: {rate / accepted:.3g} steps/s, {_percent(share)} of {ceiling:.3g}"
    return RateVerdict("speculative", share, ceiling * accepted, text)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
