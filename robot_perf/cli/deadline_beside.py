"""What `deadline` prints when a policy is not alone: several policies at once, a stated load, a soak."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_perf.cli.options import emit_json, write_output
from robot_perf.cli.show import say
from robot_perf.errors import ExitCode

if TYPE_CHECKING:
    from robot_perf.run.model import Run
    from robot_perf.tasks.deadline import DeadlineRequest

_WORST = ("PASS", "INCONCLUSIVE", "FAIL", "INVALID")
Measured = tuple[str, "Run", Path]


def several(request: DeadlineRequest, policies: Sequence[str], rate: str | None, **show: Any) -> int:
    """`deadline A@50 B@10`: a verdict each; the worst is the exit code."""
    from robot_perf.tasks.together import prepare_together, requests_of, run_together

    ones = prepare_together(requests_of(request, policies, rate))
    if not show["quiet"] and not show["as_json"]:
        seconds = ones[0].loop.steps * ones[0].loop.period_ns / 1e9
        words = ", ".join(f"{one.policy.name} at {one.request.rate_hz} Hz ({one.backend})" for one in ones)
        say(f"together   {words}, for {seconds:.0f} s", err=True)
    labels = [f"{one.policy.name} at {one.request.rate_hz} Hz" for one in ones]
    runs = run_together(ones)
    return _show([(label, run, path) for label, (run, path) in zip(labels, runs, strict=True)], "policies", **show)


def loaded(request: DeadlineRequest, loads: Sequence[str], **show: Any) -> int:
    """`deadline … --load cpu:2`: the verdict alone and under the load; the worse one is the exit code."""
    from robot_perf.cli.progress import Watcher
    from robot_perf.tasks.beside import load_specs, run_under_load
    from robot_perf.tasks.deadline import prepare

    specs = load_specs(loads, str(request.backend_options.get("device", "cpu")))
    prepared = prepare(request)
    talk = not show["quiet"] and not show["as_json"]
    with Watcher(opening=talk, bar=talk and sys.stderr.isatty()) as watcher:
        found = run_under_load(prepared, specs, watcher.look)
    return _show(found, "under_load", **show)


def soaked(request: DeadlineRequest, duration_ns: int, **show: Any) -> int:
    """`deadline … --soak 30m`: one long run with temperatures and clocks by the minute."""
    from robot_perf.cli.progress import Watcher
    from robot_perf.tasks.beside import run_soak, soak_request
    from robot_perf.tasks.deadline import prepare

    prepared = prepare(soak_request(request, duration_ns))
    talk = not show["quiet"] and not show["as_json"]
    with Watcher(opening=talk, bar=talk and sys.stderr.isatty()) as watcher:
        run, path = run_soak(prepared, watcher.look)
    return _show([("soak", run, path)], "soak", **show)


def _show(
    found: Sequence[Measured],
    key: str,
    *,
    junit: Path | None,
    github: bool,
    inconclusive_is: str | None,
    quiet: bool,
    as_json: bool,
    force: bool,
) -> int:
    from robot_perf.analyze.summary import summarize
    from robot_perf.analyze.verdict import judge
    from robot_perf.cli.show import report_width, show
    from robot_perf.render import text

    files = [(path.name, run) for _, run, path in found]
    verdicts = [judge(run) for _, run, _ in found]
    if as_json:
        emit_json(_document(found, key))
    for (label, run, path), verdict in zip(found, verdicts, strict=True):
        if as_json:
            continue
        if len(found) > 1:
            say(f"── {label}")
        if quiet:
            say(text.verdict_line(verdict))
            continue
        show(text.result_text(run, summarize(run), verdict, width=report_width(), saved=path))
        say("")
    if len(found) > 1 and not quiet and not as_json:
        from robot_perf.render.lines import clean, join, labelled

        for (label, _, _), verdict in zip(found, verdicts, strict=True):
            show(join(labelled(verdict.status, f"{clean(label)}: {verdict.reason}", report_width())))
    if junit is not None:
        from robot_perf.render.ci.junit import junit_xml

        write_output(junit, junit_xml(files, inconclusive_is=inconclusive_is), force=force)
    if github:
        from robot_perf.render.ci.github import annotations

        say(annotations(files, inconclusive_is=inconclusive_is), err=as_json)
    worst = max(verdicts, key=lambda v: _WORST.index(v.status))
    if worst.exit_code == ExitCode.INCONCLUSIVE and inconclusive_is is not None:
        return int(ExitCode.PASS if inconclusive_is == "pass" else ExitCode.FAIL)
    return worst.exit_code


def _document(found: Sequence[Measured], key: str) -> dict[str, Any]:
    """One document: the first verdict in the usual place, all of them under `key`; a soak is alone."""
    from robot_perf.analyze.document import deadline_document

    documents = [deadline_document(run) | {"label": label, "run": str(path)} for label, run, path in found]
    if key == "soak":
        return documents[0]
    return (
        documents[0] | {key: documents} if key == "under_load" else {"schema": documents[0]["schema"], key: documents}
    )
