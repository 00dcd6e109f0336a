"""The report of a diagnosis: what a person reads first, in order, with units; the golden text of one made profile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made_profiles import MEMCPY, Timeline, steady

from robot_perf.analyze.diagnose import StepCost, diagnose
from robot_perf.analyze.diagnose.thresholds import documented
from robot_perf.devices import find
from robot_perf.render.diagnose.text import diagnose_document, diagnose_html, diagnose_markdown, diagnose_text

ROOT = Path(__file__).resolve().parents[3]


def test_the_text_of_a_launch_bound_policy(golden) -> None:  # type: ignore[no-untyped-def]
    golden("diagnose_launch_bound.txt", diagnose_text(diagnose(steady().profile(), period_ns=5_000_000)).plain + "\n")


def test_the_first_line_answers_and_every_line_fits() -> None:
    d = diagnose(steady().profile(), period_ns=5_000_000)
    for width in (60, 80, 100):
        lines = diagnose_text(d, width=width).plain.splitlines()
        assert lines[0].startswith("limit      launch/CPU limits the step")
        assert max(map(len, lines)) <= width + 22, "only words that can't be broken stick out"


def test_three_formats_say_the_same() -> None:
    d = diagnose(steady().profile(), period_ns=5_000_000)
    document = diagnose_document(d)
    for text in (diagnose_text(d, width=10_000).plain, diagnose_markdown(d), diagnose_html(d)):
        assert "launch/CPU" in text and "launches a step" in text
    assert document["findings"][0]["rule"] == "launch/CPU"
    assert document["findings"][0]["fixes"][0]["gains"].startswith("at most")


def test_small_copies_show_no_rate() -> None:
    t = steady()
    t.op(400_000, 420_000, kind=MEMCPY, name="[memcpy h2d]", copy=0, host_mem=0, bytes=64)
    copies = [line for line in diagnose_text(diagnose(t.profile())).plain.splitlines() if line.startswith("copies")]
    assert copies and "GB/s" not in copies[0] and "pageable host memory" in copies[0]


def test_whole_microseconds_are_not_printed_below_the_clock_step() -> None:
    d = diagnose(steady(call=2000).profile(resolution_ns=1000.0))
    f = next(f for f in d.findings if f.rule == "launch/CPU")
    assert "median call < 5.0 µs (clock step 1.0 µs)" in f.reason


def busy() -> Timeline:
    """Kernels of a millisecond, back to back."""
    t = Timeline()
    for i in range(30):
        t.call(i * 1_000_000, i * 1_000_000 + 5000, corr=i + 1)
        t.op(i * 1_000_000 + 5000, (i + 1) * 1_000_000 + 5000, corr=i + 1)
    return t


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        (StepCost(30 * 4.8e12 * 0.9e-3, None, "bf16"), "may be memory-bound"),
        (StepCost(30 * 4.8e12 * 0.1e-3, 30 * 989e12 * 0.8e-3, "bf16"), "may be compute-bound"),
        (StepCost(1e6, 1e9, "bf16"), "not memory-bound and not compute-bound"),
        (StepCost(None, 1e9, "fp4"), "give --on DEVICE"),
    ],
)
def test_the_roofline_reading_excludes_but_never_concludes(cost: StepCost, says: str) -> None:
    d = diagnose(busy().profile(), device=find("H200 SXM"), cost=cost)
    assert says in d.facts["roofline"]["says"]
    assert d.primary == "GPU, class not measured"


def test_the_document_lists_every_threshold_with_its_default() -> None:
    text = (ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", text, re.MULTILINE))
    assert {name: float(value) for name, value in listed.items()} == {
        name: float(value) for name, value, _ in documented()
    }  # type: ignore[arg-type]
