"""CSV of ncu and nsys stats: locales, units, short rows, console noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.errors import ProfileError
from robot_perf.profiles import load
from robot_perf.profiles.ncu import importer as ncu_csv
from robot_perf.profiles.ncu.numbers import both_readings, examine, parse, unit_scale, value_of, votes
from robot_perf.profiles.nsys import stats as nsys_stats

HEADER = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'


def styled(number: float, style: str) -> str:
    """A number as ncu prints it in a locale: at most two decimals, integers grouped."""
    text = f"{number:,.2f}" if number != int(number) else f"{int(number):,}"
    if style == "C":
        return text.replace(",", "")
    return text if style == "en" else text.replace(",", "_").replace(".", ",").replace("_", ".")


def details(rows: list[tuple[str, str, str, str]], style: str = "", identity: str = "0") -> str:
    start = f'"{identity}","1","p","host","void k<int>(int)","1","7","(128, 1, 1)","(200, 1, 1)","0","9.0"'
    return "\n".join([HEADER, *(f'{start},"{s}","{m}","{u}","{v}"' for s, m, u, v in rows)])


SOL = "GPU Speed Of Light Throughput"


@given(
    st.lists(
        st.one_of(st.integers(0, 10**9).map(float), st.integers(0, 10**7).map(lambda n: n / 100)),
        min_size=3,
        max_size=3,
    ),
    st.sampled_from(["C", "en", "de"]),
)
def test_numbers_in_three_locales_give_one_table(values: list[float], style: str) -> None:
    rows = [(SOL, "Compute (SM) Throughput", "%", styled(12.34, style)), (SOL, "Duration", "ns", styled(values[0], style)), (SOL, "Memory Throughput", "%", styled(values[1], style)), ("Launch Statistics", "Waves Per SM", "", styled(values[2], style))]  # fmt: skip
    table = ncu_csv.read(details(rows), "t.csv").kernels
    assert int(table["dur_ns"][0]) == round(values[0])
    assert float(table["mem_pct"][0]) == values[1]
    assert float(table["waves"][0]) == values[2]


@pytest.mark.parametrize(
    ("cell", "decimal", "value"),
    [("31,03", ",", None), ("345.14", ".", None), ("4.205.892.722.236,21", ",", None), ("21,058,944", ".", None), ("0.127072", "", 0.127072), ("245752.000000", "", 245752.0), ("0,5", ",", None), ("4587", "", 4587.0), ("1 234 567,8", ",", None), ("1’234.5", ".", None)],
)  # fmt: skip
def test_cells_that_prove_their_style(cell: str, decimal: str, value: float | None) -> None:
    reading = examine(cell)
    assert reading is not None and not reading.ambiguous
    assert (reading.decimal, reading.value) == (decimal, value)


def test_one_separator_before_three_digits_is_ambiguous() -> None:
    assert both_readings("127.072") == (127.072, 127072.0)
    assert value_of("127.072", set(), set())[1] is True
    assert value_of("127.072", {","}, set()) == (127072.0, False)
    assert value_of("127.072", set(), {"."}) == (127.072, False)
    assert value_of("127.072", set(), {".", ","})[1] is True


@pytest.mark.parametrize("cell", ["n/a", "no data", "", "(128, 1, 1)", "CachePreferNone", "1.2.3,4,5x", "--", "."])
def test_cells_that_are_no_numbers(cell: str) -> None:
    assert examine(cell) is None


def test_groups_that_are_not_of_three_digits_are_no_number() -> None:
    assert np.isnan(parse("1.23.456,5", ",")) and np.isnan(parse("1,23,456.5", "."))


@pytest.mark.parametrize(
    ("unit", "family", "scale"),
    [("nsecond", "time", 1), ("ns", "time", 1), ("usecond", "time", 1e3), ("us", "time", 1e3), ("msecond", "time", 1e6), ("ms", "time", 1e6), ("second", "time", 1e9), ("s", "time", 1e9), ("Ghz", "hz", 1e9), ("hz", "hz", 1), ("cycle/nsecond", "hz", 1e9), ("cycle/usecond", "hz", 1e6), ("cycle/second", "hz", 1), ("Mbyte", "bytes", 1e6), ("Kbyte/block", "bytes", 1e3), ("Tbyte/s", "bytes", 1e12), ("Gbyte/second", "bytes", 1e9), ("byte", "bytes", 1), ("register/thread", "count", 1), ("parsec", "time", None), ("Mbyte/fortnight", "bytes", None), ("", "time", None)],
)  # fmt: skip
def test_unit_spellings(unit: str, family: str, scale: float | None) -> None:
    assert unit_scale(unit, family) == scale


def test_a_duration_that_is_ambiguous_alone_is_decided_by_cycles_and_frequency() -> None:
    rows = [
        (SOL, "Duration", "ns", "127.072"),
        (SOL, "Elapsed Cycles", "cycle", "245752"),
        (SOL, "SM Frequency", "hz", "1929092365"),
    ]
    assert int(ncu_csv.read(details(rows), "t.csv").kernels["dur_ns"][0]) == 127_072


def test_a_number_that_stays_ambiguous_is_null_and_said() -> None:
    profile = ncu_csv.read(details([(SOL, "Duration", "ns", "127.072")]), "t.csv")
    assert any("ambiguous number: export with LC_ALL=C" in n for n in profile.header.notes)
    assert int(profile.kernels["dur_ns"][0]) < 0


def test_an_unknown_unit_keeps_the_value_out_and_is_listed() -> None:
    profile = ncu_csv.read(
        details([(SOL, "Duration", "fortnight", "1.5"), (SOL, "Compute (SM) Throughput", "%", "12.34")]), "t.csv"
    )
    assert int(profile.kernels["dur_ns"][0]) < 0
    assert any("fortnight" in n for n in profile.header.notes)


def test_one_name_in_two_sections_is_two_metrics() -> None:
    rows = [
        (SOL, "Memory Throughput", "%", "61.83"),
        ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "345.14"),
    ]
    table = ncu_csv.read(details(rows), "t.csv").kernels
    assert (float(table["mem_pct"][0]), float(table["dram_bytes_s"][0])) == (61.83, pytest.approx(345.14e9))


def test_lines_of_the_program_and_of_ncu_are_no_rows() -> None:
    text = (
        "hello from the program\n==WARNING== Note: Running with uncontrolled GPU caches.\n"
        + details([(SOL, "Compute (SM) Throughput", "%", "12.34")])
        + '\n==PROF== done\nbye, "world"\n'
    )
    profile = ncu_csv.read(text, "t.csv")
    assert (len(profile.kernels), profile.header.cache_control) == (1, "none")


@pytest.mark.parametrize("columns", [12, 15, 20, 21, 22])
def test_columns_are_found_by_name_and_not_by_count(columns: int) -> None:
    names = [
        "ID",
        "Kernel Name",
        "Block Size",
        "Grid Size",
        "Device",
        "Section Name",
        "Metric Name",
        "Metric Unit",
        "Metric Value",
        *(f"Extra {i}" for i in range(columns - 9)),
    ]
    cells = ["0", "k", "(1, 1, 1)", "(2, 1, 1)", "0", SOL, "Compute (SM) Throughput", "%", "12.34"]
    text = "\n".join(",".join(f'"{c}"' for c in line) for line in (names, cells))
    assert float(ncu_csv.read(text, "t.csv").kernels["sm_pct"][0]) == 12.34


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER, "without a kernel row"), (HEADER + '\n"0","1"', "fields"), (HEADER + '\n"0","1","p', "not CSV"), ('"ID","x"\n"0","1"', "unknown page"),
        ('"ID","Kernel Name","a"\n"","",""\n"0","k"', "fields"), ("==ERROR== ERR_NVGPUCTRPERM - no permission", "SYS_ADMIN"), ("==ERROR== something", "ncu failed"),
    ],
)  # fmt: skip
def test_broken_ncu_files_end_in_one_message(text: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        ncu_csv.read(text, "t.csv")


def test_host_names_of_the_csv_are_not_kept() -> None:
    profile = ncu_csv.read(
        details([(SOL, "Compute (SM) Throughput", "%", "12.34")]).replace('"host"', '"canary-host"'), "t.csv"
    )
    assert "canary" not in repr(profile.header) + repr(profile.kernels.strings)


def test_votes_of_a_mixed_file_do_not_spoil_each_other() -> None:
    assert votes(["31,03", "245752.000000", "0.127072"]) == {","}


KERN = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n100.0,10,2,5.0,5.0,4,6,1.0,k\n"


@pytest.mark.parametrize(("unit", "scale"), [("ns", 1), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
def test_units_of_stats_stand_in_the_header(unit: str, scale: float) -> None:
    table = nsys_stats.read(KERN.replace("(ns)", f"({unit})"), "t.csv").kernels
    assert float(table["total_ns"][0]) == 10 * scale and int(table["count"][0]) == 2


def test_older_column_names() -> None:
    text = KERN.replace("Time (%)", "Time(%)").replace("Avg (ns)", "Average (ns)").replace("Med (ns)", "Median (ns)")
    table = nsys_stats.read(text, "t.csv").kernels
    assert (float(table["dur_ns"][0]), float(table["med_ns"][0])) == (5, 5)


def test_only_skipped_reports_keep_their_text(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("Processing [x.sqlite] with [/opt/y.py]...\nSKIPPED: x.sqlite does not contain CUDA kernel data.\n")
    assert load(path).header.notes == ("SKIPPED: x.sqlite does not contain CUDA kernel data.",)


@pytest.mark.parametrize("cell", ["abc", "1e999", "NaN", "inf", "1,5", "9" * 30])
def test_a_stats_cell_that_is_no_number_is_one_message(cell: str) -> None:
    with pytest.raises(ProfileError):
        nsys_stats.read(KERN.replace(",2,5.0", f',"{cell}",5.0'), "t.csv")


def test_a_cut_stats_row_is_one_message() -> None:
    with pytest.raises(ProfileError, match="fields"):
        nsys_stats.read(KERN + "50.0,5,1", "t.csv")


def test_two_summaries_of_kernels_do_not_count_twice() -> None:
    profile = nsys_stats.read(KERN + "\n" + KERN, "t.csv")
    assert profile.kernel_count == 2 and any("count work twice" in n for n in profile.header.notes)


def test_powershell_redirection_writes_utf16(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(KERN.encode("utf-16"))
    assert load(path).kernel_count == 2
