"""What the monitor says: report, health with hysteresis, last words. Arrivals are made up; nothing sleeps."""

from __future__ import annotations

import numpy as np

from robot_perf.measure.node.bench_parameters import MONITOR_PARAMETERS
from robot_perf.measure.node.levels import ERROR, OK, STALE, WARN
from robot_perf.measure.node.watching import OwnCost, Watched
from robot_perf.tasks.node.monitoring import Health, last_words, report

MS = 1_000_000
ASKED = {p.name: p.default for p in MONITOR_PARAMETERS} | {"rate": 100.0, "miss_rate": 0.2}
OWN = OwnCost(100, 900.0, 20_000.0, 0.012)


def watched(arrivals, topic="/action", stamps=()):
    made = Watched(topic, 10_000, stamps=bool(stamps))
    made.arrivals.extend(arrivals)
    made.stamps.extend(stamps)
    made.received = len(arrivals)
    return made


def regular(count, first=1000 * MS):
    return [first + k * 10 * MS for k in range(count)]


def test_a_report_counts_both_topics_and_matches_by_order():
    outputs = regular(200)
    inputs = [o - 3 * MS for o in outputs]
    document = report(watched(outputs), watched(inputs, "/obs"), ASKED, OWN, outputs[-1] + 5 * MS)
    assert document["output"] == {
        "topic": "/action",
        "received": 200,
        "publishers": None,
        "lost": None,
        "deadline_events": 0,
    }
    assert document["input"] == {"topic": "/obs", "received": 200, "publishers": None, "lost": None}
    assert (document["view"]["misses_low"], document["view"]["status"]) == (0, "PASS")
    assert document["latency"]["n"] == 200
    assert document["latency"]["quantiles"][0]["value"] == 3 * MS
    assert document["age_since_last_output_ns"] == 5 * MS
    assert document["own"]["cpu_ns_per_message"] == 20_000.0


def test_a_report_matches_by_stamp():
    outputs, stamps = regular(50), list(range(1, 51))
    inputs = watched([o - 4 * MS for o in outputs[::2]], "/obs", stamps[::2])
    document = report(watched(outputs, stamps=stamps), inputs, {**ASKED, "match": "stamp"}, OWN, outputs[-1])
    assert document["latency"]["n"] == 25
    assert "equal header stamps" in document["latency"]["definition"]


def test_a_topic_without_a_grid_says_so():
    arrivals = np.cumsum(10 * MS + np.random.default_rng(1).exponential(MS // 2, 3000)).astype(int).tolist()
    document = report(watched(arrivals), None, {**ASKED, "rate": 0.0}, OWN, arrivals[-1])
    assert (document["view"]["has_grid"], document["view"]["misses_low"]) == (False, 0)
    assert "can't say (seen from outside) (its arrivals keep to no grid" in last_words(document)
    assert "grid" not in last_words(report(watched(regular(200)), None, {**ASKED, "rate": 0.0}, OWN, 0))


def test_nothing_received_is_said_and_not_a_zero():
    empty = watched([])
    document = report(empty, None, ASKED, OWN, 0)
    assert (document["view"], document["latency"], document["age_since_last_output_ns"]) == (None, None, None)
    assert last_words(document) == "0 messages on /action: too few to say anything"
    level, text, values = Health().look(empty, None, 100.0, OWN, 0)
    assert level == STALE
    assert "nothing received" in text
    assert values["max gap, last 1000 (ms)"] == values["age (ms)"] == ""


def test_a_topic_that_stopped_has_a_gap_that_grows():
    topic, health = watched(regular(100)), Health()
    last = topic.arrivals[-1]
    seen = [health.look(topic, None, 100.0, OWN, last + ms * MS) for ms in (5, 30, 150)]
    assert [level for level, *_ in seen] == [OK, WARN, ERROR]
    assert [values["max gap, last 1000 (ms)"] for *_, values in seen] == ["10.0000", "30.0000", "150.0000"]
    assert "150.0 ms at a period of 10 ms" in seen[2][1]


def test_the_level_falls_slowly():
    health, late = Health(), watched([*regular(10), 1000 * MS + 140 * MS])
    assert health.look(late, None, 100.0, OWN, late.arrivals[-1])[0] == WARN
    good = watched(regular(100))
    assert [health.look(good, None, 100.0, OWN, good.arrivals[-1])[0] for _ in range(4)] == [WARN, WARN, OK, OK]


def test_the_period_is_estimated_where_no_rate_was_given():
    topic = watched(regular(100))
    level, _, values = Health().look(topic, None, 0.0, OWN, topic.arrivals[-1] + 40 * MS)
    assert level == WARN
    assert values["period mean, last 1000 (ms)"] == "10.0000"


def test_what_was_lost_on_the_way_accuses_nobody():
    """200 of 400 releases arrived empty: a FAIL at 20 %, unless the middleware says that messages were lost on the way here."""
    arrived = [a for k, a in enumerate(regular(400)) if k % 4 not in (1, 2)]
    told = watched(arrived)
    assert report(told, None, ASKED, OWN, arrived[-1])["view"]["status"] == "FAIL"
    told.lost = 60
    view = report(told, None, ASKED, OWN, arrived[-1])["view"]
    assert (view["misses_low"], view["misses_high"], view["status"]) == (140, 300, "can't say")
    assert "200 messages (60 more were lost on the way here) on 400 releases" in last_words(
        report(told, None, ASKED, OWN, arrived[-1])
    )
    assert Health().look(told, None, 100.0, OWN, arrived[-1])[2]["lost on the way here"] == "60"


def test_a_pass_stands_though_messages_were_lost():
    arrived = [a for k, a in enumerate(regular(2000)) if k % 100 != 50]
    told = watched(arrived)
    told.lost = 7
    assert report(told, None, ASKED, OWN, arrived[-1])["view"]["status"] == "PASS"
