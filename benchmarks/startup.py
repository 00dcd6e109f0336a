"""`robot-perf --help` beside a bare two-command typer program, interleaved: whole processes, medians and the ratio pair by pair.

python benchmarks/startup.py [--pairs 30]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARE = """
import typer
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
@app.command()
def first(name: str = "x") -> None:
    "The first command."
@app.command()
def second(name: str = "x") -> None:
    "The second command."
app(prog_name="bare")
"""


def seconds(command: list[str]) -> float:
    """Wall time of one process."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    """Runs the pairs in alternating order and prints medians and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE, encoding="utf-8")
        ours = [sys.executable, "-m", "robot_perf.cli", "--help"]
        theirs = [sys.executable, str(bare), "--help"]
        for command in (ours, theirs):
            seconds(command)
        a, b = [], []
        for pair in range(pairs):
            order = ((ours, a), (theirs, b)) if pair % 2 == 0 else ((theirs, b), (ours, a))
            for command, into in order:
                into.append(seconds(command))
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    print(f"{platform.machine()}, Python {platform.python_version()}, {pairs} interleaved pairs")
    print(f"robot-perf --help  median {statistics.median(a) * 1000:.0f} ms")
    print(f"bare typer         median {statistics.median(b) * 1000:.0f} ms")
    print(f"ratio, pair by pair: median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
