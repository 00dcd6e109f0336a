"""`act`: an action-chunking transformer of public dimensions. Cameras through a ResNet-18 trunk, 300 tokens each, into a
transformer that answers a chunk of 100 actions. Sizes, cost and seeded weights; its ONNX and torch forms are beside it.

The latent is zero and the image positions are a fixed table, as at inference. Batch norms are folded into the convolutions, as
every runtime does before it runs them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Dims = Mapping[str, Any]

_FULL = {
    "height": 480,
    "width": 640,
    "state": 14,
    "actions": 14,
    "chunk": 100,
    "hidden": 512,
    "heads": 8,
    "feedforward": 3200,
    "encoder_layers": 4,
    "decoder_layers": 1,
    "latent": 32,
    "stem": 64,
}
PRESETS: dict[str, dict[str, Any]] = {
    "one-camera": {"cameras": 1, **_FULL},
    "four-cameras": {"cameras": 4, **_FULL},
    "tiny": {
        "cameras": 1,
        "height": 64,
        "width": 64,
        "state": 7,
        "actions": 7,
        "chunk": 10,
        "hidden": 64,
        "heads": 4,
        "feedforward": 128,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "latent": 8,
        "stem": 8,
    },
}


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution with its bias; `residual` names the tensor that is added before the ReLU, "" for none."""

    name: str
    columns: int
    rows: int
    kernel: int
    stride: int
    size: tuple[int, int]  # of its output, height and width


def signature(dims: Dims) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[tuple[str, tuple[int, ...]], ...]]:
    """(inputs, outputs) as (name, shape)."""
    images = (1, dims["cameras"], 3, dims["height"], dims["width"])
    chunk = (1, dims["chunk"], dims["actions"])
    return (("images", images), ("state", (1, dims["state"]))), (("actions", chunk),)


def blocks(dims: Dims) -> Iterator[tuple[Convolution, Convolution, Convolution | None]]:
    """The eight residual blocks of the trunk: two 3x3 convolutions, and a 1x1 one on the way around where sizes change."""
    columns, size = dims["stem"], half(half((dims["height"], dims["width"])))
    for stage in range(4):
        rows = dims["stem"] * 2**stage
        for block in range(2):
            stride = 2 if stage and not block else 1
            size = half(size) if stride == 2 else size
            name = f"trunk.{stage}.{block}"
            around = Convolution(f"{name}.around", columns, rows, 1, stride, size) if stride == 2 else None
            yield (
                Convolution(f"{name}.a", columns, rows, 3, stride, size),
                Convolution(f"{name}.b", rows, rows, 3, 1, size),
                around,
            )
            columns = rows


def stem(dims: Dims) -> Convolution:
    """The 7x7 convolution on the image; a 3x3 maximum with stride 2 follows it."""
    return Convolution("stem", 3, dims["stem"], 7, 2, half((dims["height"], dims["width"])))


def projection(dims: Dims) -> Convolution:
    """From the trunk's channels to the transformer's."""
    last = list(blocks(dims))[-1][1]
    return Convolution("image", last.rows, dims["hidden"], 1, 1, last.size)


def half(size: tuple[int, int]) -> tuple[int, int]:
    """Output of a padded convolution or maximum with stride 2."""
    return (size[0] + 1) // 2, (size[1] + 1) // 2


def tokens(dims: Dims) -> int:
    """Latent, state, and the cells of every camera's feature map."""
    height, width = projection(dims).size
    return 2 + int(dims["cameras"]) * height * width


def convolutions(dims: Dims) -> list[Convolution]:
    """All convolutions in order of execution."""
    found = [stem(dims)]
    for a, b, around in blocks(dims):
        found += [a, b, *([around] if around else [])]
    return [*found, projection(dims)]


def linears(dims: Dims) -> list[tuple[str, int, int, int]]:
    """(name, columns, rows, how many vectors it is applied to) of every linear layer."""
    e, f, n, q = dims["hidden"], dims["feedforward"], tokens(dims), dims["chunk"]
    found = [("latent", dims["latent"], e, 1), ("state", dims["state"], e, 1)]
    for i in range(dims["encoder_layers"]):
        found += _attention(f"encoder.{i}.attention", e, n, n)
        found += [(f"encoder.{i}.wide", e, f, n), (f"encoder.{i}.narrow", f, e, n)]
    for i in range(dims["decoder_layers"]):
        found += _attention(f"decoder.{i}.self", e, q, q) + _attention(f"decoder.{i}.cross", e, q, n)
        found += [(f"decoder.{i}.wide", e, f, q), (f"decoder.{i}.narrow", f, e, q)]
    return [*found, ("head", e, dims["actions"], q)]


def _attention(name: str, e: int, queries: int, keys: int) -> list[tuple[str, int, int, int]]:
    return [
        (f"{name}.q", e, e, queries),
        (f"{name}.k", e, e, keys),
        (f"{name}.v", e, e, keys),
        (f"{name}.out", e, e, queries),
    ]


def norms(dims: Dims) -> list[str]:
    """Names of the layer norms."""
    encoder = [f"encoder.{i}.norm{j}" for i in range(dims["encoder_layers"]) for j in (1, 2)]
    decoder = [f"decoder.{i}.norm{j}" for i in range(dims["decoder_layers"]) for j in (1, 2, 3)]
    return [*encoder, *decoder, "decoder.norm"]


def cost(dims: Dims) -> tuple[int, int]:
    """(parameters, FLOP per call): 2 per multiply-add of convolutions, linear layers and attention products."""
    e, n, q, cameras = dims["hidden"], tokens(dims), dims["chunk"], dims["cameras"]
    convs, dense = convolutions(dims), linears(dims)
    parameters = sum(c.rows * (c.columns * c.kernel**2 + 1) for c in convs)
    parameters += sum(rows * (columns + 1) for _, columns, rows, _ in dense)
    parameters += 2 * e * len(norms(dims)) + e * (q + 2)
    products = sum(cameras * math.prod(c.size) * c.rows * c.columns * c.kernel**2 for c in convs)
    products += sum(columns * rows * count for _, columns, rows, count in dense)
    products += 2 * e * (dims["encoder_layers"] * n * n + dims["decoder_layers"] * (q * q + q * n))
    return parameters, 2 * products


def fault(dims: Dims) -> str | None:
    """What is wrong with dimensions that fit one by one; None for sound ones."""
    if dims["hidden"] % dims["heads"] or dims["hidden"] % 4:
        return f"hidden={dims['hidden']} is not a multiple of heads={dims['heads']} and of 4"
    if min(dims["height"], dims["width"]) < 32:
        return f"images of {dims['height']}x{dims['width']} are smaller than 32x32"
    return None


def weights(dims: Dims, seed: int) -> dict[str, F32]:
    """`<layer>.weight` ([rows, columns], or [rows, columns, kernel, kernel]), `<layer>.bias`, and the position tables."""
    rng = np.random.default_rng(seed)
    found: dict[str, F32] = {}

    def draw(name: str, shape: tuple[int, ...], fan_in: int) -> None:
        # Variance 1/fan-in: sixteen layers of torch's default, a third of that, would leave the images no say in the answer.
        bound = math.sqrt(3.0 / fan_in)
        found[f"{name}.weight"] = rng.uniform(-bound, bound, size=shape).astype(np.float32)
        found[f"{name}.bias"] = rng.uniform(-0.1, 0.1, size=shape[:1]).astype(np.float32)

    for c in convolutions(dims):
        draw(c.name, (c.rows, c.columns, c.kernel, c.kernel), c.columns * c.kernel**2)
    for name, columns, rows, _ in linears(dims):
        draw(name, (rows, columns), columns)
    e = dims["hidden"]
    for name in norms(dims):
        found[f"{name}.weight"] = rng.uniform(0.8, 1.2, size=(e,)).astype(np.float32)
        found[f"{name}.bias"] = rng.uniform(-0.1, 0.1, size=(e,)).astype(np.float32)
    found["query"] = rng.uniform(-1, 1, size=(dims["chunk"], e)).astype(np.float32)
    found["position"] = rng.uniform(-1, 1, size=(2, e)).astype(np.float32)
    return found


def image_positions(dims: Dims) -> F32:
    """[cells, hidden]: sines and cosines of a cell's row in the first half, of its column in the second."""
    height, width = projection(dims).size
    quarter = dims["hidden"] // 4
    scale = 10000.0 ** (-np.arange(quarter) / quarter)
    cells = np.arange(height * width)
    rows, columns = cells // width + 1.0, cells % width + 1.0
    # Normalised to one turn, so that a table for other image sizes has the same range.
    angles = [2 * np.pi * a[:, None] / n * scale for a, n in ((rows, height), (columns, width))]
    parts = [p for angle in angles for p in (np.sin(angle), np.cos(angle))]
    return np.concatenate(parts, axis=1).astype(np.float32)


def positions(dims: Dims, w: Mapping[str, F32]) -> F32:
    """[tokens, hidden]: learned for latent and state, the fixed table for every camera's cells."""
    return np.concatenate([w["position"], np.tile(image_positions(dims), (dims["cameras"], 1))])
