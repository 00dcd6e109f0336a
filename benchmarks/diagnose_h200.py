"""Profiles five policies of known limit, diagnoses each, and holds ncu's report of one kernel each against its prediction.

    cd benchmarks && python diagnose_h200.py OUT [--no-ncu]
    python diagnose_h200.py OUT --judge          diagnoses the files of an earlier run again; needs no GPU

Writes per policy NAME.json.gz (the trace), NAME.diagnosis.md and .json, NAME.ncu.csv (raw page of one kernel), the command lines,
and summary.md with what was expected and what was said. Exit 1 when a diagnosis is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_perf import __version__
from robot_perf.tasks.deadline import DeadlineRequest
from robot_perf.tasks.profiling.diagnose import DiagnoseRequest, diagnose_file
from robot_perf.tasks.profiling.profile import NcuRequest, ncu, profile_torch, run_lines


@dataclass(frozen=True)
class Case:
    """A policy, its rate, what must be said of it, and the kernel for ncu with its prediction."""

    factory: str
    rate: str
    primary: tuple[str, ...]  # of the trace alone
    also: tuple[str, ...] = ()
    with_counters: tuple[str, ...] = ()  # of the trace with counters
    kernel: str | None = None
    predict: str | None = None


CASES = (
    Case("launch_bound", "100", ("launch/CPU",), kernel="gemv", predict="gemv|kernel@linear=1x256x256,dtype=fp32"),
    Case(
        "memory_bound", "50", ("GPU, class not measured",), with_counters=("memory, DRAM", "high throughput, DRAM"), kernel="nvjet",
        predict="nvjet@linear=1x16384x16384,dtype=bf16",
    ),
    Case(
        "compute_bound", "20", ("GPU, class not measured",), with_counters=("high throughput, compute", "compute"), kernel="nvjet",
        predict="nvjet@linear=8192x8192x8192,dtype=bf16",
    ),
    Case("transfer_bound", "50", ("transfer",), kernel="reduce_kernel", predict="reduce_kernel@elements=388800,dtype=fp32"),
    Case("planted_item", "100", ("launch/CPU", "sync"), also=("sync",)),
)  # fmt: skip


def main() -> int:
    """Runs all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--no-ncu", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", default="")
    parser.add_argument("--judge", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    cases = [c for c in CASES if c.factory.startswith(arguments.only)]
    if not arguments.judge:
        (arguments.out / "conditions.txt").write_text(conditions() + "\n")
        for case in cases:
            trace(case, arguments.out, arguments.steps)
    lines = []
    for case in cases:
        counters: Path | None = arguments.out / f"{case.factory}.ncu.csv"
        if not arguments.judge:
            counters = None if arguments.no_ncu or case.kernel is None else counted(case, arguments.out)
        lines.append(judge(case, arguments.out, counters if counters and counters.is_file() else None))
        print(lines[-1]["line"], flush=True)
    write_summary(arguments.out, lines)
    return 0 if all(line["right"] for line in lines) else 1


def conditions() -> str:
    """Machine and versions."""
    import torch

    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return f"robot-perf {__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}, {driver}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def trace(case: Case, out: Path, steps: int) -> None:
    """The trace at rate."""
    request = DeadlineRequest(
        policy=f"diagnose_policies:{case.factory}",
        rate_hz=case.rate,
        steps=steps,
        backend="python",
        backend_options={"device": "cpu"},
    )
    facts = profile_torch(request, out / f"{case.factory}.json.gz")
    print(case.factory, facts, flush=True)


def counted(case: Case, out: Path) -> Path | None:
    """ncu's raw page of one step's matching kernels; skip and count are sized from the trace."""
    command = [
        sys.executable, "-m", "robot_perf.cli", "profile", f"diagnose_policies:{case.factory}", "--rate", case.rate, "--steps", "8", "--backend", "python", "--under-profiler",
    ]  # fmt: skip
    stem = str(out / case.factory)
    lines = ncu(command, stem, NcuRequest(case.kernel, out / f"{case.factory}.json.gz", None, 5, 1))
    # one kernel is enough here: the count of a whole step is in the printed line
    (out / f"{case.factory}.ncu.txt").write_text(
        "\n".join(f"# {x.purpose}\n{x.text}" for x in lines.lines)
        .replace(str(out) + os.sep, "")
        .replace(sys.executable, "python")
        + "\n"
    )
    begin = time.monotonic()
    try:
        first = lines.lines[:2]
        words = tuple(
            "1" if previous == "-c" else word
            for previous, word in zip(("", *first[0].words), first[0].words, strict=False)
        )
        run_lines(type(lines)((type(first[0])(first[0].purpose, words), first[1]), lines.costs), force=True)
    except Exception as error:  # noqa: BLE001 - one policy without counters must not lose the others' traces
        print(f"{case.factory}: ncu: {error}", flush=True)
        return None
    finally:
        print(f"{case.factory}: ncu took {time.monotonic() - begin:.1f} s", flush=True)
        Path(f"{stem}.ncu-rep").unlink(missing_ok=True)
    target = out / f"{case.factory}.ncu.csv"
    Path(f"{stem}.raw.csv").replace(target)
    return target


def judge(case: Case, out: Path, counters: Path | None) -> dict[str, Any]:
    """Diagnoses the trace alone and with counters, and writes both reports."""
    from robot_perf.render.diagnose.text import diagnose_document, diagnose_markdown

    path = out / f"{case.factory}.json.gz"
    alone = diagnose_file(DiagnoseRequest(path, on="H200 SXM", rate_hz=case.rate))
    found = {f.rule for f in alone.diagnosis.findings if f.outcome == "found"}
    right = alone.diagnosis.primary in case.primary and set(case.also) <= found
    line: dict[str, Any] = {
        "policy": case.factory,
        "primary": alone.diagnosis.primary,
        "expected": " or ".join(case.primary),
        "deadline": alone.diagnosis.deadline,
    }
    done = alone
    if counters is not None:
        predict = (case.predict,) if case.predict else ()
        request = DiagnoseRequest(
            path,
            on="H200 SXM",
            rate_hz=case.rate,
            counters=counters,
            predict=predict,
            cache_control="none",
            clock_control="none",
        )
        done = diagnose_file(request)
        line["with counters"] = done.diagnosis.primary
        line["prediction"] = [
            f"{p.outcome}: {p.reason} (DRAM implied {p.dram.implied_pct:.1f}, measured {p.dram.measured_pct}; compute implied {p.compute.implied_pct:.1f}, measured {p.compute.measured_pct})"
            for p in done.predictions
        ]
        right = right and (not case.with_counters or done.diagnosis.primary in case.with_counters)
    (out / f"{case.factory}.diagnosis.md").write_text(diagnose_markdown(done.diagnosis, done.predictions))
    (out / f"{case.factory}.diagnosis.json").write_text(
        json.dumps(diagnose_document(done.diagnosis, done.predictions), indent=1) + "\n"
    )
    line["right"] = right
    line["line"] = (
        f"{case.factory}: {alone.diagnosis.primary} (expected {line['expected']}) {line.get('with counters', '')} {'RIGHT' if right else 'WRONG'}; found {sorted(found)}"
    )
    return line


def write_summary(out: Path, lines: list[dict[str, Any]]) -> None:
    """What was expected and what was said."""
    rows = [
        f"| {x['policy']} | {x['expected']} | {x['primary']} | {x.get('with counters', '')} | {'; '.join(x.get('prediction', []))} | {'right' if x['right'] else 'WRONG'} |"
        for x in lines
    ]
    text = [
        "# Policies of known limit",
        "",
        (out / "conditions.txt").read_text().strip(),
        "",
        "`cd benchmarks && python diagnose_h200.py OUT`",
        "",
    ]
    text += [
        "| policy | expected | diagnosed from the trace | with ncu's counters of one kernel | prediction against the report | |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ]
    (out / "summary.md").write_text("\n".join(text))


if __name__ == "__main__":
    sys.exit(main())
