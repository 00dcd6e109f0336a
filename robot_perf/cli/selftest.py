"""`robot-perf selftest`: can this installation on this machine be believed?"""

from __future__ import annotations

from typing import Annotated

import typer

from robot_perf.cli.options import Json, emit_json
from robot_perf.cli.show import say
from robot_perf.errors import ExitCode


def command(
    quick: Annotated[bool, typer.Option("--quick", help="About ten seconds instead of two minutes.")] = False,
    json: Json = False,
) -> None:
    """Exit code 1 when a reading does not hold."""
    from robot_perf.specs import to_json
    from robot_perf.tasks.machine.selftest import Reading, selftest

    def show(reading: Reading) -> None:
        say(
            f"{'ok  ' if reading.holds else 'FAIL'}  {reading.name}: {reading.read}   expected {reading.expected}   n {reading.n:,}"
        )

    readings = selftest(quick=quick, on_reading=None if json else show)
    if json:
        emit_json([to_json(r) for r in readings])
    raise typer.Exit(int(ExitCode.PASS if all(r.holds for r in readings) else ExitCode.FAIL))
