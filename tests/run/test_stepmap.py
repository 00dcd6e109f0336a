from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from robot_perf.errors import RunFileError
from robot_perf.measure.processes.flush import DiskCopy
from robot_perf.measure.recorder import Recorder
from robot_perf.run.assemble import run_from_map
from robot_perf.run.columns import STEP_COLUMNS, stage_column
from robot_perf.run.maps import find_maps
from robot_perf.run.stepmap import Phase, StepMap, Word, is_alive, process_born
from robot_perf.specs import Budget, LoopSpec, PolicySpec, to_json

REQUEST = {
    "policy": to_json(PolicySpec("p", "builtin")),
    "loop": to_json(LoopSpec(period_ns=1000, deadline_ns=1000, steps=50)),
    "budget": to_json(Budget(1000)),
    "backend": {"name": "python"},
}


def no_noise() -> tuple[int, int, int, int, int, int]:
    return 1, 2, 3, 4, 5, 6


def filled(path: Path, warmup: int = 3, steps: int = 10, columns: tuple[str, ...] = STEP_COLUMNS) -> StepMap:
    stepmap = StepMap.create(path, REQUEST, columns, 64)
    recorder = Recorder(stepmap, no_noise)
    for k in range(warmup):
        recorder.begin(k, k, k, k + 1)
        recorder.finish(k + 1, -1, k + 2)
    stepmap.number_warmup_rows(warmup)
    stepmap[Word.WARMUP_ROWS] = warmup
    stepmap[Word.ORIGIN] = 1000
    stepmap[Word.PHASE] = Phase.RUNNING
    for k in range(steps):
        recorder.begin(k, 1000 * (k + 1), 1000 * (k + 1) + 7, 1000 * (k + 1) + 9)
        recorder.finish(1000 * (k + 1) + 10, -1, 1000 * (k + 1) + 300, 42)
        recorder.own(55)
    return stepmap


def test_rows_round_trip(tmp_path):
    stepmap = filled(tmp_path / "a.map")
    rows = StepMap.open(tmp_path / "a.map").rows()
    assert rows["step"].tolist() == [-3, -2, -1, *range(10)]
    assert rows["own_ns"][3:].tolist() == [55] * 10
    assert rows["start_ns"][3] == 1010
    assert [int(rows[c][5]) for c in ("nvcsw", "nivcsw", "minflt", "majflt", "gc_ns", "cpu")] == [1, 2, 3, 4, 5, 6]
    assert stepmap.rows(4, 6)["step"].tolist() == [1, 2]


def test_a_step_that_never_returns_is_seen(tmp_path):
    stepmap = filled(tmp_path / "a.map")
    assert stepmap.row_in_flight() is None
    Recorder(stepmap, no_noise).begin(10, 11_000, 11_001, 11_002)
    row = stepmap.row_in_flight()
    assert row is not None
    assert (row["step"], row["start_ns"]) == (10, 11_002)


def test_stage_columns(tmp_path):
    stepmap = StepMap.create(tmp_path / "a.map", REQUEST, (*STEP_COLUMNS, stage_column("enc"), stage_column("pol")), 8)
    recorder = Recorder(stepmap, no_noise)
    recorder.begin(0, 1, 2, 3)
    recorder.finish(3, -1, 9, -1, (5, 9))
    recorder.own(1)
    rows = stepmap.rows()
    assert (rows[stage_column("enc")][0], rows[stage_column("pol")][0]) == (5, 9)


def test_the_resident_window_slides_over_a_long_map(tmp_path):
    rows = 60_000  # about 6.7 MB of rows: several slices
    stepmap = StepMap.create(tmp_path / "a.map", REQUEST, STEP_COLUMNS, rows)
    recorder = Recorder(stepmap, no_noise)
    for k in range(rows):
        recorder.begin(k, k, k, k)
        recorder.finish(k, -1, k + 1)
        recorder.own(7)
    assert recorder.full
    table = StepMap.open(tmp_path / "a.map").rows()
    assert np.array_equal(table["step"], np.arange(rows))
    assert (table["own_ns"] == 7).all()


def test_report_is_replaced_whole(tmp_path):
    stepmap = filled(tmp_path / "a.map")
    assert stepmap.report == {}
    stepmap.write_report({"a": 1, "long": "x" * 1000})
    stepmap.write_report({"b": 2})
    assert StepMap.open(tmp_path / "a.map").report == {"b": 2}
    stepmap[Word.REPORT_VERSION] += 1  # died in the middle of a write
    assert "died" in stepmap.report["notes"][0]


def test_assembled_run_is_complete_only_when_the_worker_says_so(tmp_path):
    stepmap = filled(tmp_path / "a.map")
    run = run_from_map(stepmap)
    assert run.conditions["state"] == "interrupted after 10 of 50 releases"
    assert run.conditions["reached"] == 10
    assert len(run.measured["step"]) == 10
    assert len(run.warmup["step"]) == 3
    stepmap[Word.PHASE] = Phase.DONE
    assert run_from_map(stepmap).conditions["state"] != "complete"
    recorder = Recorder(stepmap, no_noise)
    recorder.begin(47, 48_000, 48_000, 48_000)
    recorder.finish(48_000, -1, 50_001)  # past the release 48 and 49, at 1000 * (k + 1): the window is over
    assert stepmap.reached() == 50
    assert run_from_map(stepmap).conditions["state"] == "complete"


def test_death_in_warmup_numbers_the_rows(tmp_path):
    stepmap = StepMap.create(tmp_path / "a.map", REQUEST, STEP_COLUMNS, 64)
    recorder = Recorder(stepmap, no_noise)
    stepmap[Word.PHASE] = Phase.WARMUP
    for k in range(4):
        recorder.begin(k, k, k, k + 1)
        recorder.finish(k + 1, -1, k + 2)
    run = run_from_map(stepmap)
    assert run.columns["step"].tolist() == [-4, -3, -2, -1]
    assert run.conditions["state"] == "interrupted in warm-up"


def test_disk_copy_holds_what_was_flushed(tmp_path):
    stepmap = filled(tmp_path / "a.map")
    copy = DiskCopy(stepmap, tmp_path / "runs" / "b.map")
    copy.update()
    recorder = Recorder(stepmap, no_noise)
    for k in range(10, 20):
        recorder.begin(k, k, k, k)
        recorder.finish(k, -1, k + 1)
        recorder.own(1)
    assert len(StepMap.open(tmp_path / "runs" / "b.map").rows()["step"]) == 13
    copy.update()
    assert StepMap.open(tmp_path / "runs" / "b.map").rows()["step"].tolist()[-1] == 19


def test_no_room_is_one_message(tmp_path):
    with pytest.raises(RunFileError, match="no room"):
        StepMap.create(tmp_path / "a.map", REQUEST, STEP_COLUMNS, 1 << 40)
    assert not (tmp_path / "a.map").exists()


def test_a_folder_that_takes_no_map_is_one_message(tmp_path):
    """It was called a defect of robot-perf."""
    with pytest.raises(RunFileError, match=r"a\.map can.t be made"):
        StepMap.create(tmp_path / "gone" / "a.map", REQUEST, STEP_COLUMNS, 64)


def test_process_identity():
    assert is_alive(os.getpid(), process_born(os.getpid()))
    assert not is_alive(os.getpid(), process_born(os.getpid()) - 1)
    assert not is_alive(0, -1)


def test_find_maps_names_damage(tmp_path):
    filled(tmp_path / "good.map").close()
    (tmp_path / "bad.map").write_bytes(b"nonsense" * 40)
    entries = {e.path.name: e for e in find_maps((tmp_path,))}
    assert entries["good.map"].committed == 13
    assert not entries["good.map"].live
    assert "not a step map" in entries["bad.map"].damage


def test_mutated_maps_are_refused_or_read_but_never_crash(tmp_path):
    filled(tmp_path / "a.map").close()
    original = (tmp_path / "a.map").read_bytes()
    seeded = random.Random(7)
    refused = 0
    for trial in range(120):
        data = bytearray(original)
        kind = trial % 3
        if kind == 0:
            data = data[: seeded.randrange(len(data))]
        elif kind == 1:
            for _ in range(4):
                data[seeded.randrange(600)] = seeded.randrange(256)
        else:
            struct.pack_into(
                "<q", data, 8 * seeded.randrange(1, 16), seeded.choice([-1, 0, 1, 2**62, -(2**62), 10**6, 77])
            )
        path = tmp_path / "m.map"
        path.write_bytes(data)
        try:
            stepmap = StepMap.open(path)
        except RunFileError as error:
            assert str(path) in str(error)
            refused += 1
            continue
        try:
            run_from_map(stepmap)
        except RunFileError:
            refused += 1
        finally:
            stepmap.close()
    assert refused > 40


def test_request_is_plain_json(tmp_path):
    stepmap = filled(tmp_path / "a.map")
    assert json.loads(json.dumps(stepmap.request))["columns"] == list(STEP_COLUMNS)


def test_maps_whose_json_is_not_a_measurement(tmp_path):
    """Sound JSON with a key lost or mangled: the header alone can't tell."""
    filled(tmp_path / "a.map").close()
    changes = [
        {"loop": None},
        {"loop": {}},
        {"loop": {**REQUEST["loop"], "steps": "many"}},
        {"loop": {**REQUEST["loop"], "period_ns": -5}},
        {"loop": {**REQUEST["loop"], "overrun": 3}},
        {"policy": 7},
        {"budget": []},
        {"invalid": 5},
        {"notes": 5},
        {"backend": None, "policy": {}},
    ]
    for change in changes:
        path = tmp_path / "m.map"
        path.unlink(missing_ok=True)
        try:  # the request is checked on opening, creation included
            made = StepMap.create(path, {**REQUEST, **change}, STEP_COLUMNS, 16)
        except RunFileError as error:
            assert "damaged step map" in str(error)
            continue
        with pytest.raises(RunFileError, match=r"damaged step map|lack"):
            run_from_map(made)
        made.close()
