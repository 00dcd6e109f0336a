"""A Run file of schema robot-perf/1, written once and kept: every later version must read it and say the same."""

from __future__ import annotations

import json
from pathlib import Path

from robot_perf.analyze.document import deadline_document
from robot_perf.render.text import deadline_report
from robot_perf.run.parquet import load

FILE = Path(__file__).resolve().parents[1] / "data" / "run-robot-perf-1.parquet"


def test_the_file_reads_as_it_did(golden):
    golden("run-robot-perf-1.txt", deadline_report(load(FILE)) + "\n")


def test_the_document_keeps_its_keys():
    document = json.loads(json.dumps(deadline_document(load(FILE)), allow_nan=False))
    assert document["schema"] == "robot-perf/1"
    for key in ("response_us", "wakeup_us", "execution_us", "harness_us"):
        assert set(document[key]) >= {"p50", "p90", "p99", "p99.9", "max"}
    assert set(document["verdict"]) >= {
        "status", "reason", "releases", "misses", "skipped", "miss_rate", "miss_rate_upper", "miss_rate_lower",
        "confidence", "assumed_burst", "longest_miss_run",
    }  # fmt: skip
    assert document["verdict"]["misses"] == 5
    assert document["verdict"]["skipped"] == 3
    assert document["conditions"]["host"]["kernel"] == "6.8.0-45-generic"
