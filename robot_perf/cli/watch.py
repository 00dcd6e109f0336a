"""`robot-perf watch [RUN]`: follow a measurement from another terminal, without touching it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robot_perf.cli.options import Json, emit_json, in_range
from robot_perf.cli.show import say, table_width
from robot_perf.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from robot_perf.run.stepmap import StepMap
    from robot_perf.tasks.live import Ended, Live


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
    """Reads the step map; the measured process does not notice.

    Exit codes: 0 it runs, or ended and saved its Run; 2 nothing to watch; 4 its process died and left the map.
    """
    from robot_perf.run.maps import running
    from robot_perf.run.stepmap import StepMap, Word
    from robot_perf.tasks.live import LiveView, ended

    in_range("--interval", interval, 0.05, 3600)
    path = _map_of(source)
    stepmap, view = StepMap.open(path), LiveView()
    if not json:
        asked = stepmap.request
        rate = f" at {asked['rate_hz']} Hz" if asked.get("rate_hz") else ""
        policy = asked.get("policy")
        name = policy.get("name", "") if isinstance(policy, dict) else ""
        say(f"watching   {name}{rate}, process {stepmap[Word.WORKER_PID]}, {path}")
    while True:
        alive = bool(running(stepmap))
        live = view.look(stepmap)
        # who ends well saves its Run and takes the map away before it ends
        dead = None if alive or not path.exists() else ended(stepmap)
        read = _tell(live, dead, alive=alive, json=json)
        if dead is not None:
            if not json:
                _tell_dead(stepmap, dead)
            raise typer.Exit(int(ExitCode.INVALID))
        if not alive and not once and not json:
            say("ended      its verdict is where it was started")
        if once or not alive or not read:
            return
        try:
            time.sleep(interval)
        except KeyboardInterrupt:
            return  # the way to leave: what is watched goes on


def _map_of(source: Path | None) -> Path:
    """The map that is meant. Raises UsageError where nothing is being measured under that name."""
    from robot_perf.run.maps import find_maps, maps_of

    if source is None:
        live_maps = [e.path for e in find_maps() if e.live]
        if not live_maps:
            raise UsageError(
                "nothing is being measured on this machine", do="Start one: robot-perf deadline mlp --rate 50"
            )
        return live_maps[0]
    if source.suffix != ".parquet":
        return source
    # The map in memory, not its copy on disk, which is older by up to --flush-s.
    entries = [e for e in maps_of(source) if not e.damage]
    if not entries:
        done = (
            f"It is finished: robot-perf report {source}"
            if source.is_file()
            else "robot-perf watch without argument follows the newest."
        )
        raise UsageError(f"{source} is not being measured", do=done)
    return entries[0].path


def _tell(live: Live, dead: Ended | None, *, alive: bool, json: bool) -> bool:
    """One look. False where nobody reads any more."""
    from dataclasses import replace

    from robot_perf.cli.progress import figures
    from robot_perf.specs import to_json

    if dead is not None:
        live = replace(live, phase="ended", left_ns=None)
    if json:
        told = {"last_alive_utc": dead.last_alive_utc, "do": dead.do} if dead is not None else {}
        return emit_json({**to_json(live), "alive": alive, **told})
    head, width = f"{live.phase:<10} {live.reached:,} of {live.scheduled:,}", table_width()
    return say(f"{head}   {figures(live, None if width is None else width - len(head) - 3)}".rstrip())


def _tell_dead(stepmap: StepMap, dead: Ended) -> None:
    from robot_perf.run.stepmap import Word
    from robot_perf.units import format_duration

    when = f"last alive {dead.last_alive_utc}, {format_duration(dead.ago_ns)} ago"
    say(f"dead       process {stepmap[Word.WORKER_PID]} has ended and left no Run; {when}")
    say(f"next       {dead.do}")
