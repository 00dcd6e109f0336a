"""GitHub Actions: workflow commands that annotate a job. The step summary is `render.markdown.step_summary`.

Without `from __future__ import annotations`, whose name is this module's main function.
"""

from collections.abc import Iterable

from robot_perf.analyze.verdict import judge
from robot_perf.render.lines import clean
from robot_perf.render.parts.verdict import headline
from robot_perf.run.model import Run

__all__ = ["annotations", "escape_data", "escape_property"]

_LEVEL = {"PASS": "notice", "FAIL": "error", "INCONCLUSIVE": "warning", "INVALID": "error"}


def annotations(runs: Iterable[tuple[str, Run]], *, inconclusive_is: str | None = None) -> str:
    """One `::error`, `::warning` or `::notice` line per `(name, run)`: the verdict, and its cause on FAIL."""
    lines = []
    for name, run in runs:
        if not run.loop.period_ns:
            lines.append(_command("notice", clean(name), "a back-to-back run has no deadline verdict"))
            continue
        verdict = judge(run)
        level = _LEVEL[verdict.status]
        if verdict.status == "INCONCLUSIVE" and inconclusive_is is not None:
            level = {"fail": "error", "pass": "notice"}[inconclusive_is]
        text = headline(verdict) + (f"\n{clean(verdict.cause)}" if verdict.cause else "")
        lines.append(_command(level, f"{verdict.status} {clean(run.policy.name)} ({clean(name)})", text))
    return "\n".join(lines)


def _command(level: str, title: str, message: str) -> str:
    return f"::{level} title={escape_property(title)}::{escape_data(message)}"


def escape_data(text: str) -> str:
    """A message as a workflow command carries it: a newline in a policy's name must not begin a second command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """A property such as the title: also ends at `:` and `,`."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")
