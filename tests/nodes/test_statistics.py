"""/statistics: the five allowed kinds of value, nothing else; over DDS where statistics_msgs is installed."""

from __future__ import annotations

import importlib.util
import math
import sys
import types
from types import SimpleNamespace

import pytest

CODES = {"AVERAGE": 1, "MINIMUM": 2, "MAXIMUM": 3, "STDDEV": 4, "SAMPLE_COUNT": 5}
MOMENTS = {"n": 4, "mean": 2_500_000.0, "min": 1_000_000, "max": 4_000_000, "stddev": 1_118_034.0}


@pytest.fixture
def stand_in(monkeypatch):
    """The package's shape, for machines without it: constants as its message file has them."""
    made = types.ModuleType("statistics_msgs.msg")
    made.StatisticDataPoint = SimpleNamespace
    made.StatisticDataType = SimpleNamespace(**{f"STATISTICS_DATA_TYPE_{k}": v for k, v in CODES.items()})
    monkeypatch.setitem(sys.modules, "statistics_msgs", types.ModuleType("statistics_msgs"))
    monkeypatch.setitem(sys.modules, "statistics_msgs.msg", made)


def test_a_message_holds_the_five_allowed_values_in_ms(stand_in):
    from robot_perf.nodes.statistics import metrics

    message = metrics(SimpleNamespace, "/policy_node: response", "response time", MOMENTS, ("from", "until"))
    assert (message.measurement_source_name, message.unit) == ("/policy_node: response", "ms")
    assert (message.window_start, message.window_stop) == ("from", "until")
    assert {p.data_type: p.data for p in message.statistics} == {1: 2.5, 2: 1.0, 3: 4.0, 4: 1.118034, 5: 4.0}


def test_without_a_sample_values_are_nan_and_the_count_is_zero(stand_in):
    from robot_perf.nodes.statistics import metrics

    none = {"n": 0, "mean": None, "min": None, "max": None, "stddev": None}
    message = metrics(SimpleNamespace, "s", "m", none, (0, 1))
    values = {p.data_type: p.data for p in message.statistics}
    assert values[5] == 0.0
    assert all(math.isnan(values[code]) for code in (1, 2, 3, 4))


@pytest.mark.ros
@pytest.mark.skipif(
    importlib.util.find_spec("statistics_msgs") is not None, reason="statistics_msgs is installed: see the next test"
)
def test_where_the_messages_are_absent_the_node_says_so_and_runs(start, driver):
    node = start("policy_node", policy="null", rate=100, observations="random", statistics=True, autostart=True)
    node.wait_for("statistics_msgs is not installed; /statistics is not published")
    driver.until(lambda: driver.report().get("since_activation", {}).get("executed", 0) > 50, what="running")


@pytest.mark.ros
@pytest.mark.skipif(
    importlib.util.find_spec("statistics_msgs") is None,
    reason="statistics_msgs is not installed: it comes with a ROS distribution, no wheel has it",
)
def test_over_dds(start, driver):
    from statistics_msgs.msg import MetricsMessage

    found = []
    driver.node.create_subscription(MetricsMessage, "/statistics", found.append, 10)
    start("policy_node", policy="mlp", rate=100, observations="random", statistics=True, autostart=True)
    driver.until(lambda: len(found) >= 4 * 6, what="four seconds of statistics")
    response = [m for m in found if m.measurement_source_name == "/policy_node: response"][2]
    values = {p.data_type: p.data for p in response.statistics}
    assert sorted(values) == [1, 2, 3, 4, 5]
    assert 0 < values[2] <= values[1] <= values[3]
    assert 20 < values[5] < 300  # about a second's steps at 100 Hz
    length_s = response.window_stop.sec - response.window_start.sec
    length_s += (response.window_stop.nanosec - response.window_start.nanosec) / 1e9
    assert 0.2 < length_s < 5
    ages = [m for m in found if m.measurement_source_name == "/policy_node: observation_age"]
    assert all(math.isnan(p.data) for p in ages[1].statistics if p.data_type != 5)  # no observation is live here
