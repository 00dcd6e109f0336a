"""JUnit XML parsed back, GitHub commands taken apart again, and the plan."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from fake_runs import MS, executions, make_run, policy
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_perf.render.ci.github import annotations, escape_data, escape_property
from robot_perf.render.ci.junit import junit_xml
from robot_perf.render.plan import plan_document, plan_text
from robot_perf.render.text import deadline_report
from robot_perf.specs import Budget


def suite_of(runs, **options):
    return ElementTree.fromstring(junit_xml(runs, **options).encode()).find("testsuite")


def test_junit_maps_each_verdict(runs):
    names = ("pass", "fail", "inconclusive", "invalid", "tight")
    suite = suite_of([(name, runs[name]) for name in names])
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds == {
        "pass": ["system-out"],
        "fail": ["failure", "system-out"],
        "inconclusive": ["skipped", "system-out"],
        "invalid": ["error", "system-out"],
        "tight": ["skipped", "system-out"],
    }
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "1", "errors": "1", "skipped": "2",
    }  # fmt: skip
    assert suite.find("testcase[@name='fail']/failure").get("message").startswith("FAIL: at least 0.0")
    assert suite.find("testcase[@name='fail']/system-out").text == deadline_report(runs["fail"])
    assert float(suite.get("time")) == pytest.approx(sum(float(case.get("time")) for case in suite), abs=0.01)


@pytest.mark.parametrize(("inconclusive_is", "tags"), [("fail", ["failure"]), ("pass", []), (None, ["skipped"])])
def test_junit_follows_inconclusive_is(runs, inconclusive_is, tags):
    suite = suite_of([("x", runs["inconclusive"])], inconclusive_is=inconclusive_is)
    assert [child.tag for child in suite[0] if child.tag != "system-out"] == tags


@given(st.text(), st.text())
@settings(max_examples=40)
def test_junit_survives_any_name(name, policy_name):
    run = make_run(executions(5), spec=policy(name=policy_name))
    suite = suite_of([(name, run)])
    assert len(suite) == 1


def parse_command(line: str) -> tuple[str, str, str]:
    """What GitHub's runner makes of a workflow command."""
    match = re.fullmatch(r"::(\w+) title=([^:]*)::(.*)", line)
    assert match is not None, line
    title, message = match[2], match[3]
    for code, character in (("%2C", ","), ("%3A", ":")):
        title = title.replace(code, character)
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        title, message = title.replace(code, character), message.replace(code, character)
    return match[1], title, message


def test_one_command_per_run(runs):
    names = ("pass", "fail", "inconclusive", "invalid", "tight", "hostile")
    lines = annotations([(name, runs[name]) for name in names]).split("\n")
    levels = [parse_command(line)[0] for line in lines]
    assert levels == ["notice", "error", "warning", "error", "notice", "warning"]
    assert "95 % confidence" in parse_command(lines[0])[2]
    assert "preemption" in parse_command(lines[1])[2]


@pytest.mark.parametrize(("inconclusive_is", "level"), [("fail", "error"), ("pass", "notice"), (None, "warning")])
def test_inconclusive_level(runs, inconclusive_is, level):
    assert parse_command(annotations([("x", runs["inconclusive"])], inconclusive_is=inconclusive_is))[0] == level


@given(st.text())
def test_escapes_come_back(text):
    line = f"::error title={escape_property(text)}::{escape_data(text)}"
    assert "\n" not in line
    assert "\r" not in line
    if not re.search(r"%(25|0D|0A|3A|2C)", text):
        assert parse_command(line) == ("error", text, text)


def test_plan_holds_the_reference_lengths():
    document = plan_document(MS, Budget(MS, miss_rate=1e-3))
    assert [row["releases"] for row in document["rows"]] == [2995, 4742, 6294, 7752, 9151, 10511]
    doubled = plan_document(MS, Budget(MS, miss_rate=1e-3, assumed_burst=2.0))
    assert [row["releases"] for row in doubled["rows"]] == [3 * n for n in (2995, 4742, 6294, 7752, 9151, 10511)]
    json.dumps(document, allow_nan=False)


def test_plan_text(golden):
    golden("plan.txt", plan_text(20 * MS, Budget(20 * MS, assumed_burst=2.0)) + "\n")
