"""A check beside the normative rules: steps that fell back from a graph, or compiled, in mid-capture."""

from __future__ import annotations

import re

import numpy as np

from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND, Finding, Fix

# frames and ranges of torch.compile at work: a step that holds one compiled; the compiled code's own ranges are not among them
_COMPILING = re.compile(
    r"compile_inner|entire_frame_compile|convert_frame\.py|backend_compile|recompile|fx_codegen_and_compile|compile_fx\.py"
)


def fallback(context: Context) -> Finding:
    """Found when kept steps differ in having a graph launch, or when one compiled."""
    if context.reasons:
        return Finding("fallback", CANT, context.reasons[0])
    if context.steps.whole:
        return Finding("fallback", CANT, "no steps to compare")
    step, ranges, steps = context.step, context.profile.ranges, context.steps
    low, high = step.get("graph_launches_per_step_min"), step.get("graph_launches_per_step_max")
    compiling = np.array([bool(_COMPILING.search(s)) for s in ranges.strings], bool)
    inside = 0
    if len(ranges) and compiling.any():
        at = ranges["start_ns"][compiling[ranges["name"]]]
        owner = np.searchsorted(steps.range_start, at, "right") - 1
        good = (owner >= 0) & (at < steps.range_end[np.maximum(owner, 0)])
        inside = len(np.unique(owner[good]))
    evidence = {"graph_launches_per_step_min": low, "graph_launches_per_step_max": high, "steps_that_compiled": inside}
    fix = Fix(
        "fix the shapes and the guards that changed; warm up with every shape the robot will see",
        "no step of seconds",
        "start-up",
        "robot-perf bench POLICY --backends compile",
    )
    if inside:
        return Finding(
            "fallback",
            FOUND,
            f"{inside} steps compiled inside the capture",
            evidence,
            None,
            (),
            (fix,),
            "TORCH_LOGS=recompiles names the guard",
        )
    if low is not None and high and low == 0:
        return Finding(
            "fallback",
            FOUND,
            "some steps launch a graph and others do not: they fell back to single launches",
            evidence,
            None,
            (),
            (fix,),
            "count graph launches per step",
        )
    return Finding("fallback", CLEAN, "every step launches the same way and none compiled", evidence)
