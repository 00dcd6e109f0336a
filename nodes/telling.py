"""What the policy node tells while it runs: diagnostics, warnings that don't flood, verdicts, `~/report`. No figure is computed here."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from robot_perf.measure.node.levels import ERROR, OK, STALE, WARN, LoopLevels, Warnings
from robot_perf.nodes import reporting, ros, statistics

if TYPE_CHECKING:
    from robot_perf.measure.node.body import NodeBody
    from robot_perf.nodes.policy import PolicyNode


class Teller:
    """Publishes in the executor's thread what the keeper said. `live` is its last word, at most a second old."""

    def __init__(self, node: PolicyNode) -> None:
        self.node = node
        self.live: dict[str, Any] = {}
        self.levels, self.warnings = LoopLevels(), Warnings()
        self._loop = (OK, "")  # of the keeper's last word
        self.qos_trouble: list[str] = []
        self.hardware = reporting.hardware_id()

    @property
    def body(self) -> NodeBody | None:
        """The configured policy's loop."""
        return None if self.node.activity is None else self.node.activity.body

    @property
    def active(self) -> bool:
        """Whether the loop runs, or waits for its first observation."""
        return self.node.activity is not None and self.node.activity.active

    def open(self) -> None:
        """Makes its publishers, service and timer; the node destroys them."""
        from diagnostic_msgs.msg import DiagnosticArray
        from std_msgs.msg import String
        from std_srvs.srv import Trigger

        node = self.node
        asked = bool(node.values["statistics"])
        kind = statistics.message_type() if asked else None
        if asked and kind is None:
            node.get_logger().warning(
                "parameter statistics: statistics_msgs is not installed; /statistics is not published"
            )
        self._diagnostics = node.own(
            node.destroy_publisher, node.create_publisher(DiagnosticArray, "/diagnostics", ros.slow())
        )
        self._verdicts = node.own(node.destroy_publisher, node.create_publisher(String, "~/verdict", ros.latched()))
        self._statistics = None if kind is None else statistics.Statistics(node, kind)
        node.own(node.destroy_service, node.create_service(Trigger, "~/report", self._report))
        node.own(node.destroy_timer, ros.steady_timer(node, 1.0, self._diagnose))

    def hear(self, event: dict[str, Any]) -> None:
        """One event of the keeper."""
        kind = event["event"]
        if kind == "live":
            self._live(event)
        elif kind == "block":
            self._block(event)
        elif kind == "trouble":
            self.node.get_logger().error(event["what"])
        elif kind == "failed":
            self.node.get_logger().error(f"keeper: {event['error']['what']} {event['error']['detail']}")

    def _live(self, event: dict[str, Any]) -> None:
        """Once a second: the level is looked at once, and a new error doesn't wait for the timer."""
        self.live = event
        if not self.active or "window" not in event:
            return
        before, self._loop = self._loop[0], self.levels.look(event, self._thresholds())
        if event["hung_in_step"] is not None:
            self._loop = ERROR, f"the policy has not returned from step {event['hung_in_step']}"
        if self._loop[0] == ERROR and before != ERROR:
            self._diagnose()
        if self._statistics is not None:
            self._statistics.publish(event["moments"])

    def _thresholds(self) -> dict[str, float]:
        return {
            f"{n}.{w}": float(self.node.get_parameter(f"diagnostics.threshold.{n}.{w}").value)
            for n in ("miss_ratio", "gap_periods", "stale_ratio")
            for w in ("warn", "error")
        }

    def failed(self, text: str) -> None:
        """The loop's last word when it ends by itself: an error, at once, before the publishers may go."""
        from rclpy.duration import Duration

        self._publish([self._status(ERROR, text, {"rate achieved, window (Hz)": "0"})])
        # Cleanup destroys the publisher, and with it what has not arrived. The loop has ended: nothing waits for this.
        self._diagnostics.wait_for_all_acked(Duration(seconds=0.5))

    @staticmethod
    def block_line(event: dict[str, Any]) -> str:
        """A block's verdict for people."""
        return f"activation {event['activation']} block {event['block']}: {event['status']}: {event['reason']} ({event['file']})"

    def _block(self, event: dict[str, Any]) -> None:
        from std_msgs.msg import String

        self.node.statuses.append(event["status"])
        del self.node.statuses[:-1000]
        self.node.get_logger().info(self.block_line(event))
        if event["removed"]:
            self.node.get_logger().info(f"max_disk_mb: removed {', '.join(event['removed'])}")
        self._verdicts.publish(String(data=json.dumps(event)))

    def qos(self, text: str) -> None:
        """A QoS that doesn't match, told once and shown in the diagnostics."""
        if text not in self.qos_trouble:
            self.qos_trouble.append(text)
            self.node.get_logger().warning(text)

    def _report(self, _request: Any, response: Any) -> Any:
        """`~/report`: what the keeper said last, at most a second old."""
        age = None if not self.live else (time.monotonic_ns() - self.live["monotonic_ns"]) / 1e9
        document = {
            **self.live,
            "report_age_s": age,
            "command": self.node.command_facts(),
            "keeper_alive": self.node.link is not None and self.node.link.alive,
        }
        response.success, response.message = bool(self.live), json.dumps(document)
        return response

    def _diagnose(self) -> None:
        """Once a second: /diagnostics, counted warnings, the service manager's watchdog."""
        reporting.notify_systemd("WATCHDOG=1")
        self._publish([self._loop_status(), self._observation_status()])
        self._warn()

    def _publish(self, statuses: list[Any]) -> None:
        from diagnostic_msgs.msg import DiagnosticArray

        array = DiagnosticArray()
        array.header.stamp = self.node.get_clock().now().to_msg()
        array.status = statuses
        self._diagnostics.publish(array)

    def _status(self, level: int, text: str, values: dict[str, str]) -> Any:
        return reporting.status(level, f"{self.node.get_name()}: control loop", text, values, self.hardware)

    def _loop_status(self) -> Any:
        live, body = self.live, self.body
        if not self.active or "window" not in live or body is None:
            waiting = body.live.missing if self.active and body and body.live else []
            idle = "active, nothing reported yet" if self.active else "not active"
            text = "waiting for observations on " + ", ".join(waiting) if waiting else idle
            return self._status(WARN if waiting else STALE, text, {"rate achieved, window (Hz)": "0"})
        level, text = self._loop
        if self.node.link is None or not self.node.link.alive:
            level, text = max(level, WARN), "the keeper process is gone: steps are not recorded; " + text
        lost = body.blocks.lost_blocks if body.blocks is not None else 0
        if lost:
            level, text = max(level, WARN), f"{reporting.lost_words(lost)}; {text}"
        block = body.blocks.current if body.blocks is not None else None
        facts = {**body.report["backend_facts"], **(block.facts["before"]["events"] if block is not None else {})}
        unrecorded = self.node.activity.unrecorded if self.node.activity else 0
        values = reporting.loop_values(live, facts, unrecorded, self.node.executor_baseline_ns, lost)
        return self._status(
            level, text, values | {"command subscribers": str(self.node.command_facts()["subscribers"])}
        )

    def _observation_status(self) -> Any:
        values: dict[str, str] = {}
        problems: list[str] = []
        for topic, counts in (self.body.live.counts() if self.body and self.body.live else {}).items():
            values |= {f"{topic} {k}": str(counts[k]) for k in ("received", "malformed", "nonfinite")}
            if counts["problem"]:
                problems.append(f"{topic}: {counts['problem']}")
        level = WARN if problems or self.qos_trouble else OK
        return reporting.status(
            level,
            f"{self.node.get_name()}: observations",
            "; ".join([*problems, *self.qos_trouble]) or "as mapped",
            values,
            self.hardware,
        )

    def _warn(self) -> None:
        now, live = time.monotonic_ns(), self.live
        totals = live.get("since_activation") or {}
        body = self.body
        if fresh := self.warnings.due("misses", totals.get("misses", 0), now):
            worst = totals.get("max_response_ns") or 0
            self.node.get_logger().warning(
                f"{fresh} deadline misses in the last second or more, {totals['misses']} since activation; period {live['period_ns'] / 1e6:g} ms, "
                f"deadline {live['deadline_ns'] / 1e6:g} ms, worst lateness {max(0, worst - live['deadline_ns']) / 1e6:.2f} ms"
            )
        lost = body.blocks.lost_blocks if body is not None and body.blocks is not None else 0
        if self.warnings.due("blocks", lost, now):
            self.node.get_logger().error(reporting.lost_words(lost))
        for topic, counts in (body.live.counts() if body is not None and body.live is not None else {}).items():
            if fresh := self.warnings.due(topic, counts["malformed"] + counts["nonfinite"], now):
                self.node.get_logger().warning(f"{topic}: {fresh} messages refused: {counts['problem']}")
        if self.active and body is not None and body.live is not None and (missing := body.live.missing):
            waited = int((now - self.node.activated_ns) / 1e9)
            if waited >= self.node.values["first_observation_s"] and self.warnings.due("missing", waited, now):
                self.node.get_logger().warning(
                    f"no usable observation yet on {', '.join(missing)} after {waited} s: no command is sent"
                )
