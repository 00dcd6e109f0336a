"""`robot-perf selftest`: can this installation on this machine be believed?"""

from __future__ import annotations

from typing import Annotated

import typer

from robot_perf.cli.options import Json, emit_json
from robot_perf.cli.show import say, table_width
from robot_perf.errors import ExitCode


def command(
    quick: Annotated[bool, typer.Option("--quick", help="About ten seconds instead of two minutes.")] = False,
    json: Json = False,
) -> None:
    """Exit code 1 when a reading does not hold."""
    from robot_perf.render.lines import fit
    from robot_perf.specs import to_json
    from robot_perf.tasks.machine.selftest import Reading, selftest

    def show(reading: Reading) -> None:
        words = f"{reading.name}: {reading.read}; expected {reading.expected}; n {reading.n:,}"
        say(fit(f"{'ok  ' if reading.holds else 'FAIL'}  {words}", table_width()))

    readings = selftest(quick=quick, on_reading=None if json else show)
    hold = sum(r.holds for r in readings)
    if json:
        emit_json([to_json(r) for r in readings])
    elif hold == len(readings):
        say(f"all {hold} readings hold: this installation can be believed on this machine")
    else:
        say(f"{len(readings) - hold} of {len(readings)} readings do not hold: do not believe figures from this machine")
        say("      robot-perf doctor says what hurts here; a busy machine is the usual cause")
    raise typer.Exit(int(ExitCode.PASS if hold == len(readings) else ExitCode.FAIL))
