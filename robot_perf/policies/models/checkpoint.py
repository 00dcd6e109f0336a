"""Bytes that a safetensors checkpoint streams per token, by stored dtype: reads headers alone, never a tensor."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError

_MAX_HEADER = 100_000_000  # the format's own limit
_EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "tok_embeddings.weight",
    "word_embeddings.weight",
    "embed_in.weight",
)
_HEADS = ("lm_head.weight", "output.weight", "embed_out.weight")
_EXPERT = re.compile(r"\.experts\.\d+\.|\.experts\.(gate_up_proj|down_proj)")


@dataclass(frozen=True, slots=True)
class CheckpointBytes:
    """Sizes in bytes. `embedding` is the input embedding where the head is a tensor of its own, else 0 (tied)."""

    total: int
    embedding: int
    experts: int
    by_dtype: dict[str, int] = field(default_factory=dict)

    def streamed(self, experts: int | None = None, per_token: int | None = None) -> float:
        """Bytes read per token: all but the input embedding and the experts that a token does not take."""
        share = per_token / experts if experts and per_token else 1.0
        return self.total - self.embedding - self.experts * (1 - share)


def read_checkpoint(path: Path) -> CheckpointBytes:
    """The sizes of a .safetensors file or of all such files in a folder. Raises UsageError for anything else."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path}: no .safetensors file", do="Name a safetensors file or a folder with its shards.")
    sizes: dict[str, int] = {}
    by_dtype: dict[str, int] = {}
    for file in files:
        for name, entry in _header(file).items():
            if name == "__metadata__":
                continue
            size = _span(file, name, entry)
            sizes[name] = size
            by_dtype[str(entry["dtype"])] = by_dtype.get(str(entry["dtype"]), 0) + size
    tied = not any(name.endswith(_HEADS) for name in sizes)
    embedding = 0 if tied else sum(s for n, s in sizes.items() if n.endswith(_EMBEDDINGS))
    experts = sum(s for n, s in sizes.items() if _EXPERT.search(n))
    return CheckpointBytes(sum(sizes.values()), embedding, experts, by_dtype)


def _header(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            if length > min(_MAX_HEADER, file.stat().st_size):
                raise UsageError(f"{file}: not a safetensors file", why=f"Its header claims {length:,} bytes.")
            header = json.loads(stream.read(length))
    except OSError as error:
        raise UsageError(f"{file}: can't be read", detail=str(error)) from error
    except (ValueError, struct.error) as error:
        raise UsageError(f"{file}: not a safetensors file", detail=str(error)) from error
    if not isinstance(header, dict):
        raise UsageError(f"{file}: not a safetensors file", why="Its header is no JSON object.")
    return header


def _span(file: Path, name: str, entry: Any) -> int:
    try:
        start, end = entry["data_offsets"]
        if not (0 <= start <= end) or "dtype" not in entry:
            raise ValueError(entry)
        return int(end - start)
    except (TypeError, KeyError, ValueError) as error:
        raise UsageError(f"{file}: tensor {name!r} has no valid data_offsets and dtype", detail=str(error)) from error
