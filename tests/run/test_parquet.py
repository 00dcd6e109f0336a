from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robot_perf.errors import RunFileError, UsageError
from robot_perf.run.model import SCHEMA, Run, empty_columns
from robot_perf.run.parquet import KEY, load, save
from robot_perf.specs import Budget, LoopSpec, PolicySpec, TensorSpec, to_json


def conditions(**more):
    return {
        "schema": SCHEMA,
        "policy": to_json(PolicySpec("p", "onnx", inputs=(TensorSpec("obs", "float32", (1, 4), ("batch", None)),))),
        "loop": to_json(LoopSpec(1000, 1000, 5)),
        "budget": to_json(Budget(1000)),
        "backend": {"name": "python"},
        "state": "complete",
        "invalid": [],
        **more,
    }


def a_run(rows=5, **more):
    columns = empty_columns(rows)
    columns["step"] = np.arange(rows)
    columns["end_ns"] = np.arange(rows) + 10
    return Run(columns, conditions(**more))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
    note=st.text(max_size=50),
)
def test_round_trip(tmp_path, values, note):
    columns = empty_columns(len(values))
    columns["step"] = np.arange(len(values))
    columns["release_ns"] = np.array(values, dtype=np.int64)
    run = Run(columns, conditions(note=note))
    again = load(save(run, tmp_path / "r.parquet", force=True))
    assert dict(again.conditions) == dict(run.conditions)
    for name, column in run.columns.items():
        assert np.array_equal(again.columns[name], column)
    assert again.policy == run.policy
    assert again.loop == run.loop


def test_a_run_is_read_only():
    run = a_run()
    with pytest.raises(ValueError, match="read-only"):
        run.columns["step"][0] = 3
    with pytest.raises(TypeError):
        run.conditions["state"] = "other"


def test_never_overwritten_without_force(tmp_path):
    path = save(a_run(), tmp_path / "r.parquet")
    with pytest.raises(UsageError, match="exists"):
        save(a_run(), path)
    save(a_run(), path, force=True)


def test_unknown_columns_and_keys_survive(tmp_path):
    run = a_run(later_key={"x": 1})
    columns = dict(run.columns) | {"later_column": np.arange(5)}
    again = load(save(Run(columns, dict(run.conditions)), tmp_path / "r.parquet"))
    assert again.columns["later_column"].tolist() == [0, 1, 2, 3, 4]
    assert again.conditions["later_key"] == {"x": 1}


@pytest.mark.parametrize("lost", ["schema", "policy", "loop", "budget", "backend", "state", "invalid"])
def test_a_missing_condition_is_an_error(lost):
    broken = conditions()
    del broken[lost]
    with pytest.raises(RunFileError, match=lost):
        Run(empty_columns(), broken)


def test_another_schema_is_refused():
    with pytest.raises(RunFileError, match="robot-perf/99"):
        Run(empty_columns(), conditions(schema="robot-perf/99"))


def test_foreign_files_get_one_message(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    cases = {
        "text.parquet": b"step,end\n1,2\n",
        "empty.parquet": b"",
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(RunFileError, match="not a readable Run file"):
            load(tmp_path / name)
    pq.write_table(pa.table({"step": [1]}), tmp_path / "other.parquet")
    with pytest.raises(RunFileError, match="not a Run"):
        load(tmp_path / "other.parquet")
    with pytest.raises(RunFileError, match="does not exist"):
        load(tmp_path / "absent.parquet")
    with pytest.raises(RunFileError, match="is a folder"):
        load(tmp_path)


def test_mutated_run_files(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    save(a_run(40), tmp_path / "r.parquet")
    data = (tmp_path / "r.parquet").read_bytes()
    seeded = random.Random(3)
    refused = 0
    for trial in range(60):
        mutated = bytearray(data)
        if trial % 2:
            mutated = mutated[: seeded.randrange(len(mutated))]
        else:
            for _ in range(8):
                mutated[seeded.randrange(len(mutated))] = seeded.randrange(256)
        path = tmp_path / "m.parquet"
        path.write_bytes(mutated)
        try:
            load(path)
        except RunFileError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > 30
    # conditions that are JSON but not ours
    table = pq.read_table(tmp_path / "r.parquet")
    for text in (
        b"[]",
        b"{}",
        b"{",
        json.dumps(conditions(loop={"period_ns": 1})).encode(),
        json.dumps(conditions(policy=3)).encode(),
    ):
        pq.write_table(table.replace_schema_metadata({KEY: text}), tmp_path / "c.parquet")
        with pytest.raises(RunFileError):
            load(tmp_path / "c.parquet")
    strings = table.set_column(0, "step", pa.array(["x"] * 40))
    pq.write_table(strings, tmp_path / "c.parquet")
    with pytest.raises(RunFileError, match="column step"):
        load(tmp_path / "c.parquet")


def test_what_is_no_run_file_is_said_with_the_next_step(tmp_path):
    with pytest.raises(RunFileError, match=r"is a folder\nName a Run file"):
        load(tmp_path)
    save(a_run(), tmp_path / "walk.parquet")
    with pytest.raises(RunFileError, match=r"is a folder\nThe newest Run in it: .*walk\.parquet"):
        load(tmp_path)
    with pytest.raises(RunFileError, match=r"does not exist\nDid you mean walk\.parquet\?"):
        load(tmp_path / "wlak.parquet")
    (tmp_path / "walk.map").write_bytes(b"RPSMAP1")
    with pytest.raises(RunFileError, match=r"robot-perf recover .*walk\.map"):
        load(tmp_path / "walk.map")


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_was_taken_meanwhile_costs_no_run(tmp_path, monkeypatch, links):
    """Two runs that began in one second had one name: the second was refused when it had been measured."""

    def none_here(source, target):
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr("os.link", none_here)
    path = tmp_path / "r.parquet"
    assert save(a_run(5), path, numbered=True) == path
    assert save(a_run(3), path, numbered=True) == tmp_path / "r-2.parquet"
    assert save(a_run(2), path, numbered=True) == tmp_path / "r-3.parquet"
    assert [len(load(tmp_path / name).columns["step"]) for name in ("r.parquet", "r-2.parquet", "r-3.parquet")] == [
        5,
        3,
        2,
    ]
    with pytest.raises(UsageError, match="exists"):
        save(a_run(1), path)
    assert save(a_run(1), path, force=True) == path
    assert len(load(path).columns["step"]) == 1
    assert len(list(tmp_path.iterdir())) == 3, "and no temporary file"
