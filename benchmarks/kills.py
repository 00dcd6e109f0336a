"""SIGKILL at random moments: does a step that the policy finished ever get lost?

    python benchmarks/kills.py [--kills 100] [--victim worker|conductor|both] [--seed 0]

The policy counts its own finished calls in a file that survives it (the witness). After each kill the steps in the saved or
recovered Run are compared with it: at most the one step may be missing whose call had returned but whose row was not yet
committed. Exit code 1 if more is lost.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from robot_perf.policies.scripted import witnessed
from robot_perf.run.maps import MAP_FOLDER
from robot_perf.run.parquet import load
from robot_perf.run.stepmap import StepMap, Word, is_alive
from robot_perf.tasks.recover import recover

RUN = (
    "import sys; from pathlib import Path\n"
    "from robot_perf.tasks.deadline import DeadlineRequest, prepare, run_deadline\n"
    "request = DeadlineRequest(policy='robot_perf.policies.scripted:witness', rate_hz='1000', steps=1_000_000, warmup_max=30,\n"
    "    policy_options={'path': sys.argv[1], 'base_us': 20}, output=Path(sys.argv[2]))\n"
    "run_deadline(prepare(request))\n"
)


def one_kill(folder: Path, victim: str, delay_s: float) -> int:
    """Steps lost by one SIGKILL, `delay_s` after the first step. Negative is impossible."""
    witness, output = folder / "witness", folder / "run.parquet"
    process = subprocess.Popen([sys.executable, "-c", RUN, str(witness), str(output)])
    path = wait_for(lambda: next(iter(MAP_FOLDER.glob(f"*-{process.pid}-*.map")), None))
    stepmap = StepMap.open(path)
    wait_for(lambda: stepmap[Word.COMMITTED] > 0)
    time.sleep(delay_s)
    if victim == "worker":
        os.kill(stepmap[Word.WORKER_PID], signal.SIGKILL)
        process.wait()
        run = load(output)
    else:
        process.kill()
        process.wait()
        wait_for(lambda: not is_alive(stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN]))
        run, _ = recover(path, output)
    stepmap.close()
    return witnessed(str(witness)) - len(run.columns["step"])


def wait_for(condition, seconds: float = 30.0):
    """The condition's first true value."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise SystemExit("nothing happened in time")
        time.sleep(0.005)


def main() -> None:
    """Kills, counts, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--victim", choices=("worker", "conductor", "both"), default="both")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    seeded = random.Random(arguments.seed)
    worst = 0
    for victim in ("worker", "conductor") if arguments.victim == "both" else (arguments.victim,):
        losses = []
        for _ in range(arguments.kills):
            with tempfile.TemporaryDirectory() as folder:
                losses.append(one_kill(Path(folder), victim, seeded.uniform(0, 0.6)))
        counts = {loss: losses.count(loss) for loss in sorted(set(losses))}
        print(f"{victim:10} {arguments.kills} SIGKILLs: steps lost {counts}")
        worst = max(worst, *losses)
    sys.exit(1 if worst > 1 else 0)


if __name__ == "__main__":
    main()
