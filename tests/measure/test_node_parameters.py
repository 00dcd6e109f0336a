"""The table of a node's parameters: names that it lacks, and the help that is made of it."""

from __future__ import annotations

import pytest

from robot_perf.measure.node.bench_parameters import MONITOR_PARAMETERS, OBSERVATION_PARAMETERS
from robot_perf.measure.node.parameters import PARAMETERS, help_text, strangers


def test_a_mistyped_parameter_is_named_with_the_nearest_one():
    """ROS ignores it: `deadlin_ms:=5` judged every block by the period."""
    (words,) = strangers(PARAMETERS, ["rate", "deadlin_ms"])
    assert words == "parameter deadlin_ms is none of this node's and changes nothing. Did you mean deadline_ms?"
    assert strangers(PARAMETERS, ["zzz"]) == ["parameter zzz is none of this node's and changes nothing."]
    assert strangers(PARAMETERS, ["qos_overrides./policy_node/action.publisher.depth"]) == []


@pytest.mark.parametrize(
    "table", [PARAMETERS, MONITOR_PARAMETERS, OBSERVATION_PARAMETERS], ids=["policy", "monitor", "observation"]
)
def test_help_names_every_parameter_within_80_columns(table):
    text = help_text("some_node", table)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert [line.strip() for line in text.splitlines() if line[:3].strip() and line.startswith("  ")] == [
        p.name for p in table
    ]
    assert text.count("; required") == sum(p.default is None for p in table)
