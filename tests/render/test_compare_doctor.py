"""Comparison and doctor as text: the answer first, commands whole, strangers' words harmless."""

from __future__ import annotations

import pytest
from doctor_facts_of import HEALTHY, changed
from fake_runs import MS, US, executions, make_run
from rich.cells import cell_len

from robot_perf.analyze.comparison.compare import compare
from robot_perf.analyze.doctor import judge_facts
from robot_perf.analyze.summary import summarize
from robot_perf.render.compare import comparison_text
from robot_perf.render.hardware.doctor import doctor_text, floor_text


@pytest.fixture(scope="module")
def fast():
    return make_run(executions(1000), scheduled=1000)


def test_slower_and_missing_more(fast, golden):
    slow = make_run(executions(1000, typical_ns=450 * US, slow={i * 50: 25 * MS for i in range(1, 18)}), scheduled=1000)
    golden("compare_slower.txt", comparison_text(compare(fast, slow), "a.parquet", "b.parquet").plain + "\n")


def test_same_thing_twice(fast):
    again = make_run(executions(1000, seed=2), scheduled=1000)
    text = comparison_text(compare(fast, again), "a.parquet", "b\x1b[2J.parquet").plain
    assert text.startswith("NO DIFFERENCE  not distinguishable")
    assert "\x1b" not in text


def test_too_short_to_say():
    short = make_run(executions(4), scheduled=4)
    text = comparison_text(compare(short, short), "a", "b").plain
    assert text.startswith("CAN'T SAY")
    assert "next " in text


def test_comparison_width(fast):
    text = comparison_text(compare(fast, fast), "a", "b", width=80).plain
    assert max(cell_len(line) for line in text.splitlines()) <= 80


def test_doctor_golden(golden):
    facts = changed(
        governors=["powersave"], swap_used_bytes=2 * 10**9, transparent_hugepage="always", virtualization=["container"],
        power_mode=None, throttle_count=None,
    )  # fmt: skip
    golden("doctor.txt", doctor_text(facts, judge_facts(facts)).plain + "\n")


def test_doctor_of_a_healthy_machine():
    text = doctor_text(HEALTHY, judge_facts(HEALTHY)).plain
    assert "nothing here hurts latency that robot-perf knows of" in text
    assert "mend " not in text


def test_doctor_shows_no_escape_of_a_hostile_machine():
    facts = changed(cpu_model="\x1b[2Jcpu", governors=["\x1b[31mx"])
    text = doctor_text(facts, judge_facts(facts)).plain
    assert "\x1b" not in text
    assert "\\x1b[31mx" in text


def test_commands_are_never_wrapped():
    facts = changed(limits={"rtprio": 0, "memlock_bytes": 65536, "rttime_us": "unlimited"}, capabilities=[])
    findings = judge_facts(facts)
    lines = [line.strip() for line in doctor_text(facts, findings, width=60).plain.splitlines()]
    assert all(f.command in lines for f in findings if f.command)


def test_floor(golden):
    run = make_run(executions(1500, typical_ns=1 * US), period_ns=MS)
    rows = [("as found", summarize(run), ()), ("--fifo 80", summarize(run), ("SCHED_FIFO 80 refused: no rights",))]
    golden("doctor_floor.txt", floor_text(rows).plain + "\n")
