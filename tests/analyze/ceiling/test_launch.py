"""Launch overhead, busy fraction, Little's law: the worked examples and their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.analyze.ceiling.launch import busy_fraction, in_flight, launch_cost
from robot_perf.errors import UsageError


def test_480_launches_of_5_us() -> None:
    eight, one = launch_cost(15 * 32, 5_000, 4.8e6), launch_cost(15 * 32, 5_000, 0.6e6)
    assert eight.launches == 480 and eight.launch_ns / 1e6 == 2.4
    assert (eight.limited_by, eight.busy_fraction, eight.step_ns / 1e6) == ("GPU", 1.0, 4.8)
    assert (one.limited_by, one.step_ns / 1e6) == ("launch", 2.4)
    assert one.idle_fraction == 0.75  # the GPU idles about three quarters


@pytest.mark.parametrize(
    ("gpu", "cpu", "overlapped", "percent", "rate"),
    [(12, 28, False, 30, 25), (12, 28, True, 43, 36), (12, 8, True, 100, 83)],
)
def test_busy_fraction(gpu: float, cpu: float, overlapped: bool, percent: int, rate: int) -> None:
    b = busy_fraction(gpu * 1e6, cpu * 1e6, overlapped=overlapped)
    assert (round(100 * b.busy_fraction), round(b.steps_hz)) == (percent, rate)


def test_littles_law() -> None:
    one = in_flight(1.0, 10.0, 64)
    assert one.in_flight == 10 and one.slots == 64
    assert one.rate_to_fill_hz == 6.4
    assert in_flight(6.4, 10.0, 64).filled == 1.0
    assert in_flight(2.0, 3.0).filled is None


@given(st.integers(1, 10**6), st.floats(1, 1e9), st.floats(1, 1e12))
def test_a_step_is_never_faster_than_either_side(n: int, cost: float, gpu: float) -> None:
    c = launch_cost(n, cost, gpu)
    assert c.step_ns == max(c.launch_ns, c.gpu_ns)
    assert 0 < c.busy_fraction <= 1 and c.idle_fraction == pytest.approx(1 - c.busy_fraction)
    assert launch_cost(n + 1, cost, gpu).step_ns >= c.step_ns


@given(st.floats(1, 1e12), st.floats(0, 1e12))
def test_overlapping_never_lowers_the_busy_fraction(gpu: float, cpu: float) -> None:
    serial, overlapped = busy_fraction(gpu, cpu), busy_fraction(gpu, cpu, overlapped=True)
    assert 0 < serial.busy_fraction <= overlapped.busy_fraction <= 1
    assert serial.steps_hz <= overlapped.steps_hz


@pytest.mark.parametrize("bad", [(0, 1.0, 1.0), (1, 0.0, 1.0), (1, 1.0, 0.0), (1, float("nan"), 1.0)])
def test_nothing_launches_for_free(bad: tuple[int, float, float]) -> None:
    with pytest.raises(UsageError):
        launch_cost(*bad)


@pytest.mark.parametrize("bad", [(0.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.0, 0), (float("inf"), 1.0, 1)])
def test_littles_law_needs_numbers(bad: tuple[float, float, int]) -> None:
    with pytest.raises(UsageError):
        in_flight(*bad)
