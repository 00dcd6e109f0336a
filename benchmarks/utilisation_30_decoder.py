"""A decoder with random weights and a static KV cache: one token for every running request a step. For utilisation_30.py.

The cache of every place is full of random numbers from the start: a request begins as if its prompt had been read, and attention
goes over the whole context at every step. A request that moves to another place moves no data, as with a block table.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F

STATS = 4  # numbers beside the token that a server may want of each: log-probability, entropy, largest and mean logit


@dataclass(frozen=True)
class Size:
    """Sizes of the decoder. `places` is the largest batch; `context` the length of every place's cache."""

    layers: int
    width: int
    heads: int
    ffn: int
    vocab: int
    context: int
    places: int

    @property
    def parameters(self) -> int:
        """Weights, the embedding (which is the output layer, too) included."""
        return self.layers * (4 * self.width**2 + 3 * self.width * self.ffn) + self.vocab * self.width

    def cache_bytes(self, itemsize: int) -> int:
        """Keys and values of all places."""
        return 2 * self.layers * self.places * self.context * self.width * itemsize


FULL = Size(layers=24, width=1536, heads=12, ffn=4096, vocab=32_000, context=4096, places=64)
TINY = Size(layers=2, width=64, heads=2, ffn=128, vocab=256, context=32, places=8)


class Decoder:
    """`decode(n)` makes one token for the first n places and leaves it on the device; on a GPU it replays one CUDA graph."""

    def __init__(self, size: Size, device: str, dtype: torch.dtype) -> None:
        self.size, self.device = size, torch.device(device)
        torch.manual_seed(0)
        make = {"device": self.device, "dtype": dtype}
        w, f, d = size.width, size.ffn, size.width // size.heads

        def weight(*shape: int) -> torch.Tensor:
            return torch.empty(*shape, **make).normal_(0, 0.02)

        self.embedding = weight(size.vocab, w)
        self.layers = [{"qkv": weight(w, 3 * w), "out": weight(w, w), "up": weight(w, 2 * f), "down": weight(f, w)} for _ in range(size.layers)]  # fmt: skip
        shape = (size.places, size.heads, size.context, d)
        self.keys = [torch.empty(shape, **make).normal_() for _ in range(size.layers)]
        self.values = [torch.empty(shape, **make).normal_() for _ in range(size.layers)]
        angle = torch.outer(torch.arange(size.context), 10_000.0 ** (-torch.arange(0, d, 2) / d))
        self.cos, self.sin = angle.cos().to(**make), angle.sin().to(**make)  # [C, D/2]
        self.token = torch.zeros(size.places, dtype=torch.int64, device=self.device)
        self.position = torch.arange(size.places, device=self.device) % size.context
        self.stats = torch.zeros(size.places, STATS, device=self.device)
        self.span = size.context  # attention goes over this much of every place's cache
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def buckets(self) -> list[int]:
        """Batch sizes that have a graph: powers of two up to all places."""
        sizes = [1]
        while sizes[-1] * 2 < self.size.places:
            sizes.append(sizes[-1] * 2)
        return [*sizes, self.size.places] if self.size.places > 1 else sizes

    @torch.no_grad()
    def calibrate(self, most_ms: float) -> None:
        """Halves the span until a step of all places takes at most `most_ms`, so that a fault of fixed length shows beside it."""
        while True:
            for _ in range(3):
                self.step(self.size.places)
            torch.cuda.synchronize(self.device)
            begin = time.monotonic()
            for _ in range(5):
                self.step(self.size.places)
            torch.cuda.synchronize(self.device)
            if (time.monotonic() - begin) / 5 * 1000 <= most_ms or self.span <= 128:
                return
            self.span //= 2
            self.position %= self.span

    @torch.no_grad()
    def capture(self) -> None:
        """One graph a bucket; a shared pool, since they never run at the same time."""
        pool = None
        for n in self.buckets():
            side = torch.cuda.Stream(self.device)
            side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.step(n)
            torch.cuda.current_stream(self.device).wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self.step(n)
            pool = pool or graph.pool()
            self.graphs[n] = graph
        torch.cuda.synchronize(self.device)

    @torch.no_grad()
    def decode(self, n: int) -> None:
        """One step for the first n places; the work is queued, not waited for."""
        bucket = next(b for b in self.buckets() if b >= n)
        if self.graphs:
            self.graphs[bucket].replay()
        else:
            self.step(bucket)

    def step(self, n: int) -> None:
        """The kernels of one step: token and position in, token, position and stats out."""
        position = self.position[:n]
        cos, sin = self.cos[position].unsqueeze(1), self.sin[position].unsqueeze(1)  # [B, 1, D/2]
        x = self.embedding[self.token[:n]]  # [B, W]
        for i in range(self.size.layers):
            x = self.layer(i, x, position, cos, sin)
        logits = (F.rms_norm(x, (self.size.width,)) @ self.embedding.T).float()  # [B, V]
        logp = logits.log_softmax(-1)
        best, token = logp.max(-1)
        entropy = -(logp.exp() * logp).sum(-1)
        self.stats[:n] = torch.stack((best, entropy, logits.amax(-1), logits.mean(-1)), -1)
        self.token[:n] = token
        self.position[:n] = (position + 1) % self.span

    def layer(self, i: int, x: torch.Tensor, position: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:  # fmt: skip
        """Attention over the whole cache of each place, then the gated feed-forward part."""
        weights, n, h = self.layers[i], x.shape[0], self.size.heads
        d = self.size.width // h
        q, k, v = (F.rms_norm(x, (x.shape[1],)) @ weights["qkv"]).view(n, 3, h, d).unbind(1)  # [B, H, D]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        where = position.view(n, 1, 1, 1).expand(n, h, 1, d)
        keys, values = self.keys[i][:n, :, : self.span], self.values[i][:n, :, : self.span]  # [B, H, C, D]
        keys.scatter_(2, where, k.unsqueeze(2))
        values.scatter_(2, where, v.unsqueeze(2))
        attended = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values)  # [B, H, 1, D]
        x = x + attended.reshape(n, -1) @ weights["out"]
        gate, up = (F.rms_norm(x, (x.shape[1],)) @ weights["up"]).chunk(2, -1)
        return x + (F.silu(gate) * up) @ weights["down"]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding; x [B, H, D], cos and sin [B, 1, D/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
