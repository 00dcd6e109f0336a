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


def find_maps(folders: tuple[Path, ...] = (MAP_FOLDER, Path("runs"))) -> list[MapEntry]:
    """All maps in the usual places, newest first."""
    paths = [p for folder in folders if folder.is_dir() for p in folder.glob("*.map")]
    return sorted((_entry(p) for p in paths), key=lambda e: -e.modified_s)


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
        return MapEntry(path, live, stepmap[Word.COMMITTED], modified)
    finally:
        stepmap.close()
