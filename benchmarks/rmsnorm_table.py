"""Writes kernels/rmsnorm_table.py from the reports of benchmarks/rmsnorm_tune.py and rmsnorm_trial.py.

    python benchmarks/rmsnorm_table.py TUNE.json… [--trial TRIAL.json]… [--spills SPILLS.json] > kernels/rmsnorm_table.py

The committed one, from what lies in reports/nvidia-h200: rmsnorm_tune.json rmsnorm_tune_between.json --trial rmsnorm_trial.json
--trial rmsnorm_trial_wide.json --trial rmsnorm_tune_between.json --spills rmsnorm_spills.json.

Per width and number of rows it takes the one structure whose µs, over the best of its point, has the least geometric mean over
the points of the cell and both ops (plain and fused must sum alike), with a third of the worst point's excess added. A later
report replaces the points of an earlier one. Structures that spill, for any dtype of SPILLS, are left out up to 32768 elements.

All columns but the last are for every GPU with clusters, so the last but one takes in the points of the last. That (x larger than the
L2, sm_90) is chosen from the trials alone, among the launches in the form that it gives out: the cache hints of PASS, and `remote`
where a row has more than one block. A width at which none was timed repeats the last but one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path

from robot_perf.kernels.rmsnorm_config import KEEP, LARGE, MORE, PASS, DeviceFacts
from robot_perf.kernels.rmsnorm_config import regime as config_regime

MANY = LARGE - 1
BESIDE = {2: 1, 4: MORE}  # the column that a column repeats at a width without a point of its own
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


def regime(m: int, d: int, sm: int, l2_bytes: int, capability: int) -> int:
    """The column of m rows, as kernels/rmsnorm_config.regime has it; only capability 90 has the last."""
    return config_regime(m, 2 * d, DeviceFacts(capability, sm, l2_bytes))


def named(launch: dict) -> bool:
    """Whether a cell can name the launch: the row kernel without packed registers, split with an early weight and no register cap."""
    split = launch["kernel"] == "split"
    return not launch.get("pack16") and not (
        split and (launch.get("registers") or not launch.get("weight_early", True))
    )


def large_form(launch: dict) -> bool:
    """Whether a launch is of the form that the last column gives out."""
    return launch["policy"] == PASS and launch["remote"] == (launch["ctas"] > 1)


def gather(
    reports: list[Path], spilling: set[tuple], *, large: bool = False
) -> dict[tuple[int, int], dict[Structure, dict[bool, float]]]:
    """µs by (d, m), structure and op; `large`: only launches in the last column's form."""
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
                    or not named(launch)
                    or (
                        not large and launch["kernel"] != "loop" and launch["policy"] in (KEEP, PASS)
                    )  # the last column's
                    or (large and not large_form(launch))
                    or (point["d"] <= 32768 and (entry["spills"] or (key, point["d"]) in spilling))
                ):
                    continue
                times = fresh[point["d"], point["m"]][key]
                times[point["fused"]] = min(time_of(entry), times.get(point["fused"], math.inf))
        found |= {key: dict(value) for key, value in fresh.items()}
    return found


def time_of(entry: dict) -> float:
    """µs: over inputs that the cache has lost and, where that was timed too, inputs that it has; the geometric mean of both."""
    return math.sqrt(entry["us"] * entry.get("us_one_set", entry["us"]))


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


def beside(cells: dict, d: int, column: int) -> list:
    """The points of the column that a column without its own repeats. Exits where there is none."""
    found = cells[d, BESIDE[column]] if column in BESIDE else None
    if not found:
        raise SystemExit(f"the reports have no point for column {column} at {d} elements")
    return found


def spills_of(path: Path | None) -> set[tuple]:
    """(structure, width) of what the report says to spill."""
    found = set()
    for (kernel, warps, block, rows, ctas, registers), d, stacks in (
        [] if path is None else json.loads(path.read_text())
    ):
        if any(v != 0 for v in stacks.values()):
            launch = {
                "kernel": kernel,
                "warps": warps,
                "block": block,
                "rows": rows,
                "ctas": ctas,
                "registers": registers,
            }
            found.add((structure(launch), d))
    return found


def module(tunes: list[Path], trials: list[Path], spilling: set[tuple], sm: int, l2_bytes: int) -> str:
    """The text of kernels/rmsnorm_table.py."""
    cells: dict[tuple[int, int], list] = defaultdict(list)
    for (d, m), times in gather(tunes, spilling).items():
        cells[d, regime(m, d, sm, l2_bytes, capability=100)].append(times)
    for (d, m), times in gather(trials, spilling, large=True).items():
        if regime(m, d, sm, l2_bytes, capability=90) == LARGE:
            cells[d, LARGE].append(times)
    lines = [HEADER]
    for d in sorted({d for d, column in cells if column != LARGE}):
        chosen = [choose(cells[d, column] or beside(cells, d, column)) for column in range(LARGE)]
        structures = [c[0] for c in chosen]
        structures.append(choose(cells[d, LARGE])[0] if cells[d, LARGE] else structures[MANY])
        means = " ".join(f"{c[1]:.2f}" for c in chosen)
        names = ", ".join(map(cell, structures))
        lines.append(f"    ({d}, ({names})),  # {means}; worst {max(c[2] for c in chosen):.2f}")
    return "\n".join([*lines, ")", ""])


def main() -> None:
    """Prints the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--trial", type=Path, action="append", default=[])
    parser.add_argument("--spills", type=Path)
    parser.add_argument("--sm", type=int, default=132)
    parser.add_argument("--l2-mib", type=int, default=60)
    options = parser.parse_args()
    spilling = spills_of(options.spills)
    print(module(options.reports, options.trial, spilling, options.sm, options.l2_mib * 2**20), end="")


def cell(found: Structure) -> str:
    """A cell as a literal."""
    kernel, many, warps, block, registers = found
    more = f", {block}, {registers}" if kernel == "loop" else ""
    return f'("{kernel}", {many}, {warps}{more})'


HEADER = '''"""Launches measured on an H200 (sm_90, 132 SM, L2 60 MiB), BF16. Written by benchmarks/rmsnorm_table.py; do not edit.

(d up to, (few, at most one row per two SMs, one per SM, four per SM, more, many rows, x larger than the L2)); a cell is (kernel,
rows or blocks per row, warps) and for the loop kernel its chunk and register cap. Behind each line: the µs of all but the last over
the best structure measured there, both ops. The last is chosen from trials, with the cache hints and the exchange of rmsnorm_config;
where none was made it repeats the one before, as the third and the fifth repeat the second and the fourth where nothing was timed.
"""
# fmt: off

from __future__ import annotations

Cell = tuple[str, int, int] | tuple[str, int, int, int, int]

H200: tuple[tuple[int, tuple[Cell, ...]], ...] = ('''

if __name__ == "__main__":
    main()
