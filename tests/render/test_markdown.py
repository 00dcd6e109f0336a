"""Markdown: the page's tables, escaped; and the drawing beside it."""

from __future__ import annotations

import re
import sys

import pytest
from fake_runs import executions, make_run
from hypothesis import given
from hypothesis import strategies as st

from robot_perf import __version__
from robot_perf.errors import RobotPerfError
from robot_perf.render.markdown import escape_markdown, report_markdown, step_summary
from robot_perf.render.png import report_png


def test_golden(runs, golden):
    text = report_markdown([("fail.parquet", runs["fail"])], images=["report.png"])
    golden("report_fail.md", text.replace(f"robot-perf {__version__}", "robot-perf VERSION"))


@given(st.text())
def test_escaped_text_has_no_bare_special(text):
    escaped = escape_markdown(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_{}\[\]|~]", escaped)
    assert not set("<>\n\r@") & set(escaped)


def test_hostile_names_neither_format_nor_link(runs):
    text = report_markdown([("x|y\n.parquet", runs["hostile"])])
    assert "<script>" not in text
    assert not re.search(r"(?<!\\)\]\(", text)
    assert "\x1b" not in text
    for line in text.splitlines():
        if line.startswith("| "):
            cells = len(re.findall(r"(?<!\\)\|", line))
            assert cells in (3, 11, 16, 2)


def test_tables_have_one_width_each(runs):
    blocks = re.findall(r"(?:^\|.*\n)+", report_markdown([("p", runs["pass"])]), re.MULTILINE)
    assert len(blocks) > 6
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_step_summary_names_each_verdict(runs):
    text = step_summary([("a.parquet", runs["pass"]), ("b.parquet", runs["fail"])])
    assert "| PASS | go1.onnx |" in text
    assert "| FAIL | go1.onnx |" in text
    assert "- cause: preemption" in text


def test_png(runs):
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed: matplotlib")
    assert report_png(runs["fail"]).startswith(b"\x89PNG")
    assert report_png(runs["empty"]) is None


def test_absent_matplotlib_is_named(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RobotPerfError, match="matplotlib"):
        report_png(runs["fail"])


def test_the_bounds_of_the_table_are_those_of_the_headline():
    """The upper one was rounded down: 0.0439 in the table beside 0.044 above it."""
    text = report_markdown([("r.parquet", make_run(executions(200), planned=False))])
    assert "between 0 and 0.044 of releases" in text
    assert "| bounds, corrected for bursts | 0 to 0.044, each with 95 % confidence |" in text
    assert "| bounds, independent misses | 0 to 0.0149 |" in text
