"""The two ends of a test bench around a policy node: what is watched, and what goes wrong on demand."""

from __future__ import annotations

import struct

import pytest

from robot_perf.measure.node.bench_parameters import OBSERVATION_PARAMETERS
from robot_perf.measure.node.faults import Fate, Faults, following
from robot_perf.measure.node.watching import Watched, header_stamp_ns, latency_by_stamp, own_cost

MS = 1_000_000
NO_FAULTS = {p.name: p.default for p in OBSERVATION_PARAMETERS}


def message(sec, nanosec, *, little=True):
    return bytes((0, int(little), 0, 0)) + struct.pack("<iI" if little else ">iI", sec, nanosec) + b"frame"


@pytest.mark.parametrize("little", [True, False])
def test_a_header_stamp_is_read_in_both_byte_orders(little):
    assert header_stamp_ns(message(7, 9, little=little)) == 7_000_000_009


def watched(arrivals, stamps=(), keep=100):
    made = Watched("t", keep, stamps=bool(stamps))
    made.arrivals.extend(arrivals)
    made.stamps.extend(stamps)
    made.received = len(arrivals)
    return made


def test_arrivals_are_stamped_counted_and_bounded():
    topic = Watched("t", 3, stamps=True)
    for k in range(5):
        topic.arrived(message(k, 0))
    assert topic.received == 5
    assert list(topic.stamps) == [2_000_000_000, 3_000_000_000, 4_000_000_000]
    assert list(topic.arrivals) == sorted(topic.arrivals)
    assert topic.newest(2) == list(topic.arrivals)[1:]
    assert len(topic.newest(10)) == 3
    assert topic.own_ns > 0


def test_outputs_are_matched_to_the_input_of_the_same_stamp():
    inputs = watched([100, 200, 300], [1, 2, 3])
    outputs = watched([150, 270, 999], [1, 2, 7])
    assert latency_by_stamp(inputs, outputs) == [50, 70]


def test_own_cost_is_per_message_and_absent_without_any():
    topics = [watched([1, 2]), watched([3, 4])]
    topics[0].own_ns, topics[1].own_ns = 100, 300
    cost = own_cost(topics, elapsed_ns=1000, cpu_ns=400)
    assert (cost.messages, cost.stamping_ns_per_message, cost.cpu_ns_per_message, cost.cpu_share) == (4, 100, 100, 0.4)
    assert own_cost([watched([])], 1000, 10).cpu_ns_per_message is None


def fates(values, count=2000, step_ns=10 * MS, seed=1):
    faults = Faults(seed, 0)
    made = []
    for k in range(count):
        fate = faults.fate({**NO_FAULTS, **values}, k * step_ns)
        made.append(fate)
        if fate.send:
            faults.sent(fate)
    return faults, made


def test_without_faults_every_message_is_sent_whole():
    faults, made = fates({}, 50)
    assert set(made) == {Fate(True, nan=False, wrong_size=False)}
    assert faults.counts == {"sent": 50, "dropped": 0, "nan": 0, "wrong_size": 0, "stalls": 0}


def test_shares_are_kept_and_everything_is_counted():
    faults, made = fates({"drop_ratio": 0.25, "nan_ratio": 0.1, "wrong_size_ratio": 0.5})
    counts = faults.counts
    assert counts["sent"] + counts["dropped"] == len(made)
    # Five standard deviations of a binomial around each share.
    assert counts["dropped"] / 2000 == pytest.approx(0.25, abs=0.05)
    assert counts["nan"] / counts["sent"] == pytest.approx(0.1, abs=0.04)
    assert counts["wrong_size"] / counts["sent"] == pytest.approx(0.5, abs=0.07)
    assert fates({"drop_ratio": 0.25})[1] == fates({"drop_ratio": 0.25})[1]


def test_a_stall_begins_as_often_and_lasts_as_long_as_asked():
    faults, made = fates({"stall_every_s": 1.0, "stall_s": 0.2}, count=350)
    silent = [k for k, fate in enumerate(made) if not fate.send]
    assert silent == [*range(100, 120), *range(200, 220), *range(300, 320)]
    assert faults.counts["stalls"] == 3


def test_lateness_has_a_constant_and_a_uniform_part():
    faults = Faults(0, 0)
    values = {**NO_FAULTS, "late_ms": 40.0, "jitter_ms": 10.0}
    late = [faults.late_ns(values) for _ in range(500)]
    assert 40 * MS <= min(late) < 41 * MS
    assert 49 * MS < max(late) <= 50 * MS
    assert Faults(0, 0).late_ns(NO_FAULTS) == 0


@pytest.mark.parametrize(
    ("k", "late_ms", "elapsed_ms", "expected"),
    [
        (4, 0, 40, 5),
        (4, 0, 43, 5),
        (4, 0, 95, 9),  # the stand-in itself was held up: what should have gone meanwhile is skipped
        (4, 60, 100, 5),  # late on purpose by six periods: none is skipped
    ],
)
def test_what_comes_next_on_the_grid(k, late_ms, elapsed_ms, expected):
    assert following(k, late_ms * MS, 10 * MS, elapsed_ms * MS) == expected
