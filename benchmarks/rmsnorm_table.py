"""Writes kernels/rmsnorm_table.py from the reports of benchmarks/rmsnorm_tune.py.

    python benchmarks/rmsnorm_table.py TUNE.json… [--spills SPILLS.json] > kernels/rmsnorm_table.py

Per width and number of rows it takes the one structure whose µs, over the best of its point, has the least geometric mean over
the points of the cell and both ops (plain and fused must sum alike), with a third of the worst point's excess added. A later
report replaces the points of an earlier one. Structures that spill, for any dtype of SPILLS, are left out up to 32768 elements.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path

from robot_perf.kernels.rmsnorm_config import DeviceFacts
from robot_perf.kernels.rmsnorm_config import regime as config_regime

Structure = tuple[str, int, int, int, int]  # kernel, rows or blocks per row, warps, chunk, register cap


def structure(launch: dict) -> Structure:
    """What a table cell names."""
    many = launch["rows"] if launch["kernel"] == "row" else launch["ctas"]
    return (
        launch["kernel"],
        many,
        launch["warps"],
        launch["block"] if launch["kernel"] == "loop" else 0,
        launch.get("registers", 0),
    )


def regime(m: int, d: int, sm: int, l2_bytes: int) -> int:
    """The cell of m rows, as kernels/rmsnorm_config.regime has it."""
    facts = DeviceFacts(90, sm, l2_bytes)
    return config_regime(m, 2 * d, facts)


def gather(reports: list[Path], spilling: set[tuple]) -> dict[tuple[int, int], dict[Structure, dict[bool, float]]]:
    """µs by (d, m), structure and op."""
    found: dict[tuple[int, int], dict[Structure, dict[bool, float]]] = {}
    for path in reports:
        fresh: dict[tuple[int, int], dict[Structure, dict[bool, float]]] = defaultdict(lambda: defaultdict(dict))
        for point in json.loads(path.read_text())["points"]:
            for entry in point["found"]:
                launch = entry["launch"]
                key = structure(launch)
                if (
                    "us" not in entry
                    or launch["pdl"] != 1
                    or (point["d"] <= 32768 and (entry["spills"] or (key, point["d"]) in spilling))
                ):
                    continue
                times = fresh[point["d"], point["m"]][key]
                times[point["fused"]] = min(entry["us"], times.get(point["fused"], math.inf))
        found |= {key: dict(value) for key, value in fresh.items()}
    return found


def choose(points: list[dict[Structure, dict[bool, float]]]) -> tuple[Structure, float, float]:
    """(structure, geometric mean and worst of µs over the best) for the points of a cell."""
    best_score, best = math.inf, None
    for candidate in set().union(*points):
        ratios = []
        for point in points:
            for op in (False, True):
                least = min((t[op] for t in point.values() if op in t), default=None)
                mine = point.get(candidate, {}).get(op)
                if least is None or mine is None:
                    break
                ratios.append(mine / least)
        if len(ratios) < 2 * len(points):
            continue
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        score = mean + (max(ratios) - 1) / 3
        if score < best_score:
            best_score, best = score, (candidate, mean, max(ratios))
    assert best is not None
    return best


def main() -> None:
    """Prints the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--spills", type=Path)
    parser.add_argument("--sm", type=int, default=132)
    parser.add_argument("--l2-mib", type=int, default=60)
    options = parser.parse_args()
    spilling = set()
    if options.spills:
        for (kernel, warps, block, rows, ctas, registers), d, stacks in json.loads(options.spills.read_text()):
            if any(v != 0 for v in stacks.values()):
                launch = {
                    "kernel": kernel,
                    "warps": warps,
                    "block": block,
                    "rows": rows,
                    "ctas": ctas,
                    "registers": registers,
                }
                spilling.add((structure(launch), d))
    found = gather(options.reports, spilling)
    cells: dict[tuple[int, int], list] = defaultdict(list)
    for (d, m), times in found.items():
        cells[d, regime(m, d, options.sm, options.l2_mib * 2**20)].append(times)
    print(HEADER)
    for d in sorted({d for d, _ in cells}):
        chosen = [choose(cells[d, r]) for r in range(4)]
        names = ", ".join(cell(c[0]) for c in chosen)
        print(
            f"    ({d}, ({names})),  # {' '.join(f'{c[1]:.2f}' for c in chosen)}; worst {max(c[2] for c in chosen):.2f}"
        )
    print(")")


def cell(found: Structure) -> str:
    """A cell as a literal."""
    kernel, many, warps, block, registers = found
    return (
        f'("{kernel}", {many}, {warps}, {block}, {registers})' if kernel == "loop" else f'("{kernel}", {many}, {warps})'
    )


HEADER = '''"""Launches measured on an H200 (sm_90, 132 SM, L2 60 MiB), BF16. Written by benchmarks/rmsnorm_table.py; do not edit.

(d up to, (few, at most one row per SM, more, many rows)); a cell is (kernel, rows or blocks per row, warps) and for
the loop kernel its chunk and register cap. Behind each line: the cells' µs over the best structure measured there, both ops.
"""
# fmt: off

from __future__ import annotations

Cell = tuple[str, int, int] | tuple[str, int, int, int, int]

H200: tuple[tuple[int, tuple[Cell, Cell, Cell, Cell]], ...] = ('''

if __name__ == "__main__":
    main()
