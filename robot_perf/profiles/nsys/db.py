"""Reading an nsys SQLite export: read-only, only tables and columns that are asked for, integers straight into columns."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path

import numpy as np

from robot_perf.errors import ProfileError
from robot_perf.profiles.build import Names, check_rows, check_times
from robot_perf.profiles.model import NULL, Column

_FETCH = 20_000


@contextmanager
def database(path: Path, source: str) -> Iterator[sqlite3.Connection]:
    """A read-only connection that tolerates bytes in text (rule N2); the file is never written to, nor is a journal made beside it."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield db
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise ProfileError(
            f"{source}: not a readable SQLite file",
            why="It may be cut, or damaged.",
            do="Export it again: nsys export --type sqlite.",
            detail=str(error),
        ) from None


class Export:
    """An open export. Everything that is read passes here: by table, by column, and StringIds only through a used column (rule X2)."""

    def __init__(self, connection: sqlite3.Connection, source: str) -> None:
        self.connection, self.source, self.names = connection, source, Names()
        # views are left out: only rows that the exporter stored are read
        self.tables = {str(n) for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.rejected = 0
        self._rows_read = 0
        self._strings: dict[int, int] = {}

    def columns(self, table: str) -> set[str]:
        """The columns that a table has in this version (rule N5)."""
        return {str(row[1]) for row in self.connection.execute(f'PRAGMA table_info("{table}")')}

    def table(self, prefix: str) -> str | None:
        """The table of a name, or of that name with a version suffix `_V2` (rule N4)."""
        if prefix in self.tables:
            return prefix
        pattern = re.compile(re.escape(prefix) + r"_V\d+$")
        return next((t for t in sorted(self.tables, reverse=True) if pattern.match(t)), None)

    def select(self, prefix: str, columns: Sequence[str], required: Sequence[str] = ()) -> dict[str, Column] | None:
        """Integer columns of a table; those that don't exist are left out (rule N5), null cells read as NULL. None: no such table or no rows."""
        name = self.table(prefix)
        if name is None:
            return None
        existing = self.columns(name)
        if lost := [c for c in required if c not in existing]:
            raise ProfileError(
                f"{self.source}: the table {name} has no column {', '.join(lost)}",
                why="Without it the rows can't be placed in time.",
            )
        present = [c for c in columns if c in existing]
        wanted = ", ".join(f'IFNULL("{c}", :null)' for c in present)
        count = int(self.connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0])
        self._rows_read += count
        check_rows(self._rows_read, self.source)
        if not count:
            return None
        # filled in place: a table of a gigabyte is never held twice
        found = [np.empty(count, np.int64) for _ in present]
        at = 0
        cursor = self.connection.execute(f'SELECT {wanted} FROM "{name}"', {"null": NULL})
        while rows := cursor.fetchmany(_FETCH):
            block = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(present)).reshape(-1, len(present))
            for column, values in zip(found, block.T, strict=True):
                column[at : at + len(rows)] = values
            at += len(rows)
        return dict(zip(present, found, strict=True))

    def string_ids(self, ids: Column) -> Column:
        """Interned numbers of StringIds values, only of those ids that a used column names (rule X2)."""
        unique, inverse = np.unique(ids, return_inverse=True)
        fresh = [int(i) for i in unique if int(i) not in self._strings and i != NULL]
        for low in range(0, len(fresh) if "StringIds" in self.tables else 0, 500):
            part = fresh[low : low + 500]
            marks = ",".join("?" * len(part))
            for number, value in self.connection.execute(
                f"SELECT id, value FROM StringIds WHERE id IN ({marks})", part
            ):
                self._strings[int(number)] = self.names(value)
        unknown = self.names("?")
        return (
            np.array([self._strings.get(int(i), unknown) for i in unique], np.int64)[inverse.reshape(-1)]
            if len(unique)
            else ids
        )

    def reject(self, rows: dict[str, Column]) -> dict[str, Column]:
        """The rows with a start, and an end that is not before it."""
        check_times(rows, self.source)
        good = (rows["start"] != NULL) & (rows["end"] != NULL) & (rows["end"] >= rows["start"])
        self.rejected += int((~good).sum())
        return rows if good.all() else {k: v[good] for k, v in rows.items()}
