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


def find_maps(folders: tuple[Path, ...] = (MAP_FOLDER, Path("runs"))) -> list[MapEntry]:
    """All maps in the usual places, newest first."""
    paths = [p for folder in folders if folder.is_dir() for p in folder.glob("*.map")]
    entries = sorted((_entry(p) for p in paths), key=lambda e: (e.begun, e.committed, e.modified_s), reverse=True)
    # Of a map and its copy on disk the one with more steps counts: the copy is older by up to --flush-s.
    seen: set[tuple[int, int]] = set()
    kept = []
    for entry in entries:
        if entry.worker in seen and entry.worker[0]:
            continue
        seen.add(entry.worker)
        kept.append(entry)
    return kept


def maps_of(run: Path, folders: tuple[Path, ...] | None = None) -> list[MapEntry]:
    """The maps that become the Run file `run`, the fullest first: in memory, and its copy on disk."""
    places = folders or (MAP_FOLDER, run.absolute().parent)
    paths = [p for folder in places if folder.is_dir() for p in folder.glob("*.map")]
    return sorted((e for e in map(_entry, paths) if e.run_file == run.name), key=lambda e: -e.committed)


def _entry(path: Path) -> MapEntry:
    modified = path.stat().st_mtime
    try:
        stepmap = StepMap.open(path)
    except RunFileError as error:
        return MapEntry(path, False, 0, modified, str(error).replace("\n", " "))
    try:
        live = is_alive(stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN]) or is_alive(
            stepmap[Word.CONDUCTOR_PID], stepmap[Word.CONDUCTOR_BORN]
        )
        request = stepmap.request
        return MapEntry(
            path,
            live,
            stepmap[Word.COMMITTED],
            modified,
            run_file=str(request.get("run_file", "")),
            begun=str(request.get("started_utc", "")),
            worker=(stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN]),
        )
    finally:
        stepmap.close()
