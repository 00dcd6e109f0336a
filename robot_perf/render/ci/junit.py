"""JUnit XML for CI: one testcase per Run. PASS passes, FAIL is a failure, INVALID an error, INCONCLUSIVE skipped.

`--inconclusive-is` maps INCONCLUSIVE to a failure or a pass, as it does for the exit code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from robot_perf.analyze.types import Verdict
from robot_perf.analyze.verdict import judge
from robot_perf.render.parts.verdict import headline
from robot_perf.render.text import deadline_report
from robot_perf.run.model import Run
from robot_perf.units import NS_PER_S

__all__ = ["junit_xml"]

# What XML 1.0 can't hold, not even escaped: policies and paths may bring any of it.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(runs: Iterable[tuple[str, Run]], *, inconclusive_is: str | None = None) -> str:
    """One testsuite of `(name, run)` pairs; the text report is each case's system-out."""
    suite = ElementTree.Element("testsuite", name="robot-perf")
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    total_s = 0.0
    for name, run in runs:
        verdict = judge(run) if run.loop.period_ns else None
        seconds = _seconds(run)
        total_s += seconds
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml(f"robot_perf.{run.policy.name}"), name=_xml(name), time=f"{seconds:.3f}"
        )
        outcome = _outcome(verdict, inconclusive_is)
        if outcome is not None:
            element, message = outcome
            status = verdict.status if verdict is not None else "NO VERDICT"
            child = ElementTree.SubElement(case, element, message=_xml(message))
            if element != "skipped":
                child.set("type", status)
                child.text = _xml(verdict.cause if verdict is not None and verdict.cause else message)
            counts[{"failure": "failures", "error": "errors", "skipped": "skipped"}[element]] += 1
        counts["tests"] += 1
        ElementTree.SubElement(case, "system-out").text = _xml(deadline_report(run))
    for key, count in counts.items():
        suite.set(key, str(count))
    suite.set("time", f"{total_s:.3f}")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _outcome(verdict: Verdict | None, inconclusive_is: str | None) -> tuple[str, str] | None:
    if verdict is None:
        return "skipped", "a back-to-back run has no deadline verdict"
    message = f"{verdict.status}: {headline(verdict)}"
    if verdict.status == "INCONCLUSIVE":
        return {None: ("skipped", message), "fail": ("failure", message), "pass": None}[inconclusive_is]
    return {"PASS": None, "FAIL": ("failure", message), "INVALID": ("error", message)}[verdict.status]


def _seconds(run: Run) -> float:
    """From the first release, warm-up included, to the last finish."""
    columns = run.columns
    if not len(columns["step"]):
        return 0.0
    return max(0, int(columns["end_ns"].max()) - int(columns["release_ns"].min())) / NS_PER_S


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
