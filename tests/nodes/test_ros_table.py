"""benchmarks/ros_table.py: what ROS adds is worked out from the rounds, and the committed pages are what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def table(*paths):
    words = [sys.executable, str(ROOT / "benchmarks" / "ros_table.py"), *map(str, paths)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def figures(p50, p99, largest):
    return {"p50": p50, "p99": p99, "max": largest}


def a_round(response, published=None):
    made = {part: figures(*response) for part in ("start latency", "execution", "response")}
    if published is not None:
        made |= {"publish": figures(1.0, 2.0, 3.0), "release to published": figures(*published)}
    return {**made, "misses": 1, "releases": 1000, "status": "PASS", "reason": ""}


def document(**arms):
    return {
        "schema": "robot-perf/ros-adds-1", "command": "python ros_adds.py", "policy": "mlp", "backend": "eager", "device": "cpu", "seconds": 5.0,
        "date_utc": "2026-11-30T00:00:00Z", "conditions": {"host": {}}, "left_out": ["round 3 at 200 Hz: 4 s were left"], "failed": [], "rates": {"200": arms},
    }  # fmt: skip


def test_what_ros_adds_is_the_difference_of_medians(tmp_path):
    command = [a_round((100.0, 200.0, 900.0)), a_round((104.0, 260.0, 1500.0))]
    topics = [a_round((120.0, 210.0, 700.0), (180.0, 300.0, 800.0)), a_round((130.0, 250.0, 2900.0), (190.0, 320.0, 950.0))]  # fmt: skip
    (tmp_path / "ros.json").write_text(json.dumps(document(command=command, topics=topics)))
    page = table(tmp_path / "ros.json")
    row = next(line for line in page.splitlines() if line.startswith("| node, topics over DDS |"))
    # p50: 125 - 102; p99: 230 - 230 with overlapping ranges; published p50: 185 - 102.
    assert [c.strip() for c in row.split("|")[2:-1]] == ["+23.0", "+23.0", "+23.0", "+0.0 ≈", "+600 ≈", "+83.0", "+80.0"]  # fmt: skip
    assert "102 (100 to 104)" in page
    assert "2 of 2,000" in page
    assert "Left out: round 3 at 200 Hz: 4 s were left" in page


def test_one_round_has_no_range_and_says_so(tmp_path):
    slow, fast = a_round((100.0, 200.0, 900.0)), a_round((90.0, 190.0, 800.0), (95.0, 195.0, 805.0))
    (tmp_path / "ros.json").write_text(json.dumps(document(command=[slow], topics=[fast], polled=[])))
    page = table(tmp_path / "ros.json")
    assert "| −10.0 (one round) |" in page
    assert "polled" not in page


def test_without_the_command_line_nothing_is_compared(tmp_path):
    (tmp_path / "ros.json").write_text(
        json.dumps(document(command=[], topics=[a_round((1.0, 2.0, 3.0), (2.0, 3.0, 4.0))]))
    )
    assert "ROS adds" not in table(tmp_path / "ros.json").split("## 200 Hz")[1]


@pytest.mark.parametrize(
    "folder", sorted(p.parent for p in (ROOT / "reports").glob("*/ros.json")), ids=lambda p: p.name
)
def test_the_committed_page_is_what_its_json_says(folder):
    sources = [p for p in (folder / "ros.json", folder / "arrangements.json") if p.is_file()]
    assert table(*sources) == (folder / "ros.md").read_text(encoding="utf-8")
