"""The step map: the memory file that the measured process fills and the conductor reads while it does.

Layout, little endian:

    0      8 B   magic
    8      15 x 8 B   header words, see `Word`
    128          request: conditions known before the start, JSON, written once by the creator
    …            report: what the worker found, JSON, replaced whole by the worker outside the loop
    rows_at      rows x columns, int64

The creator allocates every row's page (no later write can fail for want of memory, which would be a SIGBUS) and the
writer commits a row by raising one aligned word after the row is complete. A reader of a live map may meet a newest row
whose stores have not all arrived on a weakly ordered processor; once the writer is gone, every committed row is whole.
Death of a process loses nothing; loss of power loses what was not yet copied to disk.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf.errors import RunFileError
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import SCHEMA, Column
from robot_perf.run.unfinished import MAGIC, finished_as

REQUEST_AT = 128
REPORT_CAPACITY = 1 << 20
_PAGE = mmap.PAGESIZE
_MAX_ROWS = 1 << 33
_WORD = struct.Struct("<q")
_LIST = "robot-perf recover without argument lists the maps of this machine."


class Word(IntEnum):
    """Byte offsets of the header words."""

    ROWS = 8  # capacity
    COLUMNS = 16
    COMMITTED = 24  # rows complete; raised by the writer after each row
    PHASE = 32
    WORKER_PID = 40
    WORKER_BORN = 48  # start of the process in clock ticks since boot, so that a reused pid is not taken for it
    CONDUCTOR_PID = 56
    CONDUCTOR_BORN = 64
    WARMUP_ROWS = 72  # of the committed rows; -1 until warm-up has ended
    ORIGIN = 80  # release of step 0, ns; -1 until the window begins
    REQUEST_BYTES = 88
    REPORT_BYTES = 96
    REPORT_VERSION = 104  # odd while the report is being replaced
    ROWS_AT = 112
    GO = 120  # not 0 once a worker that holds may begin


class Phase(IntEnum):
    """What the worker is doing."""

    CREATED = 0
    LOADING = 1
    LOADED = 2
    WARMUP = 3
    RUNNING = 4
    DONE = 5
    FAILED = 6


class StepMap:
    """One open step map. `create` makes it, `open` attaches a writer or a reader."""

    def __init__(self, path: Path, file: int, *, writable: bool) -> None:
        self.path = path
        self._file = file
        self.writable = writable
        size = os.fstat(file).st_size
        if size < REQUEST_AT:
            os.close(file)
            raise RunFileError(
                f"{path} is not a step map", why=f"It has {size} bytes; the header alone has {REQUEST_AT}."
            )
        access = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
        self.memory = mmap.mmap(file, size, flags=mmap.MAP_SHARED, prot=access)
        try:
            self._check(size)
        except RunFileError:
            self.close()
            raise

    def _check(self, size: int) -> None:
        if self.memory[:8] != MAGIC:
            raise RunFileError(
                f"{self.path} is not a step map", why=f"It begins with {self.memory[:8]!r}, a step map with {MAGIC!r}."
            )
        rows, columns = self[Word.ROWS], self[Word.COLUMNS]
        self.rows_at = self[Word.ROWS_AT]
        self.row_bytes = 8 * columns
        sane = 0 <= rows <= _MAX_ROWS and 0 < columns <= 1024 and 0 <= self[Word.COMMITTED] <= rows
        sane = sane and 0 <= self[Word.REPORT_BYTES] <= REPORT_CAPACITY and self[Word.REQUEST_BYTES] > 0
        sane = sane and REQUEST_AT + self[Word.REQUEST_BYTES] + REPORT_CAPACITY <= self.rows_at
        if not sane or self.rows_at + rows * self.row_bytes > size:
            raise RunFileError(
                f"{self.path} is a damaged step map",
                why=f"Its header asks for {rows} rows of {columns} columns from byte {self.rows_at}; the file has {size} bytes.",
            )
        self.request = self._json(REQUEST_AT, self[Word.REQUEST_BYTES], "request")
        if not isinstance(self.request, dict) or self.request.get("schema") != SCHEMA:
            raise RunFileError(
                f"{self.path}: the step map's schema is not {SCHEMA}", do="Read it with the version that wrote it."
            )
        names = self.request.get("columns")
        if not isinstance(names, list) or len(names) != columns or not all(isinstance(n, str) for n in names):
            raise RunFileError(
                f"{self.path} is a damaged step map", why=f"It names {names!r:.80} for {columns} columns."
            )
        lost = {"step", "release_ns", "wake_ns", "start_ns", "end_ns"} - set(names)
        if lost:
            raise RunFileError(
                f"{self.path} is a damaged step map", why=f"It lacks the columns {', '.join(sorted(lost))}."
            )
        self._check_loop(self.request.get("loop"))
        self.columns: tuple[str, ...] = tuple(names)
        self.report_at = self.rows_at - REPORT_CAPACITY

    def _check_loop(self, loop: Any) -> None:
        numbers = ("steps", "period_ns", "deadline_ns")
        sound = isinstance(loop, dict) and all(type(loop.get(n)) is int and 0 <= loop[n] <= 2**62 for n in numbers)
        if not sound or not all(isinstance(loop.get(n), str) for n in ("overrun", "shape")):
            raise RunFileError(
                f"{self.path} is a damaged step map", why="Its request has no sound loop: steps, period, deadline."
            )

    def _json(self, at: int, count: int, what: str) -> Any:
        try:
            return json.loads(bytes(self.memory[at : at + count]).decode("utf-8"))
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise RunFileError(
                f"{self.path} is a damaged step map", why=f"Its {what} is not JSON.", detail=str(error)
            ) from None

    @classmethod
    def create(cls, path: Path, request: dict[str, Any], columns: tuple[str, ...], rows: int) -> StepMap:
        """A new map with every page allocated. Raises RunFileError when it doesn't fit where `path` is."""
        text = json.dumps({"schema": SCHEMA, "columns": list(columns), **request}).encode()
        rows_at = -(-(REQUEST_AT + len(text)) // _PAGE) * _PAGE + REPORT_CAPACITY
        size = rows_at + rows * 8 * len(columns)
        head = bytearray(REQUEST_AT)
        head[:8] = MAGIC
        for word, value in ((Word.ROWS, rows), (Word.COLUMNS, len(columns)), (Word.WARMUP_ROWS, -1), (Word.ORIGIN, -1)):
            _WORD.pack_into(head, word, value)
        _WORD.pack_into(head, Word.REQUEST_BYTES, len(text))
        _WORD.pack_into(head, Word.ROWS_AT, rows_at)
        try:
            with finished_as(path) as file:
                _allocate(file, max(size, rows_at + _PAGE), path.parent, rows)
                os.pwrite(file, bytes(head) + text, 0)
        except OSError as error:
            raise RunFileError(
                f"the step map {path} can't be made",
                do="Make room or rights there.",
                detail=os.strerror(error.errno or 0),
            ) from None
        return cls(path, file, writable=True)

    @classmethod
    def open(cls, path: Path, *, writable: bool = False) -> StepMap:
        """An existing map. Raises RunFileError with what is wrong with it."""
        try:
            file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        except OSError as error:
            raise RunFileError(f"{path} can't be opened", do=_LIST, detail=os.strerror(error.errno or 0)) from None
        if not path.is_file():
            os.close(file)
            raise RunFileError(f"{path} is not a file", do=_LIST)
        return cls(path, file, writable=writable)

    def __getitem__(self, word: Word) -> int:
        value: int = _WORD.unpack_from(self.memory, word)[0]
        return value

    def __setitem__(self, word: Word, value: int) -> None:
        _WORD.pack_into(self.memory, word, value)

    @property
    def report(self) -> dict[str, Any]:
        """What the worker has written last; empty before it wrote anything."""
        for _ in range(100):
            version = self[Word.REPORT_VERSION]
            count = self[Word.REPORT_BYTES]
            if version % 2 == 0:
                if count == 0:
                    return {}
                text = bytes(self.memory[self.report_at : self.report_at + count])
                if self[Word.REPORT_VERSION] == version:
                    try:
                        report = json.loads(text)
                    except (ValueError, RecursionError) as error:
                        raise RunFileError(
                            f"{self.path} is a damaged step map", why="Its report is not JSON.", detail=str(error)
                        ) from None
                    if not isinstance(report, dict):
                        raise RunFileError(f"{self.path} is a damaged step map", why="Its report is not a JSON object.")
                    return report
        # The writer died while it replaced the report: the steps are whole, the report is not.
        return {"notes": ["the worker died while it was writing its report"]}

    def write_report(self, report: dict[str, Any]) -> None:
        """Replaces the report. Never called inside the loop."""
        text = json.dumps(report).encode()
        if len(text) > REPORT_CAPACITY:
            raise RunFileError(f"the worker's report has {len(text):,} bytes", why=f"At most {REPORT_CAPACITY:,} fit.")
        self[Word.REPORT_VERSION] += 1
        self.memory[self.report_at : self.report_at + len(text)] = text
        self[Word.REPORT_BYTES] = len(text)
        self[Word.REPORT_VERSION] += 1

    def rows(self, start: int = 0, stop: int | None = None) -> dict[str, Column]:
        """A copy of committed rows by column; safe on a live map."""
        committed = self[Word.COMMITTED]
        stop = committed if stop is None else min(stop, committed)
        start = min(max(start, 0), stop)
        flat = np.frombuffer(
            self.memory,
            dtype="<i8",
            offset=self.rows_at + start * self.row_bytes,
            count=(stop - start) * len(self.columns),
        )
        table = flat.reshape(stop - start, len(self.columns))
        return {name: table[:, i].astype(np.int64) for i, name in enumerate(self.columns)}

    def row_in_flight(self) -> dict[str, int] | None:
        """The step that has begun and not finished, or None: what a hung or crashed policy leaves."""
        committed = self[Word.COMMITTED]
        if committed >= self[Word.ROWS]:
            return None
        values = struct.unpack_from(f"<{len(self.columns)}q", self.memory, self.rows_at + committed * self.row_bytes)
        row = dict(zip(self.columns, values, strict=True))
        return row if row.get("start_ns", 0) > 0 and row.get("end_ns", 0) <= 0 else None

    def reached(self) -> int:
        """Releases of the window that are over: the grid index that comes next, which the last committed row implies.

        Not above the releases that were scheduled. The loop does not write it: one store less in each period.
        """
        committed, warmup = self[Word.COMMITTED], self[Word.WARMUP_ROWS]
        if warmup < 0 or self[Word.ORIGIN] < 0 or committed <= warmup:
            return 0
        loop = self.request["loop"]
        row = self.rows(committed - 1, committed)
        step, end, period = int(row["step"][0]), int(row["end_ns"][0]), int(loop["period_ns"])
        following = step + 1
        if period and loop["overrun"] == "skip" and loop["shape"] == "absolute":
            following = max(following, -((self[Word.ORIGIN] - end) // period))
        return int(min(following, loop["steps"]))

    def number_warmup_rows(self, warmup_rows: int) -> None:
        """Numbers the warm-up rows -n … -1, once their count is known."""
        for row in range(warmup_rows):
            _WORD.pack_into(self.memory, self.rows_at + row * self.row_bytes, row - warmup_rows)

    def close(self) -> None:
        """Unmaps and closes; the file stays."""
        self.memory.close()
        os.close(self._file)


def _allocate(file: int, size: int, folder: Path, rows: int) -> None:
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        raise RunFileError(
            f"{folder} has no room for {rows:,} steps",
            why=f"The step map needs {size / 1e6:.1f} MB.",
            do="Free some memory there, or measure fewer steps.",
            detail=str(error),
        ) from None


def process_born(pid: int) -> int:
    """Start of a process in clock ticks since boot (field 22 of /proc/PID/stat), or -1 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    fields = text.rsplit(")", 1)[1].split()
    # A zombie has ended: only its parent has not asked how.
    return -1 if fields[0] in "ZX" else int(fields[19])


def is_alive(pid: int, born: int) -> bool:
    """Whether the very process that wrote `pid` and `born` still runs."""
    return pid > 0 and process_born(pid) == born


__all__ = ["MAGIC", "NOT_MEASURED", "Phase", "StepMap", "Word", "is_alive", "process_born"]
