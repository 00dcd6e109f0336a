"""Units of sizes, bandwidths and rates can't be mixed: GB and GiB, bytes and bytes per second, dense and sparse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.errors import UsageError
from robot_perf.units import (
    GIB,
    format_bandwidth,
    format_bytes,
    format_flop_s,
    parse_bandwidth,
    parse_bytes,
    parse_flop_s,
)

amounts = st.floats(1e-3, 1e6).map(lambda v: float(f"{v:.6g}"))


@given(amounts)
def test_gb_and_gib_are_different_units(value: float) -> None:
    assert parse_bytes(f"{value} GiB") / parse_bytes(f"{value} GB") == pytest.approx(GIB / 1e9)
    assert parse_bytes(f"{value}TB") == pytest.approx(1000 * parse_bytes(f"{value} GB"))
    assert parse_bandwidth(f"{value} TB/s") == pytest.approx(1000 * parse_bandwidth(f"{value}GB/s"))


@given(amounts, st.sampled_from(["", "G", "g", "gb", "GB/s", "Gib", "GBytes", "T", "%"]))
def test_a_size_needs_one_of_its_units_spelled_out(value: float, unit: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_bytes(f"{value}{unit}")


@given(amounts, st.sampled_from(["", "GB", "GiB/s", "GBps", "Gbit/s", "TB"]))
def test_a_bandwidth_is_decimal_and_per_second(value: float, unit: str) -> None:
    with pytest.raises(UsageError, match="is not a bandwidth"):
        parse_bandwidth(f"{value} {unit}")


@given(amounts, st.sampled_from(["sparse", " sparse", "TFLOP/s sparse", "T SPARSE"]))
def test_a_sparse_rate_is_no_peak(value: float, unit: str) -> None:
    with pytest.raises(UsageError, match="sparse"):
        parse_flop_s(f"{value}{unit}")


@pytest.mark.parametrize(
    ("text", "value"),
    [("989", 989e12), ("989T", 989e12), ("0.989 PFLOP/s", 989e12), ("42.5TFLOPS", 42.5e12), ("85 TOPS", 85e12), ("5 FLOP/s", 5.0), ("1e3", 1e15)],
)  # fmt: skip
def test_rates(text: str, value: float) -> None:
    assert parse_flop_s(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "989e12", "0", "-1", "10 GB/s", "10 TB", "nan", "1e30"])
def test_no_rates(text: str) -> None:
    with pytest.raises(UsageError):
        parse_flop_s(text)


def test_sizes_are_printed_both_ways() -> None:
    assert format_bytes(16.06e9) == "16.06 GB (14.96 GiB)"


def test_bandwidths_and_rates_are_printed_in_people_s_units() -> None:
    assert [format_bandwidth(b) for b in (204.8e9, 3.35e12)] == ["204.8 GB/s", "3.35 TB/s"]
    assert [format_flop_s(f) for f in (989e12, 2.25e15, 62e9, 3.0)] == [
        "989 TFLOP/s",
        "2.25 PFLOP/s",
        "62 GFLOP/s",
        "3 FLOP/s",
    ]


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_one_message(text: str) -> None:
    for parse in (parse_bytes, parse_bandwidth, parse_flop_s):
        try:
            assert parse(text) >= 0
        except UsageError as error:
            assert str(error)
