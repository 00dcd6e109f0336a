"""A soak by the minute: first stretch against last, throttle onset, and what nothing could read."""

from __future__ import annotations

import pytest
from fake_loops import run_of as rows_of
from fake_loops import simulated
from fake_runs import executions, make_run

from robot_perf.analyze.document import deadline_document
from robot_perf.analyze.explain.soak import soak_of
from robot_perf.render.html import report_html
from robot_perf.render.markdown import report_markdown
from robot_perf.render.soak import soak_lines
from robot_perf.render.text import deadline_report

MS, S = 1_000_000, 1_000_000_000
ORIGIN = 10**12


def samples(seconds: int, **by_second) -> list[dict[str, object]]:
    return [{"at_ns": ORIGIN + i * S, **{key: read(i) for key, read in by_second.items()}} for i in range(seconds)]


def run_of(minutes: int, slow_after_s: int | None = None, **soak):
    n = minutes * 60 * 10
    values = executions(n, typical_ns=2 * MS)
    if slow_after_s is not None:
        values = [v if i < slow_after_s * 10 else round(v * 1.5) for i, v in enumerate(values)]
    return make_run(values, period_ns=100 * MS, soak={"samples": [], "zones": [], **soak})


def test_a_run_without_samples_is_no_soak():
    assert soak_of(make_run(executions(100))) is None


def test_minutes_hold_their_own_steps():
    soak = soak_of(run_of(3, samples=samples(180, device_c=lambda i: 40 + i / 10, device_hz=lambda _: 1.3e9)))
    assert soak is not None
    assert [m.executed for m in soak.minutes] == [600, 600, 600]
    assert soak.minutes[0].device_c == 45.9
    assert soak.minutes[2].device_c == 57.9
    assert soak.onset is None
    assert "host temperature" in soak.unread


def test_a_release_is_executed_and_missed_in_the_same_minute():
    """At 30 Hz release 1800 falls 20 ns before the second minute: the step that missed it is the first minute's."""
    execution = [MS] * 3600
    execution[1799] = 50 * MS
    base = simulated(execution, period_ns=33_333_333)
    rows = [dict(zip(base.columns, map(int, row), strict=True)) for row in zip(*base.columns.values(), strict=True)]
    soak = soak_of(rows_of(rows, steps=3600, period_ns=33_333_333, soak={"samples": []}))
    assert [(m.executed, m.misses) for m in soak.minutes] == [(1800, 2), (1799, 0)]
    late_start = [row for row in rows if row["step"] >= 900]  # the first half minute was skipped
    soak = soak_of(rows_of(late_start, steps=3600, period_ns=33_333_333, soak={"samples": []}))
    assert [(m.executed, m.misses) for m in soak.minutes] == [(900, 902), (1799, 0)]


def test_slower_at_the_end_is_seen():
    soak = soak_of(run_of(12, slow_after_s=400))
    assert soak is not None
    assert soak.stretch is not None
    assert soak.stretch.seconds == 300
    assert soak.stretch.last_p50_ns > 1.3 * soak.stretch.first_p50_ns
    assert soak.stretch.difference_low_ns > 0


def test_a_short_soak_compares_its_halves():
    soak = soak_of(run_of(2))
    assert soak is not None
    assert soak.stretch is not None
    assert 59 <= soak.stretch.seconds <= 60


def test_onset_by_reason_and_by_clock():
    throttled = samples(120, device_hz=lambda _: 1.3e9, throttle=lambda i: ["power cap"] if i >= 75 else [])
    soak = soak_of(run_of(2, samples=throttled))
    assert soak is not None
    assert (soak.onset, soak.onset_s) == ("throttled: power cap", 75.0)
    falling = samples(120, device_hz=lambda i: 1.3e9 if i < 90 else 0.9e9, throttle=lambda _: [])
    soak = soak_of(run_of(2, samples=falling))
    assert soak is not None
    assert soak.onset == "clock fell to 900 MHz from 1300 MHz"
    assert soak.onset_s == 90.0


def test_the_text_has_a_line_a_minute_and_both_answers():
    soak = soak_of(run_of(2, samples=samples(120, device_c=lambda _: 50.0, device_hz=lambda _: 1.3e9)))
    assert soak is not None
    lines = text_of(soak).splitlines()
    assert [line.split()[0] for line in lines if line.endswith("50        1300")] == ["1", "2"]
    assert any(line.startswith("first against last") for line in lines)
    assert "throttle onset: none seen in the device's clock" in lines
    assert "host °C" not in text_of(soak), "nothing could fill that column: an answer names it"
    assert "not readable here: host temperature, processor clock" in lines


def text_of(soak, width: int = 100) -> str:
    return "\n".join(str(line) for line in soak_lines(soak, width))


def test_where_nothing_could_show_a_throttling_none_seen_is_not_said():
    soak = soak_of(run_of(2, samples=samples(120, host_c=lambda _: 60.0, throttle=lambda _: None)))
    assert soak is not None and soak.watched == ()
    assert "throttle onset: not known" in text_of(soak)
    both = soak_of(run_of(2, samples=samples(120, device_hz=lambda _: 1.3e9, throttle=lambda _: [])))
    assert both is not None
    assert "none seen in the device's clock and its throttle reasons" in text_of(both)


def test_it_fits_a_terminal_of_80_columns():
    everything = samples(
        120, host_c=lambda _: 60.0, cpu_hz=lambda _: 2e9, device_c=lambda _: 50.0, device_hz=lambda _: 1.3e9,
        power_w=lambda _: 15.0, throttle=lambda _: ["thermal (software)"],
    )  # fmt: skip
    soak = soak_of(run_of(2, samples=everything))
    assert soak is not None
    text = text_of(soak, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "thermal (software)" in text and "15" in text


def test_a_damaged_soak_is_read_as_far_as_it_can_be():
    bad = [
        3,
        {"at_ns": "x"},
        {"at_ns": ORIGIN, "throttle": 7, "device_hz": "fast"},
        {"at_ns": ORIGIN + S, "throttle": [1]},
    ]
    for kept in (bad, 7, None, {"a": 1}):
        soak = soak_of(run_of(1, samples=kept))
        assert soak is not None and soak.onset is None and soak.watched == ()


def test_a_saved_soak_is_in_every_report():
    run = run_of(2, samples=samples(120, device_c=lambda _: 50.0, device_hz=lambda _: 1.3e9))
    assert "soak, by minute" in deadline_report(run)
    page = report_markdown([("a.parquet", run)])
    assert "## By the minute" in page and "| 2 |" in page and "none seen in the device's clock" in page
    assert [m["minute"] for m in deadline_document(run)["soak"]["minutes"]] == [1, 2]
    assert "120 samples" in page
    plain = make_run(executions(1200), period_ns=100 * MS)
    assert "By the minute" not in report_markdown([("a.parquet", plain)])
    assert "soak" not in deadline_document(plain)


def test_the_html_page_has_the_minutes():
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    run = run_of(2, samples=samples(120, throttle=lambda i: ["<b>power cap</b>"] if i > 70 else []))
    page = report_html([("a.parquet", run)])
    assert "<h2>By the minute</h2>" in page
    assert "<b>power cap" not in page and "&lt;b&gt;power cap" in page
