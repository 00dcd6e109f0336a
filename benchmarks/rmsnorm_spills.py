"""Which candidates of `rmsnorm_tune.py --between` spill in the dtypes and widths that it does not time: Triton 3.6, no GPU.

    python benchmarks/rmsnorm_spills.py TUNE.json [--margin 1.08] > SPILLS.json       then: rmsnorm_table.py … --spills SPILLS.json

The tuner sees what spills with BF16 x and weight at the width of an entry. The entry also serves a BF16 x with an FP32 weight, an
FP32 x of half as many elements, and narrower rows, which need masks; up to 32768 elements no entry may spill. Written: [[kernel, warps, block, rows, ctas, registers], width, {case: stack bytes}].
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
        for width in dict.fromkeys((d, masked(d))):
            for weight in ("bf16", "fp32"):
                found[f"{op}, {width}, bf16, {weight} weight"] = Variant(launch, width, "bf16", weight, True, fused)
            found[f"{op}, {width // 2}, fp32"] = Variant(half, width // 2, "fp32", "fp32", True, fused)
    return found


def masked(d: int) -> int:
    """A width of the same entry that fills no power of two, as `rmsnorm_config.table_entries` has it."""
    return d // 8 * 7 // 8 * 8 if d >= 256 else d


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
