"""`robot-perf watch [RUN]`: follow a measurement from another terminal, without touching it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from robot_perf.cli.options import Json, emit_json
from robot_perf.errors import UsageError


def command(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A step map, or the Run it will become; without it the newest live one.", show_default=False
        ),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="One look, then exit.")] = False,
    json: Json = False,
) -> None:
    """Reads the step map; the measured process does not notice."""
    from robot_perf.cli.progress import figures
    from robot_perf.cli.show import say, table_width
    from robot_perf.run.maps import find_maps, maps_of
    from robot_perf.run.stepmap import StepMap, Word, is_alive
    from robot_perf.specs import to_json
    from robot_perf.tasks.live import LiveView

    if not 0.05 <= interval <= 3600:
        raise UsageError(f"--interval {interval} is out of range", why="Allowed: 0.05 to 3600 s.")
    path = source
    if path is None:
        live_maps = [e.path for e in find_maps() if e.live]
        if not live_maps:
            raise UsageError(
                "nothing is being measured on this machine", do="Start one: robot-perf deadline mlp --rate 50"
            )
        path = live_maps[0]
    elif path.suffix == ".parquet":
        # The map in memory, not its copy on disk, which is older by up to --flush-s.
        entries = [e for e in maps_of(path) if not e.damage]
        if not entries:
            done = (
                f"It is finished: robot-perf report {path}"
                if path.is_file()
                else "robot-perf watch without argument follows the newest."
            )
            raise UsageError(f"{path} is not being measured", do=done)
        path = entries[0].path
    stepmap, view = StepMap.open(path), LiveView()
    if not json:
        asked = stepmap.request
        rate = f" at {asked['rate_hz']} Hz" if asked.get("rate_hz") else ""
        policy = asked.get("policy")
        name = policy.get("name", "") if isinstance(policy, dict) else ""
        say(f"watching   {name}{rate}, process {stepmap[Word.WORKER_PID]}, {path}")
    while True:
        live = view.look(stepmap)
        if json:
            read = emit_json(to_json(live))
        else:
            head, width = f"{live.phase:<10} {live.reached:,} of {live.scheduled:,}", table_width()
            read = say(f"{head}   {figures(live, None if width is None else width - len(head) - 3)}".rstrip())
        running = is_alive(stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN]) or is_alive(
            stepmap[Word.CONDUCTOR_PID], stepmap[Word.CONDUCTOR_BORN]
        )
        if not running and not once and not json:
            say("ended      its verdict is where it was started;")
            say("           robot-perf recover lists what was left behind")
        if once or not running or not read:
            return
        try:
            time.sleep(interval)
        except KeyboardInterrupt:
            return  # the way to leave: what is watched goes on
