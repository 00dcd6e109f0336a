"""The device table: schema, exact look-up, rules D1 to D10, and the pairs that a wrong match confuses."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from robot_perf.devices import find, matches, names, normalise, table
from robot_perf.devices.nvpmodel import emc_bandwidth
from robot_perf.devices.schema import CLASSES, DeviceRow, parse_row, recompute
from robot_perf.devices.table import read_rows
from robot_perf.errors import UsageError
from robot_perf.units import GIB

ROWS = [(c, r) for c in CLASSES for r in read_rows(c)]


def test_the_table_holds_every_class() -> None:
    assert len(table()) == 70
    assert {d.device_class for d in table()} == set(CLASSES)
    assert len(set(names())) == 70


@pytest.mark.parametrize(("device_class", "row"), ROWS, ids=[r.name for _, r in ROWS])
def test_every_number_has_a_source(device_class: str, row: DeviceRow) -> None:
    device = find(row.name)
    present = {"bandwidth_gb_s": device.bandwidth_bytes_s, "l2_mib": device.l2_bytes, "sm_count": device.sm_count}
    present |= {"memory_gb": device.memory_gb, "power_w": device.power_max_w, **device.peaks}
    for field, value in present.items():
        if value is not None:
            assert device.sources[field] or device.derived[field], field
            assert value > 0
    assert row.source.startswith("http") or device.sources[next(iter(device.sources))].startswith("http")
    assert all(m.bandwidth_bytes_s > 0 for m in device.modes)
    assert not device.modes or (device.modes_source or "").startswith("https://docs.nvidia.com/jetson/")


@pytest.mark.parametrize(
    ("row", "field"), [(r, f) for _, r in ROWS for f in r.derived], ids=lambda v: getattr(v, "name", v)
)
def test_every_derived_cell_recomputes(row: DeviceRow, field: str) -> None:
    cell = row.bandwidth_gb_s if field == "bandwidth_gb_s" else row.peaks[field]  # type: ignore[index]
    assert cell is not None
    assert recompute(row, field) == pytest.approx(cell, abs=0.6 * _last_place(cell))


def _last_place(value: float) -> float:
    """The unit of the last printed digit: 0.1 of 42.5, 1 of 33."""
    text = repr(value).rstrip("0").rstrip(".")
    return 10.0 ** -(len(text.split(".")[1]) if "." in text else 0)


def test_ridge_points() -> None:
    ridges = {
        "H100 SXM": 295.2, "H200 SXM": 206.0, "Jetson AGX Orin 64GB": 207.5, "GeForce RTX 4090": 163.9, "L4": 403.3,
        "Tesla T4": 203.1, "Jetson AGX Thor T5000": 946.9, "A100 80GB SXM4": 153.0, "GeForce RTX 5090": 116.9,
    }  # fmt: skip
    for name, ridge in ridges.items():
        d = find(name)
        peak = d.peaks.get("bf16") or d.peaks["fp16"]
        assert peak / (d.bandwidth_bytes_s or 0) == pytest.approx(ridge, abs=0.06), name


# D1
@pytest.mark.parametrize(
    ("name", "dtype", "dense", "sparse"),
    [
        ("H100 SXM", "bf16", 989, 1979), ("H100 PCIe", "bf16", 756, 1513), ("L4", "bf16", 121, 242), ("L4", "fp8", 242, 485),
        ("RTX A6000", "fp16", 154.85, 309.7), ("RTX A4000", "bf16", 76.7, 153.4), ("A100 80GB SXM4", "bf16", 312, 624),
    ],
)  # fmt: skip
def test_peaks_are_dense_and_sparse_is_marked_not_used(name: str, dtype: str, dense: float, sparse: float) -> None:
    device = find(name)
    assert device.peaks[dtype] == dense * 1e12
    assert device.not_used[f"{dtype} sparse"] == sparse * 1e12
    assert all(v < max(device.not_used.values()) for v in (device.peaks[dtype],))


# D2
def test_jetson_rows_are_the_gpu_alone() -> None:
    device = find("Jetson AGX Orin 64GB")
    assert device.peaks["int8"] == 85e12 and device.peaks["fp16"] == 42.5e12
    assert device.not_used["int8 sparse"] == 170e12
    assert device.not_used["int8 sparse of the module with DLAs"] == 275e12  # 170 + 105 of the DLAs


# D4
def test_geforce_and_professional_ratios() -> None:
    for device in table():
        if device.name.startswith("GeForce") and "bf16" in device.peaks:
            assert device.peaks["bf16"] / device.peaks["fp32"] == pytest.approx(2, rel=0.005), device.name
            assert device.peaks["int8"] / device.peaks["fp32"] == pytest.approx(8, rel=0.006), device.name
            for dtype, ratio in (("fp8", 4), ("fp4", 16)):
                if dtype in device.peaks:
                    assert device.peaks[dtype] / device.peaks["fp32"] == pytest.approx(ratio, rel=0.002), device.name
    for name in ("RTX A2000 12GB", "RTX A4000", "RTX A6000", "RTX 4000 Ada Generation", "RTX 6000 Ada Generation"):
        d = find(name)
        assert d.peaks["bf16"] / d.peaks["fp32"] == pytest.approx(4, rel=0.005), name
    d = find("GeForce RTX 4090")
    assert [d.peaks[t] / 1e12 for t in ("bf16", "fp8", "int8")] == [165.2, 330.3, 660.6]
    d = find("GeForce RTX 5090")
    assert [d.peaks[t] / 1e12 for t in ("bf16", "fp8", "fp4")] == [209.5, 419, 1676]
    assert find("L40").peaks["bf16"] == 181e12  # the rule does not hold here, so it filled no cell
    assert not find("L40").derived


# D5
def test_orin_tensor_rate() -> None:
    assert pytest.approx(42.6, abs=0.05) == 64 * 512 * 1.3 / 1000
    assert find("Jetson AGX Orin 64GB").peaks["bf16"] / 1e12 == pytest.approx(42.6, abs=0.15)


# D8
CONFUSABLE = [
    ("NVIDIA A10", "A10"), ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"), ("NVIDIA L4", "L4"), ("NVIDIA L40", "L40"),
    ("NVIDIA L40S", "L40S"), ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
    ("NVIDIA GeForce RTX 3090 Ti", "GeForce RTX 3090 Ti"), ("NVIDIA GeForce RTX 4070", "GeForce RTX 4070"),
    ("NVIDIA GeForce RTX 4070 Ti", "GeForce RTX 4070 Ti"), ("NVIDIA A100-SXM4-40GB", "A100 40GB SXM4"),
    ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM4"), ("NVIDIA H100 PCIe", "H100 PCIe"), ("NVIDIA H100 NVL", "H100 NVL"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA GH200 480GB", "GH200 96GB"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell Workstation"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server"),
]  # fmt: skip


@pytest.mark.parametrize(("runtime", "name"), CONFUSABLE)
def test_names_inside_other_names_find_their_own_row(runtime: str, name: str) -> None:
    assert find(runtime).name == name
    assert find(f"  {runtime.upper().replace(' ', '   ')} ").name == name


@pytest.mark.parametrize(
    ("name", "gib", "found", "gb_s"),
    [
        ("NVIDIA GeForce RTX 3060", 11.76, "GeForce RTX 3060 12GB", 360),
        ("NVIDIA GeForce RTX 3060", 7.8, "GeForce RTX 3060 8GB", 240),
        ("NVIDIA GeForce RTX 3080", 9.77, "GeForce RTX 3080 10GB", 760.3),
        ("NVIDIA GeForce RTX 3080", 11.76, "GeForce RTX 3080 12GB", 912.4),
        ("NVIDIA H200", 140.4, "H200 SXM", 4800),
        ("NVIDIA GH200 480GB", 95.6, "GH200 96GB", 4000),
    ],
)
def test_one_name_with_two_memories(name: str, gib: float, found: str, gb_s: float) -> None:
    device = find(name, gib * GIB)
    assert device.name == found
    assert (device.bandwidth_bytes_s or 0) / 1e9 == pytest.approx(gb_s)


def test_a_shared_name_without_memory_is_refused_with_its_candidates() -> None:
    with pytest.raises(UsageError, match="GeForce RTX 3060 12GB or GeForce RTX 3060 8GB"):
        find("NVIDIA GeForce RTX 3060")
    assert len(matches("Orin")) == 11


def test_a_slice_of_a_gpu_is_not_the_gpu() -> None:
    with pytest.raises(UsageError, match=r"17\.5 GiB is not in the device table"):
        find("NVIDIA H200", 17.5 * GIB)


@pytest.mark.parametrize(
    "name",
    ["B300", "H20", "IGX Orin 64GB", "Jetson Orin (unspecified)", "NVIDIA H100", "l40s x", "RTX 3090", "H100SXM", ""],
)
def test_unknown_names_are_refused_with_candidates_and_the_way_out(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(name)
    text = str(caught.value)
    assert "--bandwidth-gb-s" in text and "--peak bf16=" in text and "devices probe" in text


def test_normalising_is_case_blanks_and_the_leading_maker() -> None:
    assert normalise("  NVIDIA   H100  PCIe ") == "h100 pcie"
    assert normalise("NVIDIA") == "nvidia"
    assert normalise("My NVIDIA H100") == "my nvidia h100"


# D9
def test_lpddr_bandwidth_follows_emc() -> None:
    known = [(3199, 256, 204.7), (3199, 128, 102.4), (2133, 128, 68.3), (2133, 256, 136.5), (4266, 256, 273.0)]
    for mhz, bits, gb_s in known:
        assert emc_bandwidth(mhz * 1e6, bits) / 1e9 == pytest.approx(gb_s, abs=0.06)
    for device in table():
        for mode in device.modes:
            assert emc_bandwidth(mode.emc_hz, mode.bus_bits) == pytest.approx(mode.bandwidth_bytes_s, rel=0.002), (
                device.name
            )


def test_unknown_stays_unknown() -> None:
    assert find("Jetson AGX Orin Industrial").bandwidth_bytes_s is None
    assert set(find("GB10 (DGX Spark)").peaks) == {"fp4", "fp32"} and find("GB10 (DGX Spark)").l2_bytes is None
    assert set(find("L20").peaks) == {"fp32"}
    assert find("GH200 96GB").power_max_w is None
    assert find("thor-t4000").l2_bytes is None
    assert "int8" not in find("xavier-nx-8gb").peaks


@pytest.mark.parametrize(
    "change",
    [
        {"l2_mb": 4}, {"bandwidth_gib_s": 100}, {"memory_gib": 8}, {"peaks": {"bf16_sparse": 100}}, {"peaks": {"bf16": -1}},
        {"bandwidth_gb_s": 0}, {"peaks": {"tf32": 156}}, {"flash": "turbo"}, {"source": None},
    ],
)  # fmt: skip
def test_a_row_in_the_wrong_unit_or_of_a_sparse_peak_is_refused(change: dict[str, object]) -> None:
    good = {"name": "X", "memory_type": "HBM3", "unified_memory": False, "source": "https://example.org"}
    parse_row(good, where="test")
    with pytest.raises(UsageError, match="test: X"):
        parse_row(good | change, where="test")


def test_the_table_equals_the_facts_it_was_made_from(shared_dir: Path) -> None:
    with (shared_dir / "data" / "devices.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [r["name"] for r in rows if r["class"] == "jetson"] == [
        d.name for d in table() if d.device_class == "jetson"
    ]
    columns = {"bf16": "bf16_dense_tflops", "fp16": "fp16_dense_tflops", "fp8": "fp8_dense_tflops"}
    columns |= {"int8": "int8_dense_tops", "fp4": "fp4_dense_tflops", "fp32": "fp32_tflops"}
    for r in rows:
        d = find(r["name"])
        assert d.device_class == r["class"]
        assert ";".join(d.aliases) == r["aliases"] and ";".join(d.runtime_names) == r["runtime_names"]
        assert ";".join(d.module_ids) == r["module_ids"] and ";".join(d.device_tree_models) == r["device_tree_models"]
        assert (d.bandwidth_bytes_s or 0) / 1e9 == pytest.approx(float(r["bandwidth_gbs"] or 0))
        assert (d.l2_bytes or 0) / 2**20 == float(r["l2_mib"] or 0)
        assert (d.sm_count or 0) == int(r["sm_count"] or 0)
        assert (d.memory_gb or 0) == float(r["memory_gb"] or 0)
        assert (d.power_max_w or 0) == float(r["power_max_w"] or 0)
        assert d.unified_memory == (r["unified_memory"] == "yes")
        for dtype, column in columns.items():
            assert d.peaks.get(dtype, 0) / 1e12 == pytest.approx(float(r[column] or 0)), (r["name"], dtype)
        wanted = {
            {"bandwidth_gbs": "bandwidth_gb_s"}.get(c, c.split("_")[0]) for c in r["derived_fields"].split(";") if c
        }
        assert set(d.derived) == wanted


def test_the_power_modes_equal_the_facts_they_were_made_from(shared_dir: Path) -> None:
    with (shared_dir / "data" / "jetson_power_modes.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == sum(len(d.modes) for d in table())
    for r in rows:
        mode = next(m for m in find(r["device"]).modes if m.name == r["mode"])
        assert mode.bandwidth_bytes_s / 1e9 == pytest.approx(float(r["bandwidth_gbs"]))
        assert (mode.gpu_hz / 1e6, mode.emc_hz / 1e6) == (float(r["gpu_max_mhz"]), float(r["emc_max_mhz"]))
        assert (mode.mode_id, mode.bus_bits, mode.default) == (
            int(r["mode_id"]),
            int(r["bus_bits"]),
            r["is_default"] == "yes",
        )
