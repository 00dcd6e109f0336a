"""`robot-perf ceiling --run`: a saved Run or bench report against the ceiling of a device."""

from __future__ import annotations

from pathlib import Path

from robot_perf.analyze.ceiling.meets import CeilingShare, bench_meets_ceiling, run_meets_ceiling
from robot_perf.tasks.ceiling.targets import TargetRequest, one_target


def meet(run: Path, target: TargetRequest, *, probe: Path | None = None, dtype: str | None = None) -> CeilingShare:
    """The share of the bound that the Run's median step reached. `dtype` of the arithmetic, fp32 where it isn't given.

    Raises UsageError for an unknown device, an INVALID Run or a policy without counted bytes, RunFileError for a file that
    is no Run.
    """
    from robot_perf.run.parquet import load
    from robot_perf.tasks.machine.devices import read_probe

    device, mode = one_target(target)
    report = read_probe(probe) if probe is not None else None
    return run_meets_ceiling(load(run), device, mode, dtype=dtype or "fp32", probe=report)


def meet_bench(
    file: Path, target: TargetRequest, *, probe: Path | None = None, dtype: str | None = None
) -> tuple[CeilingShare, ...]:
    """The share of every measured point of a bench report. Raises as `meet` does."""
    from robot_perf.run.bench_report import load
    from robot_perf.tasks.machine.devices import read_probe

    device, mode = one_target(target)
    report = read_probe(probe) if probe is not None else None
    return bench_meets_ceiling(load(file), device, mode, dtype=dtype or "fp32", probe=report)
