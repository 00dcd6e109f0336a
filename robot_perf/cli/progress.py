"""A running measurement on a terminal, from outside the worker: the opening lines once, then the progress line."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from robot_perf.cli.show import report_width, show
from robot_perf.render.lines import clean, shorten
from robot_perf.units import format_duration, format_ms

if TYPE_CHECKING:
    from robot_perf.run.stepmap import StepMap
    from robot_perf.tasks.live import Live

_LOOK_S = 0.5
_MOST_BAR, _LEAST_BAR = 24, 8
_AROUND = 19  # cells of the progress line beside bar and figures: phase, share, the blanks between, one never written


class Watcher:
    """`look` is the conductor's callback. It prints the opening lines when the policy is loaded and redraws at most twice a second."""

    def __init__(self, *, opening: bool, bar: bool) -> None:
        self._opening, self._show_bar = opening, bar
        self._bar: Any = None
        self._task: Any = None
        self._gauge: Any = None
        self._view: Any = None
        self._next = 0.0
        self._remarks: int | None = None

    def __enter__(self) -> Watcher:
        if self._opening:
            from robot_perf.analyze.doctor import remarks
            from robot_perf.tasks.machine.doctor import examine

            # Before the worker starts: reading the machine is no work to do beside a measurement.
            self._remarks = remarks(examine().findings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):  # a terminal that is gone
                self._bar.stop()

    def look(self, stepmap: StepMap) -> None:
        """One look at the live map. A terminal that was closed and a log that can't be written end the showing, not the measurement."""
        try:
            self._look(stepmap)
        except OSError:
            # The report at the end meets the same stream again, and says what is wrong with it.
            self._opening = self._show_bar = False

    def _look(self, stepmap: StepMap) -> None:
        from robot_perf.run.stepmap import Phase, Word

        if stepmap[Word.PHASE] < Phase.LOADED:
            if self._show_bar and time.monotonic() >= self._next:
                self._next = time.monotonic() + _LOOK_S
                self._draw_loading(stepmap)
            return
        if self._opening and stepmap.report.get("policy"):
            self._opening = False
            self._print_opening(stepmap)
        begin = time.monotonic()
        if self._show_bar and begin >= self._next:
            self._draw(stepmap)
            # A look sorts all responses so far: on a long run it is taken rarely enough to need at most 2 % of a core.
            self._next = begin + max(_LOOK_S, 50 * (time.monotonic() - begin))

    def _print_opening(self, stepmap: StepMap) -> None:
        from robot_perf.render.lines import join
        from robot_perf.render.parts.opening import opening_lines
        from robot_perf.specs import Budget, LoopSpec, PolicySpec, from_json

        request, report = stepmap.request, stepmap.report
        lines = opening_lines(
            policy=from_json(PolicySpec, report["policy"]),
            backend=request["backend"],
            loop=from_json(LoopSpec, request["loop"]),
            budget=from_json(Budget, request["budget"]),
            planned=request.get("planned", False),
            host=request.get("host", {}),
            facts=report.get("backend_facts"),
            doctor_notes=self._remarks,
            width=report_width(),
        )
        show(join([*lines, ""]))

    def _draw_loading(self, stepmap: StepMap) -> None:
        """What a long load is doing (an engine's build takes minutes), as far as it says."""
        loading = stepmap.report.get("loading")
        if not loading:
            return
        self._start()
        fraction = loading.get("fraction")
        total, done = (None, 0) if fraction is None else (100, round(100 * fraction))
        width = self._bar.console.width
        what = shorten(clean(loading["what"]), max(1, width - _AROUND - _LEAST_BAR))
        self._gauge.bar_width = bar_width(width, what)
        self._bar.update(self._task, description="loading", total=total, completed=done, figures=what)
        self._bar.refresh()

    def _draw(self, stepmap: StepMap) -> None:
        self._start()
        live = self._view.look(stepmap)
        total = live.scheduled if live.phase == "measuring" else None
        # asked anew at each look: a terminal may be made narrower while it is measured
        words = figures(live, self._bar.console.width - _AROUND - _LEAST_BAR)
        self._gauge.bar_width = bar_width(self._bar.console.width, words)
        self._bar.update(self._task, description=live.phase, total=total, completed=live.reached, figures=words)
        self._bar.refresh()

    def _start(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            from robot_perf.tasks.live import LiveView

            self._view = LiveView()
            self._gauge = BarColumn(_MOST_BAR)
            self._bar = Progress(
                TextColumn("{task.description:<10}"),
                self._gauge,
                TaskProgressColumn(),
                TextColumn("{task.fields[figures]}", markup=False),
                console=Console(stderr=True),
                transient=True,
                auto_refresh=False,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=None, figures="")


def bar_width(width: int, words: str) -> int:
    """Cells of the bar beside `words` on a terminal of `width`: what is left, at most 24."""
    return max(1, min(_MOST_BAR, width - _AROUND - cell_len(words)))


def figures(live: Live, room: int | None = None) -> str:
    """Time left, achieved rate, p50, p99, max and misses so far; in less `room` (cells) without the least needed of them."""
    if not live.reached:
        return ""
    left = f"{_roughly(live.left_ns)} left" if live.left_ns else ""
    rate = "" if live.rate_hz is None else f"{live.rate_hz:.2f} Hz"
    p50, p99 = _percentile("p50", live.p50_ns, live.p50_reason), _percentile("p99", live.p99_ns, live.p99_reason)
    # the longest response is of steps that finished: a skipped release has none
    most = "" if live.max_ns is None else f"max {format_ms(live.max_ns)} ms"
    most += " executed" if most and live.executed < live.reached else ""
    misses = f"misses {live.misses:,}"
    choices = (
        (left, rate, f"{p50}  {p99}  {most}", misses),
        (left, f"{p50}  {p99}  {most}", misses),
        (left, f"{p99}  {most}", misses),
        (left, most, misses),
        (left, misses),
        (misses,),
    )
    lines = ["   ".join(filter(None, parts)) for parts in choices]
    return next((line for line in lines if room is None or cell_len(line) <= room), "")


def _percentile(name: str, ns: int | None, reason: str | None) -> str:
    """`p99 12.34`, `p99 skipped` where its rank lies on a release without a finish, `p99 not yet` where steps are too few."""
    return f"{name} {format_ms(ns)}" if ns is not None else f"{name} {reason if reason == 'skipped' else 'not yet'}"


def _roughly(ns: int) -> str:
    """What is left, to the tenth of a second: it is read at a glance and gone."""
    return format_duration(ns) if ns >= 1_000_000_000 else f"{ns / 1e9:.1f} s"
