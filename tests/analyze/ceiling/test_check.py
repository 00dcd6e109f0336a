"""Verdicts on rates: every published row, the rows that must keep their label, and no plain row above its ceiling."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import Any

import pytest

from robot_perf.analyze.ceiling.check import BANDS, judge_rate
from robot_perf.devices import find
from robot_perf.errors import UsageError


def number(text: str) -> float | None:
    return float(text) if text else None


def billions(text: str) -> float | None:
    return float(text) * 1e9 if text else None


@pytest.fixture(scope="module")
def rates(shared_dir: Path) -> list[dict[str, str]]:
    with (shared_dir / "data" / "measured_rates.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def judged(r: dict[str, str]) -> Any:
    return judge_rate(
        float(r["rate"]),
        step_bytes=billions(r["min_stream_gb"]),
        bandwidth_bytes_s=billions(r["bandwidth_gbs"]),
        batch=int(r["batch"]) if r["batch"] else None,
        accepted=number(r["accepted_per_step"]),
        speculative=r["flag"] == "speculative",
        policy=r["unit"] != "tok/s",
        weight_bits=number(r["weight_bits"]),
    )


def test_every_expected_verdict_comes_out(rates: list[dict[str, str]]) -> None:
    assert len(rates) == 180
    wrong = [(r["row_id"], judged(r).verdict, r["expected_verdict"]) for r in rates]
    assert [w for w in wrong if w[1] != w[2]] == []


def test_no_plain_row_exceeds_its_ceiling(rates: list[dict[str, str]]) -> None:
    plain = [r for r in rates if r["unit"] == "tok/s" and not r["flag"] and r["batch"] == "1" and r["fraction"]]
    assert len(plain) == 118
    for r in plain:
        verdict = judged(r)
        assert verdict.fraction is not None and verdict.fraction <= 1, r["row_id"]
        assert verdict.fraction == pytest.approx(float(r["fraction"]), abs=6e-4), r["row_id"]
        assert verdict.ceiling == pytest.approx(float(r["ceiling_tok_s"]), abs=0.06), r["row_id"]


def test_bandwidths_are_the_tables_and_absent_devices_are_refused(rates: list[dict[str, str]]) -> None:
    for r in rates:
        if r["in_device_table"] == "yes":
            assert (find(r["device"]).bandwidth_bytes_s or 0) / 1e9 == pytest.approx(float(r["bandwidth_gbs"] or 0))
        else:
            with pytest.raises(UsageError):
                find(r["device"])


def test_the_bands_are_the_rows_own(rates: list[dict[str, str]]) -> None:
    plain = [r for r in rates if r["unit"] == "tok/s" and not r["flag"] and r["batch"] == "1" and r["fraction"]]
    groups = {name: [] for _, name, _ in BANDS}
    for r in plain:
        if r["weight_bits"]:
            name = next(n for top, n, _ in BANDS if float(r["weight_bits"]) <= top)
            groups[name].append(judged(r).fraction)
    assert {n: len(g) for n, g in groups.items()} == {"4 to 5 bit": 93, "8 bit": 9, "BF16 / FP16": 15}
    for _, name, (low, high, median, best) in BANDS:
        quartiles = [statistics.quantiles(groups[name], n=4, method=m) for m in ("inclusive", "exclusive")]
        assert any(q[0] == pytest.approx(low, abs=0.011) for q in quartiles), name
        assert any(q[2] == pytest.approx(high, abs=0.011) for q in quartiles), name
        assert quartiles[0][1] == pytest.approx(median, abs=0.006) and max(groups[name]) == pytest.approx(
            best, abs=0.006
        )


THOR, ADA = 273e9, 1008e9


def test_rows_that_must_keep_their_label() -> None:
    eight = judge_rate(226.42, step_bytes=1.5e9, bandwidth_bytes_s=THOR, batch=8)
    assert eight.verdict == "aggregate" and "8 streams" in eight.text and "28.3 a stream" in eight.text
    assert judge_rate(61.01, step_bytes=1.5e9, bandwidth_bytes_s=THOR, batch=1).verdict == "ok"
    tile = judge_rate(18.52, step_bytes=14.14e9, bandwidth_bytes_s=THOR, batch=16)
    assert tile.verdict == "aggregate" and "1.16 a stream" in tile.text
    assert judge_rate(18.52, step_bytes=14.14e9, bandwidth_bytes_s=THOR, batch=1).fraction == pytest.approx(
        0.959, abs=1e-3
    )
    assert judge_rate(48.8, step_bytes=15.762e9, bandwidth_bytes_s=ADA, batch=1).verdict == "ok"
    mtp = judge_rate(88.6, step_bytes=15.7625e9, bandwidth_bytes_s=ADA, batch=1, speculative=True)
    assert mtp.verdict == "speculative" and mtp.fraction is None and f"{mtp.ceiling:.1f}" == "63.9"
    claim = judge_rate(280, step_bytes=14.22e9, bandwidth_bytes_s=3350e9, batch=None)
    assert claim.verdict == "above-ceiling" and f"{claim.ceiling:.1f}" == "235.6"
    slow = judge_rate(6.2, step_bytes=4.68e9, bandwidth_bytes_s=THOR, batch=1)
    assert slow.verdict == "suspect-low" and "GPU path" in slow.text and "11 %" in slow.text


def test_a_fraction_above_one_is_never_clamped() -> None:
    assert judge_rate(2000, step_bytes=1e9, bandwidth_bytes_s=1e12, batch=1).fraction == 2.0


@pytest.mark.parametrize(
    ("rate", "more", "verdict"),
    [
        (200, {}, "ok"), (199, {}, "suspect-low"), (1000, {}, "ok"), (1001, {}, "above-ceiling"), (500, {"batch": None}, "refuse"),
        (500, {"accepted": 2.0}, "speculative"), (500, {"step_bytes": None}, "not-checkable"),
        (500, {"bandwidth_bytes_s": None}, "not-checkable"), (500, {"policy": True}, "phase-wise"),
        (500, {"batch": 4, "bandwidth_bytes_s": None}, "not-checkable"),
    ],
)  # fmt: skip
def test_where_the_verdicts_change(rate: float, more: dict[str, Any], verdict: str) -> None:
    options: dict[str, Any] = {"step_bytes": 1e9, "bandwidth_bytes_s": 1e12, "batch": 1}
    assert judge_rate(rate, **(options | more)).verdict == verdict


def test_the_cache_counts_per_stream() -> None:
    one = judge_rate(400, step_bytes=1e9, bandwidth_bytes_s=1e12, batch=1, kv_bytes=1e9)
    assert one.ceiling == 500
    four = judge_rate(400, step_bytes=1e9, bandwidth_bytes_s=1e12, batch=4, kv_bytes=1e9)
    assert four.ceiling == 200 and four.fraction == 0.5


def test_the_band_is_said_for_the_weights() -> None:
    text = judge_rate(500, step_bytes=1e9, bandwidth_bytes_s=1e12, batch=1, weight_bits=4.9).text
    assert "4 to 5 bit rates 42 % to 65 %, best 80 %" in text
    assert "MoE" in judge_rate(500, step_bytes=1e9, bandwidth_bytes_s=1e12, batch=1, weight_bits=4, mixture=True).text
