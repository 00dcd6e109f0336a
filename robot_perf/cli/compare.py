"""`robot-perf compare A B`: faster, slower, no difference, or can't say; who misses more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from robot_perf.cli.options import Json, emit_json
from robot_perf.errors import ExitCode, unknown

_CODES = {True: ExitCode.FAIL, False: ExitCode.PASS, None: ExitCode.INCONCLUSIVE}
_WORDS = {
    True: "true",
    False: "false",
    None: "can't say: measure A and B longer, or let --inconclusive-is fail or pass decide",
}


def command(
    a: Annotated[Path, typer.Argument(help="The Run to compare with.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="The Run that is judged.", show_default=False)],
    fail_if: Annotated[
        str | None,
        typer.Option(
            help="Exit 1 if this holds: slower, faster, misses, p50 or p99 with > < and a ratio (1.1), a share (10%) or a difference (0.5ms); and, or, not.",
            show_default=False,
        ),
    ] = None,
    aa: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Two Runs of the same thing: how far those lie apart is noise, if that is more than 5 % of A.",
            show_default=False,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A condition that may differ, such as host.governors; repeatable.", show_default=False),
    ] = None,
    inconclusive_is: Annotated[
        str | None,
        typer.Option(help="fail or pass: what CI makes of a --fail-if that the Runs can't answer.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Exit codes: 0, or with --fail-if: 1 it holds, 0 it doesn't, 3 the Runs can't say; 2 not comparable."""
    from robot_perf.specs import to_json
    from robot_perf.tasks.compare import compare_files
    from robot_perf.tasks.fail_if import parse_fail_if

    expression = None if fail_if is None else parse_fail_if(fail_if)
    if inconclusive_is not in (None, "fail", "pass"):
        raise unknown("--inconclusive-is", inconclusive_is, ("fail", "pass"))
    comparison = compare_files(a, b, same=aa, allow=tuple(allow or ()))
    holds = False if expression is None else expression.of(comparison)
    if json:
        document = {"schema": "robot-perf/1", "a": str(a), "b": str(b), **to_json(comparison)}
        emit_json(document if expression is None else document | {"fail_if": {"expression": fail_if, "holds": holds}})
    else:
        from robot_perf.cli.show import report_width, say, show
        from robot_perf.render.compare import comparison_text
        from robot_perf.render.lines import clean

        show(comparison_text(comparison, str(a), str(b), width=report_width()))
        if expression is not None:
            say(f"fail if    {clean(fail_if)}: {_WORDS[holds]}")
    code = _CODES[holds]
    if code == ExitCode.INCONCLUSIVE and inconclusive_is is not None:
        code = ExitCode.PASS if inconclusive_is == "pass" else ExitCode.FAIL
    sys.exit(int(code))
