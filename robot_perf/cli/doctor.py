"""`robot-perf doctor`: what on this machine hurts latency, and the command that mends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robot_perf.cli.options import Json, emit_json

if TYPE_CHECKING:
    from robot_perf.tasks.machine.doctor import Examination
    from robot_perf.tasks.machine.floor import Floor


def command(
    floor: Annotated[
        bool, typer.Option("--floor", help="Also measure the floor: a policy that does nothing, about 15 s.")
    ] = False,
    json: Json = False,
) -> None:
    """Reads only. Commands are printed for you to run, never run. Exit code 0 whatever is found."""
    from robot_perf.tasks.machine.doctor import examine

    examination = examine()
    if json:
        emit_json(_document(examination, _measure() if floor else ()))
        return
    from robot_perf.cli.show import report_width, show
    from robot_perf.render.hardware.doctor import doctor_text, floor_text

    width = report_width()
    show(doctor_text(examination.facts, examination.findings, width=width))
    if floor:
        typer.echo("")
        show(floor_text([(row.settings, row.summary, row.refused) for row in _measure()], width=width))


def _measure() -> tuple[Floor, ...]:
    from robot_perf.tasks.machine.floor import measure_floor

    return measure_floor()


def _document(examination: Examination, floor: Sequence[Floor]) -> dict[str, Any]:
    from robot_perf.specs import to_json

    document: dict[str, Any] = {
        "schema": "robot-perf/1",
        "to_mend": sum(f.outcome == "mend" for f in examination.findings),
        "notes": sum(f.outcome == "note" for f in examination.findings),
        "findings": to_json(examination.findings),
        "facts": to_json(dict(examination.facts)),
    }
    if floor:
        document["floor"] = [
            {
                "settings": row.settings,
                "refused": list(row.refused),
                "misses": row.summary.misses,
                "releases": row.summary.releases,
                "wakeup": to_json(row.summary.wakeup),
                "harness": to_json(row.summary.harness),
            }
            for row in floor
        ]
    return document
