"""Where step maps of this machine are: the live one for `watch`, the orphans for `recover`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robot_perf.errors import RunFileError
from robot_perf.run.stepmap import StepMap, Word, is_alive

MAP_FOLDER = Path("/dev/shm/robot-perf")


@dataclass(frozen=True)
class MapEntry:
    """One map file: `live` while its worker or its conductor runs; `damage` when it can't be read."""

    path: Path
    live: bool
    committed: int
    modified_s: float
    damage: str = ""
    run_file: str = ""  # name of the Run that it becomes
    begun: str = ""  # UTC, as the request says
    worker: tuple[int, int] = (0, 0)  # pid and birth: a copy on disk has those of the map it copies
    origin: int = -1  # release of step 0, ns; -1 before the window

    def same_steps(self, other: MapEntry) -> bool:
        """Whether one is the copy of the other. A node fills one map after another: its blocks begin at different releases."""
        if self.path == other.path:
            return True
        mine, theirs = ((e.worker, e.run_file, e.begun) for e in (self, other))
        return (
            bool(self.worker[0])
            and mine == theirs
            and (self.origin == other.origin or -1 in (self.origin, other.origin))
        )


def find_maps(folders: tuple[Path, ...] = (MAP_FOLDER, Path("runs"))) -> list[MapEntry]:
    """All maps in the usual places, newest first."""
    entries = sorted(map(_entry, _maps_in(folders)), key=lambda e: (e.begun, e.committed, e.modified_s), reverse=True)
    # Of a map and its copy on disk the one with more steps counts: the copy is older by up to --flush-s.
    kept: list[MapEntry] = []
    for entry in entries:
        if not any(entry.same_steps(other) for other in kept):
            kept.append(entry)
    return kept


def maps_of(run: Path, folders: tuple[Path, ...] | None = None) -> list[MapEntry]:
    """The maps that become a Run file of the name of `run`: live ones first, then the fullest.

    In memory, and a copy on disk. A Run's folder is not in its map, so several measurements may be among them: `same_steps` tells.
    """
    places = folders or (MAP_FOLDER, run.absolute().parent)
    return sorted(
        (e for e in map(_entry, _maps_in(places)) if e.run_file == run.name), key=lambda e: (not e.live, -e.committed)
    )


def copies_of(path: Path, folders: tuple[Path, ...] | None = None) -> list[MapEntry]:
    """The map `path` and whatever else holds the steps of the same measurement, the fullest first."""
    # the folder of a Run is not in its map, but most are recovered where they were measured
    places = folders or (MAP_FOLDER, path.absolute().parent, Path("runs"), Path())
    own = _entry(path)
    others = [e for e in map(_entry, _maps_in(places)) if e.same_steps(own) and not e.path.samefile(path)]
    return sorted((own, *others), key=lambda e: -e.committed)


def running(stepmap: StepMap) -> list[int]:
    """The processes of its worker and its conductor that run."""
    owners = ((Word.WORKER_PID, Word.WORKER_BORN), (Word.CONDUCTOR_PID, Word.CONDUCTOR_BORN))
    return [stepmap[pid] for pid, born in owners if is_alive(stepmap[pid], stepmap[born])]


def _maps_in(folders: tuple[Path, ...]) -> list[Path]:
    distinct = {folder.resolve(): folder for folder in folders if folder.is_dir()}
    return [path for folder in distinct.values() for path in folder.glob("*.map")]


def _entry(path: Path) -> MapEntry:
    modified = path.stat().st_mtime
    try:
        stepmap = StepMap.open(path)
    except RunFileError as error:
        return MapEntry(path, False, 0, modified, str(error).replace("\n", " "))
    try:
        request = stepmap.request
        return MapEntry(
            path,
            bool(running(stepmap)),
            stepmap[Word.COMMITTED],
            modified,
            run_file=str(request.get("run_file", "")),
            begun=str(request.get("started_utc", "")),
            worker=(stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN]),
            origin=stepmap[Word.ORIGIN],
        )
    finally:
        stepmap.close()
