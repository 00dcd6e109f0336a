"""A soak by the minute: first stretch against last, throttle onset, and what nothing could read."""

from __future__ import annotations

from fake_runs import executions, make_run

from robot_perf.analyze.explain.soak import soak_of
from robot_perf.render.soak import soak_text

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
    soak = soak_of(run_of(2, samples=samples(120, device_c=lambda _: 50.0)))
    assert soak is not None
    lines = soak_text(soak).splitlines()
    assert len([line for line in lines if line.strip()[:1] in "12" and "–" in line]) == 2
    assert any(line.startswith("first against last") for line in lines)
    assert "throttle onset: none seen" in lines
