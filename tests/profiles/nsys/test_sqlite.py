"""nsys exports made by hand: one test per rule N that a sample doesn't show."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robot_perf.errors import ProfileError
from robot_perf.profiles import build, load
from robot_perf.profiles.model import GRAPH, NULL, NVTX

PID = 41
GPID = PID << 24
TID = GPID | 7
Db = sqlite3.Connection
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes an export: tables as {name: (columns, rows)}."""

    def write(
        tables: dict[str, tuple[str, list[tuple[Any, ...]]]],
        schema: str | None = "3.24.0",
        meta: str = "META_DATA_EXPORT",
    ) -> Path:
        path = tmp_path / f"made{len(list(tmp_path.iterdir()))}.sqlite"
        with sqlite3.connect(path) as db:
            if schema is not None:
                tables = {
                    meta: (
                        "name TEXT, value TEXT",
                        [("EXPORT_SCHEMA_VERSION", schema), ("EXPORT_PRODUCT_VERSION", "2026.1")],
                    ),
                    **tables,
                }
            for name, (columns, rows) in tables.items():
                db.execute(f'CREATE TABLE "{name}" ({columns})')
                if rows:
                    db.executemany(f'INSERT INTO "{name}" VALUES ({",".join("?" * len(rows[0]))})', rows)
        db.close()
        return path

    return write


KERNEL = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER"
RUNTIME = "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
STRINGS = (
    "id INTEGER, value",
    [(1, "k"), (2, "cudaLaunchKernel_v7000"), (3, "cudaLaunchKernel"), (4, "step"), (5, "CANARY")],
)


def base(**more: tuple[str, list[tuple[Any, ...]]]) -> dict[str, tuple[str, list[tuple[Any, ...]]]]:
    return {
        "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [(100, 200, 0, 7, 1, GPID, 1)]),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (RUNTIME, [(10, 20, 0, TID, 1, 2)]),
        "StringIds": STRINGS,
        **more,
    }


def test_a_minimal_export_links(make: Make) -> None:
    profile = load(make(base()))
    assert (profile.kernel_count, profile.launch_count) == (1, 1)
    assert profile.kernels["api"].tolist() == [0]
    assert (profile.apis.text("name", 0), profile.apis.text("raw_name", 0)) == (
        "cudaLaunchKernel",
        "cudaLaunchKernel_v7000",
    )


def test_the_old_metadata_table_is_known(make: Make) -> None:
    assert load(make(base(), schema="2.9.1", meta="EXPORT_META_DATA")).header.schema_version == "2.9.1"


@pytest.mark.parametrize("schema", ["4.0.0", "1.2", "x", ""])
def test_an_unknown_major_is_refused(make: Make, schema: str) -> None:
    with pytest.raises(ProfileError, match="unknown"):
        load(make(base(), schema=schema))


def test_a_newer_minor_is_read_with_a_note(make: Make) -> None:
    assert any("newer than" in n for n in load(make(base(), schema="3.99.0")).header.notes)


def test_another_database_is_no_export(make: Make) -> None:
    with pytest.raises(ProfileError, match="not an nsys export"):
        load(make({"people": ("name TEXT", [("x",)])}, schema=None))


def test_absent_and_empty_tables_mean_the_same(make: Make) -> None:
    tables = base(
        CUPTI_ACTIVITY_KIND_MEMCPY=("start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER", []),
        NVTX_EVENTS=("start INTEGER, end INTEGER", []),
    )
    assert load(make(tables)).kernel_count == load(make(base())).kernel_count == 1


def test_versioned_table_names_are_found(make: Make) -> None:
    nvtx = (
        "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER",
        [
            (0, 500, 59, None, 4, TID),
            (0, None, 75, "domain", None, TID),
            (5, 1, 59, "back", None, TID),
            (1, 2, 34, "mark", None, TID),
        ],
    )
    for name in ("NVTX_EVENTS", "NVTX_EVENTS_V2", "NVTX_EVENTS_V3"):
        ranges = load(make(base(**{name: nvtx}))).ranges
        assert [ranges.text("name", i) for i in range(len(ranges))] == ["step"]
        assert ranges["kind"].tolist() == [NVTX]


@pytest.mark.parametrize("lost", ["start", "end", "correlationId", "deviceId"])
def test_a_required_column_that_is_absent_is_one_message(make: Make, lost: str) -> None:
    columns = ", ".join(c for c in KERNEL.split(", ") if not c.startswith(lost + " "))
    with pytest.raises(ProfileError, match=lost):
        load(make(base(CUPTI_ACTIVITY_KIND_KERNEL=(columns, []))))


def test_rows_that_end_before_they_start_are_rejected_and_counted(make: Make) -> None:
    rows = [(100, 200, 0, 7, 1, GPID, 1), (300, 200, 0, 7, 2, GPID, 1), (400, None, 0, 7, 3, GPID, 1)]
    profile = load(make(base(CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL, rows))))
    assert (profile.kernel_count, profile.header.coverage["rejected_rows"]) == (1, 2)


def test_correlation_repeats_across_processes(make: Make) -> None:
    other = 42 << 24
    kernels = [(100, 200, 0, 7, 1, GPID, 1), (300, 400, 0, 7, 1, other, 1)]
    calls = [(10, 20, 0, TID, 1, 2), (250, 260, 0, other | 3, 1, 2)]
    profile = load(
        make(base(CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL, kernels), CUPTI_ACTIVITY_KIND_RUNTIME=(RUNTIME, calls)))
    )
    assert profile.kernels["api"].tolist() == [0, 1]
    alone = load(make(base(CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL, [(300, 400, 0, 7, 1, other, 1)]))))
    assert alone.kernels["api"].tolist() == [NULL], "another process's call is no match"


def test_without_processes_an_ambiguous_correlation_links_nothing(make: Make) -> None:
    columns = KERNEL.replace(", globalPid INTEGER", "")
    calls = [(10, 20, 0, TID, 1, 2), (250, 260, 0, (42 << 24) | 3, 1, 2)]
    profile = load(
        make(
            base(
                CUPTI_ACTIVITY_KIND_KERNEL=(columns, [(300, 400, 0, 7, 1, 1)]),
                CUPTI_ACTIVITY_KIND_RUNTIME=(RUNTIME, calls),
            )
        )
    )
    assert profile.kernels["api"].tolist() == [NULL]
    assert any("correlation alone" in n for n in profile.header.notes)


def test_wrapper_rows_count_one_launch_the_outermost(make: Make) -> None:
    calls = [(12, 18, 0, TID, 1, 2), (10, 20, 67, TID, 1, 3)]
    profile = load(make(base(CUPTI_ACTIVITY_KIND_RUNTIME=(RUNTIME, calls))))
    assert profile.launch_count == 1
    assert (int(profile.apis["start_ns"][0]), int(profile.apis["end_ns"][0])) == (10, 20)


def test_a_whole_graph_without_times_is_null_and_not_1970(make: Make) -> None:
    graph = (
        "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER",
        [(0, 0, 0, 7, 1, GPID, 3), (500, 600, 0, 7, 1, GPID, 3)],
    )
    table = load(make(base(CUPTI_ACTIVITY_KIND_GRAPH_TRACE=graph))).kernels
    rows = table["kind"] == GRAPH
    assert sorted(table["start_ns"][rows].tolist()) == [NULL, 500]
    assert table["graph_id"][rows].tolist() == [3, 3]


def test_a_column_of_nulls_is_no_evidence_of_graphs(make: Make) -> None:
    columns = KERNEL + ", graphNodeId INTEGER, graphId INTEGER"
    table = load(make(base(CUPTI_ACTIVITY_KIND_KERNEL=(columns, [(100, 200, 0, 7, 1, GPID, 1, None, 0)])))).kernels
    assert (table["graph_id"].tolist(), table["graph_node"].tolist()) == ([NULL], [NULL])


def test_api_rows_without_device_work_say_why(make: Make) -> None:
    tables = base()
    del tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert "child process" in load(make(tables)).header.no_device_rows


def test_overhead_types_are_read_or_derived_from_names(make: Make) -> None:
    typed = ("start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, overheadType INTEGER", [(0, 5, TID, 1, 8)])
    named = ("start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, returnValue INTEGER", [(6, 9, TID, 6, 0)])
    strings = (STRINGS[0], [*STRINGS[1], (6, "Lazy Function Loading")])
    overhead = load(make(base(CUPTI_ACTIVITY_KIND_OVERHEAD=typed, PROFILER_OVERHEAD=named, StringIds=strings))).overhead
    assert overhead["kind"].tolist() == [8, 7]


def test_text_that_is_no_utf8_is_tolerated_where_it_is_used(make: Make) -> None:
    strings = ("id INTEGER, value", [(1, b"k\xff\xfe"), (2, "cudaLaunchKernel")])
    assert load(make(base(StringIds=strings))).kernels.strings[0].startswith("k")


def test_warnings_are_shown_without_paths_and_secrets(make: Make) -> None:
    rows = [(2, "lost events in /home/someone/x.log TOKEN=abc user@host 10.1.2.3"), (1, "info"), (3, "an error")]
    notes = load(make(base(DIAGNOSTIC_EVENT=("severity INTEGER, text TEXT", rows)))).header.notes
    assert [n for n in notes if n.startswith("nsys")] == [
        "nsys warning: lost events in <path> <assignment> <address> <address>",
        "nsys error: an error",
    ]


def test_strings_that_no_used_column_names_are_not_read(make: Make) -> None:
    profile = load(make(base()))
    assert "CANARY" not in profile.kernels.strings


def test_a_view_in_place_of_a_table_is_not_read(make: Make) -> None:
    path = make(base())
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        db.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT x start, x+1 end, 0 deviceId, 1 correlationId FROM n"
        )
    db.close()
    assert load(path).kernel_count == 0


def test_too_many_rows_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MAX_ROWS", 1)
    with pytest.raises(ProfileError, match="more than 1 rows"):
        load(make(base()))


@pytest.mark.parametrize("value", ["text", b"\x00", 1e300])
def test_a_cell_of_the_wrong_type_is_one_message(make: Make, value: Any) -> None:
    rows = [(value, 200, 0, 7, 1, GPID, 1)]
    with pytest.raises(ProfileError):
        load(make(base(CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL.replace("start INTEGER", "start"), rows))))


def test_a_database_is_never_written_to(make: Make) -> None:
    path = make(base())
    path.chmod(0o444)
    before = path.read_bytes(), sorted(p.name for p in path.parent.iterdir())
    load(path)
    assert (path.read_bytes(), sorted(p.name for p in path.parent.iterdir())) == before


@pytest.mark.parametrize(("start", "end"), [(-(2**63) + 1, 2**63 - 1), (0, 2**63 - 1), (-(2**62), -(2**62) + 5)])
def test_times_that_would_overflow_are_one_message(make: Make, start: int, end: int) -> None:
    with pytest.raises(ProfileError, match="out of range"):
        load(make(base(CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL, [(start, end, 0, 7, 1, GPID, 1)]))))
