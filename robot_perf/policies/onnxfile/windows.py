"""Shapes of operators that slide a window: convolutions and pools, with every way to say their padding."""

from __future__ import annotations

from typing import Any

Shape = tuple[int, ...]


def convolved(x: Shape | None, w: Shape | None, attributes: dict[str, Any]) -> Shape | None:
    """Conv and ConvInteger: weights are [out, in / groups, kernel]."""
    if x is None or w is None or len(x) < 3 or len(x) != len(w):
        return None
    sizes = _slid(x[2:], list(w[2:]), attributes)
    return None if sizes is None else (x[0], w[0], *sizes)


def pooled(x: Shape | None, attributes: dict[str, Any]) -> Shape | None:
    """MaxPool, AveragePool, LpPool."""
    if x is None or len(x) < 3 or not isinstance(attributes.get("kernel_shape"), list):
        return None
    sizes = _slid(x[2:], attributes["kernel_shape"], attributes)
    return None if sizes is None else (*x[:2], *sizes)


def transposed(x: Shape | None, w: Shape | None, attributes: dict[str, Any]) -> Shape | None:
    """ConvTranspose: weights are [in, out / groups, kernel]."""
    if x is None or w is None or len(x) < 3 or len(x) != len(w):
        return None
    spatial = len(x) - 2
    asked = _asked(attributes, spatial)
    if asked is None:
        return None
    strides, dilations, pads, padding = asked
    channels = w[1] * int(attributes.get("group") or 1)
    if isinstance(given := attributes.get("output_shape"), list):
        return (x[0], channels, *given[-spatial:]) if len(given) >= spatial else None
    more = attributes.get("output_padding") or [0] * spatial
    if len(more) != spatial or padding.startswith(b"SAME"):  # SAME: the operator's text and onnx's own inference differ
        return None
    sizes = [
        strides[i] * (x[i + 2] - 1) + more[i] + dilations[i] * (w[i + 2] - 1) + 1 - pads[i] - pads[i + spatial]
        for i in range(spatial)
    ]
    return (x[0], channels, *sizes) if min(sizes) > 0 else None


def _asked(attributes: dict[str, Any], spatial: int) -> tuple[list[int], list[int], list[int], bytes] | None:
    """Strides, dilations, pads and the word for automatic padding; None where they don't fit the axes."""
    strides, dilations = (attributes.get(n) or [1] * spatial for n in ("strides", "dilations"))
    padding = attributes.get("auto_pad") or b"NOTSET"
    pads = (attributes.get("pads") if padding == b"NOTSET" else None) or [0] * 2 * spatial
    if not (len(strides) == len(dilations) == spatial and len(pads) == 2 * spatial):
        return None
    return (strides, dilations, pads, padding) if min(*strides, *dilations) > 0 else None


def _slid(sizes: Shape, kernel: list[int], attributes: dict[str, Any]) -> list[int] | None:
    """How often a window fits along each axis."""
    spatial = len(sizes)
    asked = _asked(attributes, spatial)
    if asked is None or len(kernel) != spatial:
        return None
    strides, dilations, pads, padding = asked
    if padding.startswith(b"SAME"):
        return [-(-n // s) for n, s in zip(sizes, strides, strict=True)]
    found = []
    for i, size in enumerate(sizes):
        room = size + pads[i] + pads[i + spatial] - dilations[i] * (kernel[i] - 1) - 1
        count = room // strides[i] + 1
        if attributes.get("ceil_mode") and room % strides[i]:
            if count * strides[i] >= size + pads[i]:
                return None  # a last window that would begin in the padding: opsets differ about it
            count += 1
        found.append(count)
    return found if min(found) > 0 else None
