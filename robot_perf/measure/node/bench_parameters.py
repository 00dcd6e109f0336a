"""Parameters of the stand-in robot and of the monitor: the two ends of a test bench around a policy node."""

from __future__ import annotations

from robot_perf.measure.node.parameters import Parameter

OBSERVATION_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("rate", "double", None, "Rate of the observations.", "Hz", 0.01, 100_000.0),
    Parameter("target", "string", "policy_node", "Node whose private topics (~/...) are fed."),
    Parameter("policy", "string", "", "Policy whose inputs are fed; needed for a mapping; empty: one array of `size`."),
    Parameter("mapping", "string", "", "The policy node's mapping YAML; empty: one array per input."),
    Parameter("topic", "string", "", "Topic of the one array without a policy; empty: <target>/observation."),
    Parameter("size", "integer", 48, "Values of the one array without a policy.", "", 1, 10_000_000),
    Parameter("recording", "string", "", ".npz with the inputs, a leading axis of steps; empty: seeded random values."),
    Parameter("seed", "integer", 0, "Seed of values and faults.", "", 0, 2**31 - 1),
    Parameter("count", "integer", 0, "Messages to publish on each topic; 0: no end.", "", 0, 2**31 - 1),
    Parameter("wait_for", "integer", 0, "Subscribers that each topic waits for before the first message.", "", 0, 100),
    Parameter(
        "jitter_ms", "double", 0.0, "Each message is late by a uniform 0 to this.", "ms", 0.0, 60_000.0, dynamic=True
    ),
    Parameter("late_ms", "double", 0.0, "Every message is late by this.", "ms", 0.0, 60_000.0, dynamic=True),
    Parameter("drop_ratio", "double", 0.0, "Share of messages that are not sent.", "", 0.0, 1.0, dynamic=True),
    Parameter("stall_every_s", "double", 0.0, "A stall begins this often; 0: never.", "s", 0.0, 86_400.0, dynamic=True),
    Parameter("stall_s", "double", 1.0, "Length of a stall.", "s", 0.0, 3600.0, dynamic=True),
    Parameter("nan_ratio", "double", 0.0, "Share of messages whose first value is NaN.", "", 0.0, 1.0, dynamic=True),
    Parameter(
        "wrong_size_ratio", "double", 0.0, "Share of arrays with one value too many.", "", 0.0, 1.0, dynamic=True
    ),
)

MONITOR_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("output_topic", "string", None, "Topic to watch: the robot's commands."),
    Parameter("input_topic", "string", "", "Topic that the output answers; empty: none."),
    Parameter("output_type", "string", "", "Message type of the output; empty: asked of the graph."),
    Parameter("input_type", "string", "", "Message type of the input; empty: asked of the graph."),
    Parameter(
        "rate", "double", 0.0, "Control rate of the output; 0: estimated from the arrivals.", "Hz", 0.0, 100_000.0
    ),
    Parameter(
        "match",
        "string",
        "order",
        "Input-to-output latency: order (newest input before each output) or stamp (equal header stamps).",
        choices=("order", "stamp"),
    ),
    Parameter("miss_rate", "double", 1e-3, "Miss rate that is allowed.", "", 1e-9, 0.5),
    Parameter("confidence", "double", 0.95, "Confidence of the verdict.", "", 0.5, 0.999999),
    Parameter(
        "deadline_qos_ms", "double", 0.0, "Ask the middleware for deadline events at this; 0: no.", "ms", 0.0, 1e6
    ),
    Parameter("reliable", "bool", False, "Subscribe reliably; a best-effort publisher then doesn't match."),
    Parameter("depth", "integer", 1000, "Messages kept until the monitor has looked at them.", "", 1, 1_000_000),
    Parameter("releases", "integer", 0, "The view is of the first releases alone; 0: of all.", "", 0, 200_000_000),
    Parameter("keep", "integer", 1_000_000, "Arrivals kept for the report; older ones leave.", "", 1000, 100_000_000),
    Parameter("duration_s", "double", 0.0, "Ends by itself after this; 0: no end.", "s", 0.0, 1e7),
    Parameter("output_file", "string", "", "JSON report written at the end; empty: none."),
)
