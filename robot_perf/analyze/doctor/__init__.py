"""What the facts of a machine say about latency: one finding per check. Pure: facts of another machine do as well."""

from __future__ import annotations

import re
from collections.abc import Sequence

from robot_perf.analyze.doctor import host, packages
from robot_perf.analyze.doctor.types import Check, Facts, Finding

__all__ = ["CHECKS", "Finding", "judge_facts", "remarks"]

CHECKS: tuple[Check, ...] = (*host.CHECKS, *packages.CHECKS)
_ERROR_CLASS = re.compile(r"^[A-Za-z]+(?:Error|Exception): ")


def judge_facts(facts: Facts) -> tuple[Finding, ...]:
    """One finding per check, in the order of CHECKS."""
    return tuple(_finding(check, facts) for check in CHECKS)


def remarks(findings: Sequence[Finding]) -> int:
    """How many lines `doctor` has to say: the "3 notes" of a report's host line."""
    return sum(finding.outcome in ("mend", "note") for finding in findings)


def _finding(check: Check, facts: Facts) -> Finding:
    if check.jetson and not facts.get("l4t"):
        return Finding(check.name, "clean", "not a Jetson", "", "")
    missing = [name for name in check.needs if facts.get(name) is None]
    if missing:
        reason = _ERROR_CLASS.sub("", str((facts.get("unread") or {}).get(missing[0], "not recorded")))
        return Finding(check.name, "can't answer", reason, "", "")
    advice = check.judge(facts)
    if advice is None:
        return Finding(check.name, "clean", "", "", "")
    return Finding(check.name, advice.outcome, advice.what, advice.why, advice.command)
