"""What an nsys export says about itself: version, devices, graph mode, warnings. Only the keys named here are read (rule X2)."""

from __future__ import annotations

import sqlite3
from collections.abc import Set
from dataclasses import dataclass

from robot_perf.errors import ProfileError
from robot_perf.profiles.model import DeviceFacts
from robot_perf.profiles.names import clean, redact

KNOWN_MAJORS = (2, 3)
NEWEST_MINOR = 25  # of schema 3, seen from nsys 2026.2


@dataclass(frozen=True)
class Meta:
    """The header facts of an export."""

    product: str | None
    schema: str | None
    devices: tuple[DeviceFacts, ...]
    graph_mode: str | None
    notes: tuple[str, ...]


def read_meta(db: sqlite3.Connection, tables: Set[str], source: str) -> Meta:
    """Version first (rule N1). Raises ProfileError for a database that is no nsys export or has an unknown major schema."""
    name = next((t for t in ("META_DATA_EXPORT", "EXPORT_META_DATA") if t in tables), None)
    if name is None:
        raise ProfileError(
            f"{source}: a SQLite database, but not an nsys export",
            why="It has no table META_DATA_EXPORT.",
            do="Make one: nsys export --type sqlite REPORT.nsys-rep",
        )
    keys = ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
    found = {
        str(k): clean(v)[:40]
        for k, v in db.execute(f'SELECT name, value FROM "{name}" WHERE name IN (?, ?)', keys)
        if v is not None
    }
    schema = found.get("EXPORT_SCHEMA_VERSION")
    notes = []
    if schema is None:
        notes.append("the export names no schema version")
    else:
        notes += _version_notes(schema, source)
    devices, device_notes = _devices(db, tables)
    return Meta(
        found.get("EXPORT_PRODUCT_VERSION"),
        schema,
        devices,
        _graph_mode(db, tables),
        (*notes, *device_notes, *_warnings(db, tables)),
    )


def _version_notes(schema: str, source: str) -> list[str]:
    parts = schema.split(".")
    if not parts[0].isdigit() or int(parts[0]) not in KNOWN_MAJORS:
        raise ProfileError(
            f"{source}: nsys schema {schema} is unknown",
            why=f"Known major versions: {', '.join(map(str, KNOWN_MAJORS))}; a new major may mean other columns.",
            do="Upgrade robot-perf, or export with an older nsys.",
        )
    newer = int(parts[0]) == KNOWN_MAJORS[-1] and len(parts) > 1 and parts[1].isdigit() and int(parts[1]) > NEWEST_MINOR
    return (
        [
            f"schema {schema} is newer than {KNOWN_MAJORS[-1]}.{NEWEST_MINOR}, the newest seen: columns may have been renamed"
        ]
        if newer
        else []
    )


def _devices(db: sqlite3.Connection, tables: Set[str]) -> tuple[tuple[DeviceFacts, ...], list[str]]:
    if "TARGET_INFO_GPU" not in tables:
        return (), ["the export names no device (TARGET_INFO_GPU is missing): give --on where a peak is needed"]
    existing = {str(row[1]) for row in db.execute('PRAGMA table_info("TARGET_INFO_GPU")')}
    if "id" not in existing:
        return (), ["TARGET_INFO_GPU has no id column"]
    columns = [
        c if c in existing else "NULL" for c in ("id", "name", "smCount", "memoryBandwidth", "l2CacheSize", "clockRate")
    ]
    found = []
    for number, name, sms, bandwidth, l2, clock in db.execute(
        f"SELECT {', '.join(columns)} FROM TARGET_INFO_GPU LIMIT 64"
    ):
        found.append(
            DeviceFacts(
                int(number),
                clean(name)[:80] if name else None,
                _positive(sms),
                _positive(bandwidth),
                _positive(l2),
                _positive(clock),
            )
        )
    return tuple(found), []


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _graph_mode(db: sqlite3.Connection, tables: Set[str]) -> str | None:
    """`graph` or `node` from META_DATA_CAPTURE (rule N13); it is there even when no graph was used."""
    if "META_DATA_CAPTURE" not in tables:
        return None
    row = db.execute(
        "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%CUDA\\_GRAPH\\_TRACE\\_OPTIONS:MODE' ESCAPE '\\' LIMIT 1"
    ).fetchone()
    mode = str(row[0]).lower() if row else ""
    return mode if mode in ("graph", "node") else None


def _warnings(db: sqlite3.Connection, tables: Set[str]) -> list[str]:
    """Warnings and errors that the capture recorded, without paths (rule N19)."""
    if "DIAGNOSTIC_EVENT" not in tables:
        return []
    existing = {str(row[1]) for row in db.execute('PRAGMA table_info("DIAGNOSTIC_EVENT")')}
    if not {"severity", "text"} <= existing:
        return []
    found = db.execute(
        "SELECT DISTINCT severity, text FROM DIAGNOSTIC_EVENT WHERE severity IN (2, 3) AND text IS NOT NULL LIMIT 50"
    ).fetchall()
    return [f"nsys {'error' if severity == 3 else 'warning'}: {redact(str(text))}" for severity, text in found]


def zero_rows_note(tables: Set[str], calls: int) -> str:
    """Why an export without device rows may be so (rule N20)."""
    if calls:
        return (
            "CUDA calls but no device work: the work ran in a child process that was not traced, or the driver or sandbox gave no GPU time stamps, "
            "or the program launched nothing (capture again with --trace-fork-before-exec=true if it forks; that option can hang a forking program)"
        )
    if not any(t.startswith("CUPTI_ACTIVITY") for t in tables):
        return "no CUDA tables: -t cuda was missing, or no process that used CUDA was traced"
    return "the CUDA tables are empty: no device work was recorded"
