"""One table over several bench reports: whole keys for a file, letters for a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robot_perf.analyze.bench.merge import Merged, MergedRow
from robot_perf.render.bench.remarks import rate_words
from robot_perf.render.bench.tables import Table, us
from robot_perf.run.bench_report import OK

__all__ = ["medians_table", "merged_table"]


def merged_table(merged: Merged) -> Table:
    """One table over devices: p50 by rate, the whole key in front and the report that each row is from."""
    key = ("policy", "backend", "device", "power mode", "clocks", "software", "report")
    head = (*key, *(f"{rate_words(r)} p50 µs" for r in merged.rates), "")
    body = []
    for row in merged.rows:
        notes = [] if row.status == OK else [f"{row.status}: {row.reason}"]
        notes += [f"{rate_words(rate)} {status}: {reason}" for rate, (status, reason) in row.unfit.items()]
        software = row.software or "unknown"
        where = (row.device, row.power_mode or "unknown", row.clocks or "unknown", software, row.source)
        body.append((row.policy, row.backend, *where, *_medians(row, merged.rates), "; ".join(notes)))
    return Table("All devices", head, tuple(body), left=(*range(len(key)), len(head) - 1), keys=2)


def medians_table(merged: Merged, letters: Mapping[str, str]) -> Table:
    """The same for a screen: rows with figures alone, a letter in place of the key. `letters` by the report's file."""
    head = ("policy", "backend", "on", *(rate_words(r) for r in merged.rates))
    rows = [r for r in merged.rows if r.status == OK]
    body = tuple((r.policy, r.backend, letters[r.source], *_medians(r, merged.rates)) for r in rows)
    return Table("All devices: p50 execution, µs", head, body, left=(0, 1, 2), keys=3)


def _medians(row: MergedRow, rates: Sequence[str]) -> list[str]:
    return [row.unfit[rate][0] if rate in row.unfit else us(row.p50_ns.get(rate)) for rate in rates]
