"""`recover`: whatever process died, its step map becomes a Run."""

from __future__ import annotations

from pathlib import Path

from robot_perf.errors import UsageError
from robot_perf.run.assemble import COMPLETE, run_from_map
from robot_perf.run.maps import MapEntry, find_maps, maps_of
from robot_perf.run.model import Run
from robot_perf.run.parquet import save
from robot_perf.run.stepmap import StepMap, Word, is_alive


def orphans() -> list[MapEntry]:
    """Maps in the usual places whose processes are gone, newest first."""
    return [entry for entry in find_maps() if not entry.live]


def recover(source: Path, output: Path | None, *, keep: bool = False, force: bool = False) -> tuple[Run, Path]:
    """A saved Run of the map `source`, or of the fullest map that was to become the Run `source`.

    The map and its copy on disk are removed unless `keep`. The state of a recovered Run is never "complete" unless the map
    itself says that the worker had finished.
    """
    path = _fullest(source) if source.suffix == ".parquet" else source
    if not path.is_file():
        raise UsageError(
            f"{path} does not exist", do="robot-perf recover without argument lists the maps of this machine."
        )
    stepmap = StepMap.open(path)
    try:
        owners = ((Word.WORKER_PID, Word.WORKER_BORN), (Word.CONDUCTOR_PID, Word.CONDUCTOR_BORN))
        running = [stepmap[pid] for pid, born in owners if is_alive(stepmap[pid], stepmap[born])]
        if running:
            raise UsageError(
                f"{path} is in use: process {running[0]} runs",
                do=f"Follow it with: robot-perf watch {path}",
            )
        run = run_from_map(stepmap)
        if run.conditions["state"] != COMPLETE:
            run = Run(run.columns, {**run.conditions, "recovered_from": path.name})
    finally:
        stepmap.close()
    name = str(run.conditions.get("run_file") or f"{path.stem}.parquet")
    beside = source if source.suffix == ".parquet" else Path("runs") / name
    target = output or beside
    save(run, target, force=force)
    if not keep:
        path.unlink()
        for copy in maps_of(beside) if run.conditions.get("run_file") else ():
            if not copy.live:
                copy.path.unlink(missing_ok=True)
    return run, target


def _fullest(run: Path) -> Path:
    entries = [entry for entry in maps_of(run) if not entry.damage]
    if entries:
        return entries[0].path
    if run.is_file():
        raise UsageError(
            f"{run} is a finished Run: there is nothing to recover", do=f"Read it: robot-perf report {run}"
        )
    raise UsageError(
        f"no step map of {run.name} is on this machine",
        do="robot-perf recover without argument lists the maps of this machine.",
    )
