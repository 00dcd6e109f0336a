"""What utilisation_30.py prints and writes: the series of a window, a line a scenario, the table and its remarks."""

from __future__ import annotations

import statistics
from typing import Any

from utilisation_30_server import Server

from robot_perf.analyze.ceiling.launch import busy_fraction
from robot_perf.analyze.utilisation.numbers import cost_of_sampling, readings

CPU_MS = 28.0  # of planted host work a step


def series(server: Server, kept: Any, window: tuple[int, int], every_s: float) -> list[dict[str, Any]]:
    """What a dashboard would show: running, waiting, tokens/s and NVML's number, every `every_s` of the window."""
    low, high, width = *window, int(every_s * 1e9)
    found = []
    for at in range(low, high - width + 1, width):
        notes = [(r, w) for t, r, w in server.gauge if at <= t < at + width]
        tokens = sum(s.batch for s in server.steps if at <= s.tokens_ns < at + width)
        use = [s["gpu"].get("utilisation_pct") for s in kept["samples"] if s["gpu"] and at <= s["gpu"]["at_ns"] < at + width]  # fmt: skip
        found.append({
            "t_s": (at - low) / 1e9, "running": statistics.mean(r for r, _ in notes) if notes else None, "waiting": statistics.mean(w for _, w in notes) if notes else None,
            "tokens_per_s": tokens / every_s, "utilisation_pct": use[-1] if use else None,
        })  # fmt: skip
    return found


def table(document: dict[str, Any]) -> str:
    """The markdown report."""
    facts, rows = document["conditions"], document["scenarios"]
    head = ("scenario", "running", "waiting", "tokens/s", "step ms", "nvidia-smi %", "busy % (kernels)", "SM activity %", "DRAM %", "tensor %", "L", "λW", "L/λW", "rung named", "")  # fmt: skip
    lines = [
        "# The 30 % problem, made on purpose", "",
        f"{facts['device']}, torch {facts['torch']}, {facts['utc']}. A decoder of {facts['parameters'] / 1e9:.2f} B random parameters in {facts['dtype']}, {facts['size']['places']} places, attention over {facts['attention_span']} tokens of each.", "",
        f"`{facts['command']}`", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|",
    ]  # fmt: skip
    for r in rows:
        if "skipped" in r:
            lines.append(f"| {r['words']} | not run: {r['skipped']} |" + " |" * (len(head) - 2))
            continue
        n, law = r["numbers"], r["little"]
        cells = (
            r["words"], f"{law['running']:.1f}", f"{law['waiting']:.1f}", f"{r['tokens_per_s']:,.0f}", _cell(r["step_median_ns"], 1e-6, 2), _cell(n["utilisation_pct"]["mean"]), _cell(r["busy"]["all_work_pct"]),
            *(_cell(n[k]["mean"]) for k in ("sm_activity_pct", "dram_bandwidth_pct", "tensor_activity_pct")), f"{law['mean_in_system']:.2f}", f"{law['arrivals_hz'] * law['time_in_system_s']:.2f}",
            _cell(law["ratio"], 1, 3), r["named"] or "none", {True: "right", False: "WRONG", None: "not judged"}[r["right"]],
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"- **{r['words']}**: {r['ladder']['headline']}" for r in rows if "ladder" in r), "", *document["remarks"], ""]  # fmt: skip
    return "\n".join(lines)


def _cell(value: float | None, scale: float = 1.0, digits: int = 1) -> str:
    return "–" if value is None else f"{value * scale:.{digits}f}"


def remarks(rows: list[dict[str, Any]], kept: Any) -> list[str]:
    """The arithmetic of the 30 %, and what a '–' stands for."""
    by_name = {r["name"]: r for r in rows if "skipped" not in r}
    found = []
    if {"closed-full", "cpu-28ms"} <= by_name.keys():
        gpu_ns = by_name["closed-full"]["to_tokens_median_ns"]
        predicted = busy_fraction(gpu_ns, CPU_MS * 1e6)
        seen = by_name["cpu-28ms"]["numbers"]["utilisation_pct"]["mean"]
        busy = by_name["cpu-28ms"]["busy"]["all_work_pct"]
        found.append(f"Arithmetic: {gpu_ns / 1e6:.2f} ms to the tokens and {CPU_MS:g} ms of CPU work in turn make {100 * predicted.busy_fraction:.1f} %; nvidia-smi's number was {_cell(seen)} %, the kernels' {_cell(busy)} %.")  # fmt: skip
    unread: dict[str, list[str]] = {}
    for r in readings(kept, 0, 2**63 - 1):
        if r.reason:
            unread.setdefault(r.reason, []).append(r.label)
    found += [f"can't answer {', '.join(labels)}: {why}" for why, labels in unread.items()]
    found.append("Little's law: L is the server's own gauge over the window, λ and W the clients' stamps of the requests sent inside it, followed to their end; requests across an edge are in one count only.")  # fmt: skip
    cost = cost_of_sampling(kept)
    if cost["median_ns"] is not None:
        found.append(f"A look of the sampler took {cost['median_ns'] / 1e6:.2f} ms (median), {cost['longest_ns'] / 1e6:.2f} ms (longest), every {cost['every_s']:g} s.")  # fmt: skip
    return found


def tell(row: dict[str, Any], at_s: float) -> None:
    """One line a scenario, while it goes on."""
    if "skipped" in row:
        print(f"{at_s:6.1f} s  {row['name']:<12} not run: {row['skipped']}", flush=True)
        return
    law, smi = row["little"], row["numbers"]["utilisation_pct"]["mean"]
    print(
        f"{at_s:6.1f} s  {row['name']:<12} running {law['running']:5.1f} waiting {law['waiting']:5.1f} tokens/s {row['tokens_per_s']:8,.0f} step {_cell(row['step_median_ns'], 1e-6, 2)} ms"
        f" smi {_cell(smi)} % busy {_cell(row['busy']['all_work_pct'])} % L/λW {_cell(law['ratio'], 1, 3)} named {row['named']!r} right {row['right']}",
        flush=True,
    )
