"""The progress line: on a terminal of any width it is one line, and what is left out is the least needed."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress

from robot_perf.cli import bench, progress
from robot_perf.tasks.live import Live

LIVE = Live("measuring", 7123, 14226, 7120, 100.0, 12_345_678, 123_456_789, 1_234_567_890, 1234, 71_030_000_000)


def drawn(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """One look at a live map, as a terminal of `width` columns shows it."""
    watcher = progress.Watcher(opening=False, bar=True)
    written = io.StringIO()
    watcher._start()
    watcher._bar.stop()
    console = Console(file=written, width=width, force_terminal=True, color_system=None)
    watcher._bar = Progress(*watcher._bar.columns, console=console, auto_refresh=False)
    watcher._task = watcher._bar.add_task("", total=None, figures="")
    monkeypatch.setattr(watcher, "_start", lambda: None)
    monkeypatch.setattr(watcher._view, "look", lambda stepmap: LIVE)
    watcher._draw(None)  # type: ignore[arg-type]
    return "".join(segment.text for segment in console.render(watcher._bar.get_renderable()) if not segment.control)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_the_progress_line_is_one_line_and_nothing_in_it_is_cut(width, monkeypatch):
    text = drawn(width, monkeypatch)
    lines = text.rstrip("\n").split("\n")
    assert len(lines) == 1 and cell_len(lines[0]) <= width
    assert "…" not in lines[0] and "measuring" in lines[0] and "50%" in lines[0] and "misses 1,234" in lines[0]


def test_figures_leave_out_the_least_needed_first():
    whole = progress.figures(LIVE)
    assert "100.00 Hz" in whole and "p50" in whole
    assert "Hz" not in progress.figures(LIVE, cell_len(whole) - 1)
    assert "p50" in progress.figures(LIVE, cell_len(whole) - 1)
    assert progress.figures(LIVE, cell_len("misses 1,234")) == "misses 1,234"


def test_a_percentile_without_a_value_says_why():
    early = replace(LIVE, p99_ns=None, p99_reason="not estimable (needs n >= 368)", executed=7123)
    assert "p50 12.35  p99 not yet  max 1234.57 ms   misses" in progress.figures(early)
    stalled = progress.figures(replace(LIVE, p99_ns=None, p99_reason="skipped"))
    assert "p50 12.35  p99 skipped  max 1234.57 ms executed   misses 1,234" in stalled
    nothing = replace(
        LIVE, p50_ns=None, p50_reason="skipped", p99_ns=None, p99_reason="skipped", max_ns=None, executed=0
    )
    assert "p50 skipped  p99 skipped" in progress.figures(nothing)
    assert "misses 1,234" in progress.figures(nothing)
    assert progress.figures(replace(nothing, reached=0)) == ""


def test_what_is_left_is_read_at_a_glance():
    assert "0.7 s left" in progress.figures(replace(LIVE, left_ns=674_160_000))
    assert "left" not in progress.figures(replace(LIVE, left_ns=0))
    assert "1 min 11 s left" in progress.figures(LIVE)


def test_the_line_of_a_bench_is_cut_to_the_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    written = Terminal()
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setenv("COLUMNS", "80")
    bench._say(quiet=False)("mlp-quadruped on onnxruntime at 50 Hz, block 1 of 2, " * 4)
    shown = written.getvalue().removeprefix("\r\x1b[K")
    assert cell_len(shown) <= 79 and shown.endswith("…")
