"""docs/metrics.md defines what is printed: every word of the glossary, key of the documents, check of doctor, exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_runs import executions, make_run

from robot_perf.analyze.document import deadline_document
from robot_perf.errors import ExitCode
from robot_perf.render.lines import LABEL
from robot_perf.render.parts.glossary import GLOSSARY
from robot_perf.render.text import deadline_report
from robot_perf.run.columns import STEP_COLUMNS

DOCS = Path(__file__).resolve().parents[2] / "docs"
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")
WORDS = METRICS.lower()


@pytest.mark.parametrize("word", [word for word, _ in GLOSSARY])
def test_each_printed_word_is_defined(word):
    assert all(part in WORDS for part in word.lower().split(", "))


def test_each_line_of_a_report_is_explained(any_run):
    """The words in the column of labels, below the first line, which begins with the policy's own name."""
    section = METRICS.split("## The lines of a report")[1].split("\n## ")[0].lower()
    lines = deadline_report(any_run).splitlines()[1:]
    labels = {line[:LABEL].strip().split("  ")[0] for line in lines if line[:1].strip() and line[:LABEL][-1] == " "}
    assert not [label for label in labels if label.lower() not in section]
    assert len(labels) > 3


def test_each_key_of_the_document_is_listed():
    document = deadline_document(make_run(executions(50)))
    for key in document:
        assert f"`{key}`" in METRICS or key.endswith("_reason")
    for key in document["verdict"]:
        assert f"`{key}`" in METRICS, key


def test_each_column_is_listed():
    assert not [name for name in STEP_COLUMNS if f"`{name}`" not in METRICS]


def test_each_condition_is_listed():
    run = make_run(executions(20), clock={"samples": []})
    assert not [key for key in run.conditions if f"`{key}`" not in METRICS]


def test_exit_codes_are_listed():
    table = METRICS.split("## Exit codes")[1].split("##")[0]
    assert re.findall(r"^\| (\d) \|", table, re.MULTILINE) == [str(int(code)) for code in ExitCode]


def test_smallest_n_agree():
    from fractions import Fraction

    from robot_perf.stats.ranks import smallest_n

    stated = dict(re.findall(r"p([\d.]+) ([\d,]+)[,.]", METRICS.split("95 %, two-sided:")[1].split("\n- ")[0]))
    assert {"50", "90", "99", "99.9"} <= set(stated)
    for percentile, n in stated.items():
        assert smallest_n(Fraction(percentile) / 100, 0.95) == int(n.replace(",", ""))


def test_links_between_pages_are_alive():
    for page in ("metrics.md", "how-to-read-a-verdict.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (DOCS / page).read_text(encoding="utf-8")):
            assert (DOCS / target).exists(), f"{page}: {target}"


def test_the_jetson_page_says_that_it_never_ran_there():
    page = (DOCS / "jetson.md").read_text(encoding="utf-8")
    assert "never been run on a Jetson" in page
    for words in (
        "--system-site-packages",
        "pip download",
        "--no-index",
        "constraints-jetson.txt",
        "never switched",
        "3.8",
    ):
        assert words in page
