"""Ceilings in words: a table per device and mode, what it assumes, what still fits a rate, a measurement beside its
bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robot_perf.analyze.ceiling.meets import CeilingShare
from robot_perf.render.grid import columns_that_fit, grid
from robot_perf.render.hardware.roofline import share
from robot_perf.render.lines import clean, fit
from robot_perf.units import format_bandwidth, format_duration, format_flop_s

__all__ = ["ceiling_text", "share_text"]

UNKNOWN = "unknown"


def ceiling_text(document: Mapping[str, Any], *, rate_hz: float | None = None, width: int | None = None) -> str:
    """The answer of `tasks.ceiling.document` for a person, on a terminal of `width` columns; None has no limit."""
    rows = document["rows"]
    single = document["kind"] == "policy"
    table = _policy_table(rows, rate_hz, width) if single else _decoder_table(rows, document["batch"], rate_hz, width)
    lines = [clean(document["model"]), table]
    if single and len({r["device"] for r in rows}) == 1:
        lines += ["", _phases(rows[0])]
    lines.append(f"assumes    {clean('; '.join(document['assumptions']))}")
    lines += [f"note       {clean(n)}" for n in document["notes"]]
    lines += _row_notes(rows)
    lines += _chunks(rows)
    lines += _documented(rows)
    lines += _measured(rows)
    if rate_hz is not None and len({r["device"] for r in rows}) == 1:
        lines += _limits(rows[0], rate_hz)
    lines.append(f"next       {_next(document, rate_hz)}")
    return fit("\n".join(lines), width)


def _next(document: Mapping[str, Any], rate_hz: float | None) -> str:
    if any("embedding included" in a for a in document["assumptions"]):
        return "add --config FILE or --model NAME for the exact count of streamed bytes"
    if rate_hz is None:
        return "--rate HZ says whether it fits a control rate, and what is the most that does"
    return "--measured VALUE, or --run RUN.parquet, puts a measurement beside its bound"


def _decoder_table(rows: Sequence[Mapping[str, Any]], batch: int, rate_hz: float | None, width: int | None) -> str:
    head = ["device", "mode", "bound tok/s", "expected", "step", "limited by", "fits memory"]
    if batch > 1:
        head.insert(3, "per stream")
    if rate_hz is not None:
        head.append(f"at {rate_hz:g} Hz")
    body = []
    for r in rows:
        cells = [r["device"], r["power_mode"] or "-", _number(r["tokens_per_s"]), _number(r["expected_tokens_per_s"])]
        if batch > 1:
            cells.insert(3, _number(r.get("tokens_per_s_per_stream")))
        cells += [_ms(r["step_ms"]), r["limited_by"], _yes(r["fits_memory"])]
        if rate_hz is not None:
            cells.append(_at_rate(r.get("at_rate")))
        body.append(cells)
    return _beside(head, body, (0, 1, len(head) - 1) if rate_hz is not None else (0, 1), width)


def _policy_table(rows: Sequence[Mapping[str, Any]], rate_hz: float | None, width: int | None) -> str:
    head = ["device", "mode", "floor", "bytes only", "chunks/s", "actions/s", "limited by", "fits memory"]
    if rate_hz is not None:
        head.append(f"at {rate_hz:g} Hz")
    body = []
    for r in rows:
        floor = ("≥ " if r.get("at_least") else "") + _ms(r["step_ms"])
        cells = [r["device"], r["power_mode"] or "-", floor, _ms(r.get("bytes_only_ms"))]
        cells += [_number(r.get("replan_hz")), _number(r.get("action_hz")), r["limited_by"], _yes(r["fits_memory"])]
        if rate_hz is not None:
            cells.append(_at_rate(r.get("at_rate")))
        body.append(cells)
    return _beside(head, body, (0, 1, len(head) - 1) if rate_hz is not None else (0, 1), width)


def _beside(head: Sequence[str], body: Sequence[Sequence[str]], left: Sequence[int], width: int | None) -> str:
    """The table; in parts that each name device and mode again where the terminal is too narrow for one."""
    parts = []
    for chosen in columns_that_fit([head, *body], range(len(head)), 2, width):
        at_left = [i for i, column in enumerate(chosen) if column in left]
        parts.append(grid([head[i] for i in chosen], [[row[i] for i in chosen] for row in body], left=at_left))
    return "\n\n".join(parts)


def _phases(row: Mapping[str, Any]) -> str:
    body = [
        (
            "  " + p["name"],
            f"{p['repeats']} x",
            f"{p['tokens']:,}" if p["tokens"] else UNKNOWN,
            _ms(p["memory_ms"]),
            _ms(p["compute_ms"]),
            _ms(p["ms"]),
            p["limited_by"],
        )
        for p in row.get("phases", ())
    ]
    mode = f" {row['power_mode']}" if row["power_mode"] else ""
    return grid((f"  phases on {row['device']}{mode}", "", "tokens", "memory", "compute", "at least", "bound by"), body)


def _at_rate(check: Mapping[str, Any] | None) -> str:
    if check is None:
        return UNKNOWN
    if not check["fits"]:
        return f"no: needs {check['needed_ms'] / check['budget_ms']:.2g} x the period"
    headroom = f"{100 * check['headroom']:.0f} % headroom"
    tokens = check["tokens_in_budget"]
    if tokens is None:
        return f"yes: {headroom}"
    return f"yes: up to {tokens:,} token{'s' if tokens != 1 else ''} an action, {headroom} with {check['tokens_asked']}"


def _row_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes of the rows, those that several devices share said once."""
    by_note: dict[str, list[str]] = {}
    for r in rows:
        for note in [*r["notes"], *(f"the floor leaves out: {m}" for m in r.get("at_least", ()))]:
            by_note.setdefault(clean(note), []).append(r["device"])
    lines = []
    for note, devices in by_note.items():
        names = list(dict.fromkeys(devices))
        where = (
            f"{', '.join(names)}: " if len(rows) > 1 and len(names) <= 3 and not note.startswith(tuple(names)) else ""
        )
        lines.append(f"note       {where}{note}{f' ({len(names)} devices)' if len(names) > 3 else ''}")
    return lines


def _chunks(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a decoder's action chunk costs: how often it can replan, how many actions that is per second."""
    lines = []
    for r in rows:
        chunk = r.get("chunk")
        if chunk is not None:
            where = f"{r['device']}{' ' + r['power_mode'] if r['power_mode'] else ''}"
            lines.append(
                f"chunk      {where}: {chunk['tokens']} decode reads, prefill left out: {_ms(chunk['chunk_ms'])}; replans at "
                f"{_number(chunk['replan_hz'])} Hz, acts at {_number(chunk['action_hz'])} Hz ({chunk['executed']} executed)"
            )
    return lines


def _documented(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for r in rows:
        if r["power_mode"] not in (None, "MAXN"):
            continue
        for item in r.get("documented", ()):
            factor = item["times_the_floor"]
            cause = "; look for the cause (launches, transfers, host time) before buying hardware" if factor > 3 else ""
            verb = "faster than the floor: check it" if factor < 1 else f"{factor:.2g} x the floor"
            lines.append(f"reported   {r['device']}: {item['ms']:g} ms, {clean(item['what'])}: {verb}{cause}")
    return lines


def _measured(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for r in rows:
        m = r.get("measured")
        if m is None:
            continue
        where = f"{r['device']}{' ' + r['power_mode'] if r['power_mode'] else ''}"
        if m["verdict"] == "phase-wise" and m.get("fraction") is not None:
            over = " (faster than the floor: wrong device, tokens, steps or views?)" if m["fraction"] > 1 else ""
            lines.append(f"measured   {where}: the floor is {share(m['fraction'])} of it{over}")
        else:
            lines.append(f"measured   {where}: {m['verdict']}: {m['text']}")
    return lines


def _limits(row: Mapping[str, Any], rate_hz: float) -> list[str]:
    return [f"fits       at {rate_hz:g} Hz: {clean(item['text'])}" for item in row.get("largest_that_fits", ())]


def share_text(s: CeilingShare) -> str:
    """A measurement beside its ceiling: the share first, then rates, then what the share may mean."""
    where = f"{s.device}{f' {s.power_mode}' if s.power_mode else ''}"
    if s.share is None or s.bound_ns is None:
        head = f"{clean(s.name)} on {where}: no bound to compare {format_duration(s.measured_ns)} ({s.measured}) with"
    else:
        head = (
            f"{clean(s.name)} on {where}: {share(s.share)} of the ceiling ({s.limited_by}): "
            f"{format_duration(s.bound_ns)} of {format_duration(s.measured_ns)} ({s.measured})"
        )
    lines = [head]
    if s.achieved_bytes_s is not None:
        parts = [
            f"{share(s.bandwidth_share)} of spec" if s.bandwidth_share is not None else "from cache, no share of spec"
        ]
        parts += [f"{share(s.probe_share)} of the probe"] if s.probe_share is not None else []
        lines.append(f"  bytes      {format_bandwidth(s.achieved_bytes_s)}: {', '.join(parts)}")
    if s.achieved_flop_s is not None:
        of_peak = f": {share(s.peak_share)} of the dense peak" if s.peak_share is not None else ""
        lines.append(f"  arithmetic {format_flop_s(s.achieved_flop_s)}{of_peak}")
    flags = {"above": "above 100 %", "low": "under 20 %"}
    if s.flag in flags:
        lines.append(f"  {flags[s.flag]}, likely reasons:")
        lines += [f"    - {r}" for r in s.reasons]
    lines += [f"  note       {clean(n)}" for n in s.notes]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ms(value: float | None) -> str:
    return UNKNOWN if value is None else format_duration(value * 1e6)


def _yes(value: bool | None) -> str:
    return UNKNOWN if value is None else "yes" if value else "no"
