"""`recover`: whatever process died, its step map becomes a Run."""

from __future__ import annotations

from pathlib import Path

from robot_perf.errors import UsageError
from robot_perf.run.assemble import COMPLETE, run_from_map
from robot_perf.run.maps import MAP_FOLDER, MapEntry, copies_of, find_maps, maps_of, running
from robot_perf.run.model import Run
from robot_perf.run.parquet import save
from robot_perf.run.stepmap import StepMap
from robot_perf.run.unfinished import remove_left_over
from robot_perf.tasks.run_files import check_run_file


def orphans() -> list[MapEntry]:
    """Maps in the usual places whose processes are gone, newest first. What was killed before it was a map is removed."""
    for folder in (MAP_FOLDER, Path("runs")):
        remove_left_over(folder)
    return [entry for entry in find_maps() if not entry.live]


def recover(source: Path, output: Path | None, *, keep: bool = False, force: bool = False) -> tuple[Run, Path]:
    """A saved Run of the map `source`, or of the map that was to become the Run `source`.

    Of a map and its copy the fuller one is taken, whichever was named: the copy on disk is older. Both are removed unless `keep`,
    and nothing else: another measurement may have had a Run of the same name. The state of a recovered Run is never "complete"
    unless the map itself says that the worker had finished.
    """
    named = _of_run(source) if source.suffix == ".parquet" else source
    if not named.is_file():
        raise UsageError(
            f"{named} {'is a folder' if named.is_dir() else 'does not exist'}",
            do="robot-perf recover without argument lists the maps of this machine.",
        )
    StepMap.open(named).close()  # says what is wrong with it
    copies = [copy for copy in copies_of(named) if not copy.damage]
    path = copies[0].path
    stepmap = StepMap.open(path)
    try:
        if using := running(stepmap):
            raise UsageError(
                f"{path} is in use: process {using[0]} runs",
                do=f"Follow it with: robot-perf watch {path}",
            )
        run = run_from_map(stepmap)
        if run.conditions["state"] != COMPLETE:
            run = Run(run.columns, {**run.conditions, "recovered_from": path.name})
    finally:
        stepmap.close()
    name = str(run.conditions.get("run_file") or f"{path.stem}.parquet")
    # a copy on disk lies where the Run was to lie
    folder = next((c.path.parent for c in copies if c.path.parent != MAP_FOLDER), Path("runs"))
    target = output or (source if source.suffix == ".parquet" else folder / name)
    check_run_file(target, force=force)
    save(run, target, force=force)
    if not keep:
        for copy in copies:
            copy.path.unlink(missing_ok=True)
    return run, target


def _of_run(run: Path) -> Path:
    """The map that was to become the Run: one whose processes are gone, where there is one. Raises UsageError where two measurements left one."""
    entries = [entry for entry in maps_of(run) if not entry.damage]
    candidates = [entry for entry in entries if not entry.live] or entries
    if not all(entry.same_steps(candidates[0]) for entry in candidates):
        found = ", ".join(
            f"{e.path} (begun {e.begun or 'at an unknown time'}, {e.committed:,} rows)" for e in candidates
        )
        raise UsageError(
            f"more than one measurement was to become {run.name}",
            why=f"Their maps: {found}.",
            do=f"Name the map: robot-perf recover MAP -o {run}",
        )
    if candidates:
        return candidates[0].path
    if run.is_file():
        raise UsageError(
            f"{run} is a finished Run: there is nothing to recover", do=f"Read it: robot-perf report {run}"
        )
    raise UsageError(
        f"no step map of {run.name} is on this machine",
        do="robot-perf recover without argument lists the maps of this machine.",
    )
