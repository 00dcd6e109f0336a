"""What the node says of one block once it has ended: written into its map outside the loop, read by the keeper."""

from __future__ import annotations

from typing import Any

from robot_perf.measure.node.blocks import Block
from robot_perf.measure.processes import worker_parts as parts


def block_report(base: dict[str, Any], block: Block, ended: str | None, node: dict[str, Any]) -> dict[str, Any]:
    """The report of one block, written outside the loop: usage, collections, what spoils it, how it ended.

    `node` is what the node adds: counts of topics, of steps that no map recorded, the clock.
    """
    before, after = block.facts["before"], block.facts["after"]
    invalid, notes = list(base["invalid"]), list(base["notes"])
    for name, count in after.get("events", {}).items():
        if count != before.get("events", {}).get(name, 0):
            invalid.append(f"{count - before.get('events', {}).get(name, 0)} {name} inside the measured window")
    bad = after.get("nonfinite", 0) - before.get("nonfinite", 0)
    if bad:
        invalid.append(
            f"the action was NaN or infinite in {bad} steps, first in step {after['first_nonfinite']}; no such command was published"
        )
    pending = after.get("pending", 0) - before.get("pending", 0)
    if pending:
        invalid.append(f"device work was still pending when {pending} steps handed over their action")
    if lost := block.facts.get("lost_before", 0):
        releases = lost * int(block.stepmap.request["loop"]["steps"])
        notes.append(
            f"a step ran longer than a whole block: the {lost} {'block' if lost == 1 else 'blocks'} before this one have no Run,"
            f" and their {releases:,} releases, all missed, are in no verdict"
        )
    report = {
        **base,
        "invalid": invalid,
        "notes": notes,
        "block": block.number,
        "usage": {k: after[k] - before[k] for k in ("window_ns", "process_cpu_ns", "loop_thread_cpu_ns")},
        "gc": {
            "collections": after["gc_collections"] - before["gc_collections"],
            "ns": after["gc_ns"] - before["gc_ns"],
        },
        "node": node,
        "max_rss_bytes": parts.peak_resident_bytes(),
    }
    if "failure" in block.facts:
        report["failure"] = block.facts["failure"]
    if ended:
        report["ended"] = ended
    return report
