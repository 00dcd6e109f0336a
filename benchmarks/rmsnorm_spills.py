"""Which candidates of `rmsnorm_tune.py --between` spill in the dtypes that it does not time: needs Triton 3.6, no GPU.

    python benchmarks/rmsnorm_spills.py TUNE.json > SPILLS.json       then: rmsnorm_table.py … --spills SPILLS.json

The tuner sees what spills with BF16 x and weight. A table entry also serves a BF16 x with an FP32 weight, and an FP32 x of half as
many elements; up to 32768 elements no entry may spill. Written: [[kernel, warps, block, rows, ctas, registers], width, {case: stack bytes}].
"""

from __future__ import annotations

import argparse
import json
import os
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from rmsnorm_trial_copies import resources
from rmsnorm_tune_candidates import BETWEEN, NARROW, at_this_width

from robot_perf.kernels.rmsnorm_config import Launch
from robot_perf.kernels.rmsnorm_launch import Variant

WIDEST = 32768


def cases(launch: Launch, d: int) -> dict[str, Variant]:
    """The variants that share a launch with BF16."""
    half = replace(launch, block=launch.block // 2, pack16=False)
    found = {}
    for fused, op in ((False, "plain"), (True, "fused")):
        found[f"{op}, bf16, fp32 weight"] = Variant(launch, d, "bf16", "fp32", True, fused)
        found[f"{op}, fp32"] = Variant(half, d // 2, "fp32", "fp32", True, fused)
    return found


def stack(job: tuple[str, Variant, int]) -> int:
    """Bytes of stack; -1 where it does not compile."""
    _, variant, chip = job
    found = re.search(r"(\d+) stack", resources(variant, chip))
    return -1 if found is None else int(found[1])


def main() -> None:
    """Compiles and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--margin", type=float, default=1.08)
    parser.add_argument("--chip", type=int, default=90)
    options = parser.parse_args()
    launches = {
        (replace(launch, policy=0, pdl=1), d): None
        for m, d in [*BETWEEN, *NARROW]
        if d <= WIDEST
        for launch in at_this_width(options.report, m, d, options.margin)
    }
    jobs = [(launch, d, name, v) for launch, d in launches for name, v in cases(launch, d).items()]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        stacks = list(pool.map(stack, [(name, v, options.chip) for _, _, name, v in jobs], chunksize=4))
    found: dict[tuple[Launch, int], dict[str, int]] = {}
    for (launch, d, name, _), size in zip(jobs, stacks, strict=True):
        found.setdefault((launch, d), {})[name] = size
    key = lambda x: [x.kernel, x.warps, x.block, x.rows, x.ctas, x.registers]  # noqa: E731
    print(json.dumps([[key(launch), d, sizes] for (launch, d), sizes in found.items() if any(sizes.values())]))


if __name__ == "__main__":
    main()
