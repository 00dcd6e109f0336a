"""Whether the ptxas that Triton would run knows this machine's GPU: read from files, without importing Triton or torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_perf.kernels.rmsnorm_support import ptxas_variable
from robot_perf.measure.watch.nvml import open_meter

__all__ = ["triton_facts"]

_RELEASE = re.compile(rb"release (\d+)\.(\d+), V\d")
_ORIN_L4T, _ORIN = 36, 87  # JetPack 6 runs on Orin alone, whose GPU NVML does not show


def triton_facts(
    installed: Sequence[Mapping[str, Any]], l4t: Mapping[str, Any] | None, environment: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """{"installed": False}, or {"installed": True, "version", "capability": major*10+minor, "ptxas": path, "ptxas_cuda": [major, minor]}.

    Raises OSError or ValueError where the GPU or the ptxas can't be asked.
    """
    rows = [row for row in installed if row["name"] == "triton"]
    if not rows:
        return {"installed": False}
    capability = _ORIN if l4t and l4t.get("release") == _ORIN_L4T else _capability()
    path = _ptxas(Path(rows[0]["place"]) / "triton" / "backends" / "nvidia" / "bin", capability, environment)
    found = _RELEASE.search(path.read_bytes())  # what --version prints; doctor doesn't run what it looks at
    if found is None:
        raise ValueError(f"{path} names no CUDA release")
    return {
        "installed": True,
        "version": rows[0]["version"],
        "capability": capability,
        "ptxas": str(path),
        "ptxas_cuda": [int(found[1]), int(found[2])],
    }


def _capability() -> int:
    meter, why = open_meter("cuda:0")
    if meter is None:
        raise ValueError(why)
    said = meter.identity().get("compute_capability")
    meter.close()
    if not said:
        raise ValueError("the meter does not say which GPU this is")
    major, minor = str(said).split(".")
    return int(major) * 10 + int(minor)


def _ptxas(folder: Path, capability: int, environment: Mapping[str, str]) -> Path:
    """The ptxas Triton would run: the variable's, else the one it ships for the chip."""
    named = environment.get(ptxas_variable(capability))
    if named:
        return Path(named)
    own = folder / "ptxas-blackwell"
    return own if capability >= 100 and own.is_file() else folder / "ptxas"
