"""What the nodes tell without being asked: systemd's watchdog, diagnostic messages as REP-107 has them, a QoS that doesn't match."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace

import pytest

from robot_perf.nodes import reporting

LIVE = {
    "period_ns": 5_000_000, "deadline_ns": 5_000_000, "backend": "cuda_graph", "block": {"reached": 7, "steps": 200}, "device": {"clock_mhz": 1980.0, "throttled": "no"},
    "window": {"releases": 10, "misses": 1, "max_gap_ns": None, "period_mean_ns": 5_000_000.0, "response": {"p50": 1_000_000, "p99": None, "p99.9": None, "max": 2_000_000}},
    "since_activation": {"executed": 9, "misses": 1, "skipped": 1, "longest_miss_run": 1, "max_response_ns": 2_000_000, "starved": 0, "stale": 0, "withheld": 0},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_hears_where_it_listens(monkeypatch, tmp_path, kind):
    name = str(tmp_path / "notify") if kind == "path" else f"@robot-perf-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name if kind == "path" else "\0" + name[1:])
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        reporting.notify_systemd("WATCHDOG=1")
        assert manager.recv(100) == b"WATCHDOG=1"


def test_without_systemd_nothing_is_sent(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setattr(reporting.socket, "socket", lambda *_: pytest.fail("nobody listens"))
    reporting.notify_systemd("READY=1")


def test_one_number_a_key_with_its_unit_and_nothing_where_there_is_none():
    values = reporting.loop_values(LIVE, {"captured": True, "compiles": 2}, 3, 150_000)
    assert all(isinstance(v, str) for v in values.values())
    assert values["p50 response, window (ms)"] == "1.0000"
    assert values["p99 response, window (ms)"] == ""  # not estimable: no number
    assert values["max gap, window (ms)"] == ""
    assert values["rate achieved, window (Hz)"] == "200"
    assert (values["graph"], values["compiles"], values["steps no map recorded"]) == ("captured", "2", "3")
    assert (values["device clock (MHz)"], values["throttled"]) == ("1980", "no")
    assert values["blocks without a Run"] == "0"
    assert reporting.loop_values(LIVE, {}, 0, None, 2)["blocks without a Run"] == "2"
    assert reporting.lost_words(1).startswith("1 block has no Run")
    assert reporting.loop_values(LIVE, {}, 0, None)["graph"] == "none"
    for key, value in values.items():
        if value and "(ms)" in key:
            float(value)


@pytest.mark.ros
def test_a_status_passes_the_messages_own_checks(_rclpy):
    from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

    status = reporting.status(
        2, "policy_node: control loop", "late", reporting.loop_values(LIVE, {}, 0, 1), reporting.hardware_id()
    )
    DiagnosticStatus(
        level=status.level, name=status.name, message=status.message, hardware_id=status.hardware_id, values=[KeyValue(key=v.key, value=v.value, check_fields=True) for v in status.values], check_fields=True,
    )  # fmt: skip
    assert status.level == DiagnosticStatus.ERROR
    assert status.hardware_id


@pytest.mark.ros
def test_a_qos_that_does_not_match_is_named_once_and_shown(start, driver):
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.duration import Duration
    from rclpy.event_handler import SubscriptionEventCallbacks
    from rclpy.qos import QoSProfile
    from std_msgs.msg import Float64MultiArray

    arrays = []
    driver.node.create_subscription(DiagnosticArray, "/diagnostics", arrays.append, 10)
    node = start("policy_node", policy="null", rate=50, observations="random", autostart=True)
    node.wait_for("configured:")
    asking = QoSProfile(depth=1, deadline=Duration(nanoseconds=100_000_000))  # the node offers no deadline
    # An event callback of its own: rclpy's default one warns through a method that Kilted deprecates.
    events = SubscriptionEventCallbacks(incompatible_qos=lambda _: None)
    driver.node.create_subscription(
        Float64MultiArray, "/policy_node/action", lambda _: None, asking, event_callbacks=events
    )

    def shown():
        return [s for a in arrays for s in a.status if s.name == "policy_node: observations" and "QoS" in s.message]

    status = driver.until(shown, what="the trouble in the diagnostics")[0]
    assert status.level == b"\x01"
    assert "~/action" in status.message
    assert "DEADLINE" in status.message
    driver.spin(2.0)
    assert node.log.count("incompatible QoS") == 1


@pytest.mark.ros
@pytest.mark.parametrize(("lost", "level"), [(0, 0), (2, 1)])
def test_blocks_without_a_run_are_a_warning_until_the_next_activation(_rclpy, lost, level):
    from robot_perf.nodes.telling import Teller

    blocks = SimpleNamespace(lost_blocks=lost, current=None)
    body = SimpleNamespace(live=None, blocks=blocks, report={"backend_facts": {}})
    errors = []
    node = SimpleNamespace(
        activity=SimpleNamespace(body=body, active=True, unrecorded=0), link=SimpleNamespace(alive=True), executor_baseline_ns=None,
        get_name=lambda: "policy_node", command_facts=lambda: {"subscribers": 1}, get_logger=lambda: SimpleNamespace(error=errors.append),
    )  # fmt: skip
    teller = Teller(node)
    teller.live, teller._loop = LIVE, (0, "in time")
    status = teller._loop_status()
    assert status.level == bytes([level])
    assert ("2 blocks have no Run and no verdict" in status.message) == (lost > 0)
    assert status.message.endswith("in time")
    node.values = {"first_observation_s": 5.0}
    teller.live = {**LIVE, "since_activation": {"misses": 0}}
    for _ in range(2):
        teller._warn()
    assert errors == [reporting.lost_words(2)] * (lost > 0)  # once
