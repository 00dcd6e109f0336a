"""How a precision is asked of a TensorRT version: builder flags where it has them, else a strongly typed network. Pure logic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from robot_perf.errors import PolicyError

LOW = {"fp16": "FP16", "bf16": "BF16"}


@dataclass(frozen=True, slots=True)
class Means:
    """Builder flags to set and to clear, whether the network is strongly typed, and the dtype its ONNX is lowered to first."""

    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    strongly_typed: bool = False
    lower_to: str | None = None


def means(
    precision: str,
    *,
    version: str,
    builder_flags: Collection[str],
    network_flags: Collection[str],
    quantised: bool,
    runtime: str = "TensorRT",
) -> Means:
    """The means of `precision` on a version that has these flags. Raises PolicyError with the reason when it has none.

    `quantised`: the ONNX file holds QuantizeLinear and DequantizeLinear. Nothing is calibrated here: scales are part of a
    policy, found with its own data.
    """
    if precision in ("int8", "fp8") and not quantised:
        raise PolicyError(
            f"precision {precision}: the file holds no scales",
            why="It has no QuantizeLinear and DequantizeLinear; robot-perf does not calibrate, since scales belong to the policy.",
            do="Quantise it with its own observations (for example nvidia-modelopt) and give that ONNX file.",
        )
    # Weak typing went away in 11 and never was in the RTX edition: there the file's own types rule.
    typed = "FP16" not in builder_flags
    if typed and "STRONGLY_TYPED" not in network_flags:
        raise PolicyError(f"{runtime} {version} has neither precision flags nor strong typing", do="Use 8.6 or newer.")
    present = frozenset(builder_flags)
    tf32_on = precision != "fp32" and "TF32" in present
    on, off = (("TF32",), ()) if tf32_on else ((), ("TF32",) if "TF32" in present else ())
    if precision in ("fp32", "tf32"):
        if precision == "tf32" and "TF32" not in present:
            raise PolicyError(f"precision tf32: {runtime} {version} has no flag for it", do="Use fp32 or fp16.")
        return Means(on, off, typed)
    if typed:
        return Means(on, off, True, precision if precision in LOW else None)
    flag = {**LOW, "int8": "INT8", "fp8": "FP8"}[precision]
    major = int(version.split(".", maxsplit=1)[0])
    if flag not in present or (precision == "fp8" and major < 9):
        since = " 9.0 and newer do." if precision in ("bf16", "fp8") else ""
        raise PolicyError(
            f"precision {precision}: {runtime} {version} does not offer it", why=since.strip(), do="Use fp16 or tf32."
        )
    # What is not quantised may run in float16 beside the int8 layers, as such files are meant to.
    return Means((*on, flag, *(("FP16",) if precision in ("int8", "fp8") else ())), off)
