"""`/statistics`: statistics_msgs' message once a second, where it is installed. Off unless asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from robot_perf.nodes import ros

if TYPE_CHECKING:
    from robot_perf.nodes.policy import PolicyNode

# The keeper's phases, and what a viewer shows as the metric's name.
PHASES = {
    "response": "response time",
    "wake": "wake-up latency",
    "execution": "execution time",
    "publish": "publish time",
    "own": "own work",
    "observation_age": "observation age",
}


def message_type() -> Any:
    """statistics_msgs' message, or None where it isn't installed (PyPI has no wheel of it)."""
    try:
        from statistics_msgs.msg import MetricsMessage
    except ImportError:
        return None
    return MetricsMessage


class Statistics:
    """Publishes what the keeper told of the steps since its last word. Percentiles have no type there: see /diagnostics."""

    def __init__(self, node: PolicyNode, kind: Any) -> None:
        self._node, self._kind = node, kind
        self._publisher = node.own(node.destroy_publisher, node.create_publisher(kind, "/statistics", ros.slow()))
        self._heard = node.get_clock().now().to_msg()

    def publish(self, moments: Mapping[str, Mapping[str, Any]]) -> None:
        """One message a phase. Its window reaches from the keeper's word before to this one."""
        before, self._heard = self._heard, self._node.get_clock().now().to_msg()
        for phase, name in PHASES.items():
            source = f"{self._node.get_fully_qualified_name()}: {phase}"
            self._publisher.publish(metrics(self._kind, source, name, moments[phase], (before, self._heard)))


def metrics(kind: Any, source: str, name: str, moments: Mapping[str, Any], window: tuple[Any, Any]) -> Any:
    """One message, ms: average, minimum, maximum, standard deviation, sample count; NaN where there is no sample."""
    from statistics_msgs.msg import StatisticDataPoint, StatisticDataType

    kinds = {"AVERAGE": "mean", "MINIMUM": "min", "MAXIMUM": "max", "STDDEV": "stddev"}
    values = {k: math.nan if moments[v] is None else moments[v] / 1e6 for k, v in kinds.items()}
    values["SAMPLE_COUNT"] = float(moments["n"])
    message = kind(
        measurement_source_name=source, metrics_source=name, unit="ms", window_start=window[0], window_stop=window[1]
    )
    message.statistics = [
        StatisticDataPoint(data_type=getattr(StatisticDataType, f"STATISTICS_DATA_TYPE_{k}"), data=v)
        for k, v in values.items()
    ]
    return message
