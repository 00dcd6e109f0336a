"""The node's `device` means what the command line's does, and is refused the same way."""

from __future__ import annotations

import pytest

from robot_perf.errors import UsageError
from robot_perf.measure.node.parameters import PARAMETERS
from robot_perf.tasks.node.request import request_of

ASKED = {p.name: p.default for p in PARAMETERS} | {"policy": "null", "rate": 50.0}


@pytest.mark.parametrize(("written", "meant"), [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")])
def test_a_device_is_named_as_on_the_command_line(written, meant):
    assert request_of({**ASKED, "device": written}).backend_options["device"] == meant


@pytest.mark.parametrize("written", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"])
def test_another_word_is_refused_with_the_parameters_name(written):
    with pytest.raises(UsageError, match=r"^parameter device .* is unknown"):
        request_of({**ASKED, "device": written})
