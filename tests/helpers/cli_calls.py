"""Calling the command line inside a test."""

from __future__ import annotations

import pytest

from robot_perf.cli.__main__ import main


def call(*arguments: object) -> int:
    """The exit code of `robot-perf …`."""
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    return int(caught.value.code or 0)
