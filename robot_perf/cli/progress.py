"""The progress line of a running measurement, on stderr, from outside the worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from robot_perf.units import format_duration, format_ms

if TYPE_CHECKING:
    from robot_perf.run.stepmap import StepMap
    from robot_perf.tasks.live import Live

_LOOK_S = 0.5


@contextmanager
def progress(*, show: bool) -> Iterator[Callable[[StepMap], None] | None]:
    """A callback for the conductor that redraws at most twice a second; None where nothing is to be shown."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from robot_perf.tasks.live import LiveView

    view, last = LiveView(), [0.0]
    bar = Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(30),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
    )
    with bar:
        task = bar.add_task("starting", total=None, figures="")

        def look(stepmap: StepMap) -> None:
            if time.monotonic() - last[0] < _LOOK_S:
                return
            last[0] = time.monotonic()
            live = view.look(stepmap)
            total = live.scheduled if live.phase == "measuring" else None
            bar.update(task, description=live.phase, total=total, completed=live.reached, figures=figures(live))
            bar.refresh()

        yield look


def figures(live: Live) -> str:
    """Time left, achieved rate, p50, p99, max and misses so far."""
    if live.p50_ns is None or live.p99_ns is None or live.max_ns is None:
        return ""
    parts = [f"{format_duration(live.left_ns)} left"] if live.left_ns is not None else []
    if live.rate_hz is not None:
        parts.append(f"{live.rate_hz:.2f} Hz")
    parts.append(f"p50 {format_ms(live.p50_ns)}  p99 {format_ms(live.p99_ns)}  max {format_ms(live.max_ns)} ms")
    parts.append(f"misses {live.misses:,}")
    return "   ".join(parts)
