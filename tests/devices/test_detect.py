"""Detection: device tree, module ids, SM counts, memory, power modes; candidates where evidence does not suffice."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_perf.devices import find, table
from robot_perf.devices.detect import detect, module_ids
from robot_perf.devices.host import GpuFacts, HostFacts, gather
from robot_perf.devices.nvpmodel import bandwidth_range, current_mode, parse_conf, parse_query
from robot_perf.errors import UsageError
from robot_perf.units import GIB

NANO = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit"
NX = "NVIDIA Jetson Orin NX Engineering Reference Developer Kit"
AGX = "NVIDIA Jetson AGX Orin Developer Kit"
CONF = """
< POWER_MODEL ID=0 NAME=MAXN >
CPU_ONLINE CORE_0 1
GPU MAX_FREQ -1
EMC MAX_FREQ 0
< POWER_MODEL ID=1 NAME=15W >
GPU MAX_FREQ 408000000
EMC MAX_FREQ 2133000000
< PM_CONFIG DEFAULT=0 >
"""


def orin(sms: int | None = None, gib: float | None = None, **more: object) -> HostFacts:
    gpus = (GpuFacts("Orin", None, sms, "CUDA"),)
    return HostFacts(memory_bytes=None if gib is None else round(gib * GIB), gpus=gpus, **more)  # type: ignore[arg-type]


def names(facts: HostFacts) -> list[str]:
    return [c.name for c in detect(facts)[0].candidates]


def compatible(module: str, suffix: str = "") -> tuple[str, ...]:
    return (f"nvidia,p3768-0000+{module}{suffix}", f"nvidia,{module}", "nvidia,tegra234")


@pytest.mark.parametrize(
    ("model", "module", "gib", "name"),
    [
        (NANO, "p3767-0004", 3.4, "Jetson Orin Nano 4GB"),
        (NANO, "p3767-0003", 7.4, "Jetson Orin Nano 8GB"),
        (NANO, "p3767-0005", 7.4, "Jetson Orin Nano 8GB"),
        (NANO + " Super", "p3767-0005", 7.4, "Jetson Orin Nano 8GB Super"),
        (NX, "p3767-0000", 15.3, "Jetson Orin NX 16GB"),
        (NX + " Super", "p3767-0001", 7.4, "Jetson Orin NX 8GB Super"),
        ("NVIDIA some carrier", "p3701-0004", 29.8, "Jetson AGX Orin 32GB"),
        (AGX, "p3701-0005", 61.3, "Jetson AGX Orin 64GB"),
        ("NVIDIA Jetson AGX Thor Developer Kit", "p3834-0008", 122.8, "Jetson AGX Thor T5000"),
    ],
)
def test_a_module_id_names_the_module_and_the_model_its_flash(model: str, module: str, gib: float, name: str) -> None:
    facts = HostFacts(device_tree_model=model, compatible=compatible(module), memory_bytes=round(gib * GIB))
    assert names(facts) == [name]


def test_the_model_string_alone_needs_memory() -> None:
    assert names(HostFacts(device_tree_model=NX, memory_bytes=round(15.3 * GIB))) == ["Jetson Orin NX 16GB"]
    assert names(HostFacts(device_tree_model=NX, memory_bytes=round(7.4 * GIB))) == ["Jetson Orin NX 8GB"]
    assert names(HostFacts(device_tree_model=NX)) == ["Jetson Orin NX 8GB", "Jetson Orin NX 16GB"]
    assert names(HostFacts(device_tree_model="Jetson AGX Orin Developer Kit")) == ["Jetson AGX Orin 64GB"]  # JetPack 5


def test_a_super_flash_in_the_module_id() -> None:
    ids, is_super = module_ids(compatible("p3767-0005", "-super"))
    assert ids[:2] == ["p3768-0000", "p3768"] and "p3767-0005" in ids and is_super


@pytest.mark.parametrize(
    ("sms", "gib", "wanted"),
    [
        (4, 3.4, {"Jetson Orin Nano 4GB", "Jetson Orin Nano 4GB Super"}),
        (
            8,
            7.4,
            {"Jetson Orin Nano 8GB", "Jetson Orin Nano 8GB Super", "Jetson Orin NX 8GB", "Jetson Orin NX 8GB Super"},
        ),
        (8, 15.3, {"Jetson Orin NX 16GB", "Jetson Orin NX 16GB Super"}),
        (14, 29.8, {"Jetson AGX Orin 32GB"}),
        (16, 61.3, {"Jetson AGX Orin 64GB", "Jetson AGX Orin Industrial"}),
    ],
)
def test_a_container_without_device_tree_leaves_candidates(sms: int, gib: float, wanted: set[str]) -> None:
    found = detect(orin(sms, gib))[0]
    assert {c.name for c in found.candidates} == wanted
    if len(wanted) > 1:
        assert found.answer.startswith("Orin, module unknown: ") and found.device is None


def test_an_orin_of_which_nothing_is_known() -> None:
    found = detect(orin())[0]
    assert len(found.candidates) == 11 and found.device is None
    assert detect(HostFacts(gpus=(GpuFacts("Orin (nvgpu)"),)))[0].answer.startswith("Orin, module unknown")


def test_an_orin_that_fits_no_row_is_asked_for_its_numbers() -> None:
    with pytest.raises(UsageError, match="--bandwidth-gb-s"):
        detect(orin(12, 61.3))


@pytest.mark.parametrize(
    ("gpu", "gib", "name"),
    [
        ("NVIDIA H200", 140.4, "H200 SXM"), ("NVIDIA H100 80GB HBM3", 79.6, "H100 SXM"), ("NVIDIA GB10", None, "GB10 (DGX Spark)"),
        ("NVIDIA GeForce RTX 3060", 12.0, "GeForce RTX 3060 12GB"), ("Tesla T4", 15.0, "Tesla T4"),
    ],
)  # fmt: skip
def test_discrete_gpus_by_name_and_memory(gpu: str, gib: float | None, name: str) -> None:
    memory = None if gib is None else round(gib * GIB)
    found = detect(HostFacts(gpus=(GpuFacts(gpu, memory),)))
    assert [d.answer for d in found] == [name]


def test_a_shared_name_with_unreported_memory_gives_both() -> None:
    found = detect(HostFacts(gpus=(GpuFacts("NVIDIA GeForce RTX 3080"),)))[0]
    assert [c.name for c in found.candidates] == ["GeForce RTX 3080 10GB", "GeForce RTX 3080 12GB"]
    assert found.device is None


@pytest.mark.parametrize("gpu", ["NVIDIA B300", "NVIDIA H20", "AMD Instinct MI300X", "NVIDIA A10G"])
def test_an_unknown_gpu_is_never_taken_for_another(gpu: str) -> None:
    with pytest.raises(UsageError, match="is not in the device table"):
        detect(HostFacts(gpus=(GpuFacts(gpu, 80 * GIB),)))


def test_several_gpus_each_get_an_answer() -> None:
    found = detect(HostFacts(gpus=(GpuFacts("NVIDIA L4", 23 * GIB), GpuFacts("NVIDIA L40S", 45 * GIB))))
    assert [d.answer for d in found] == ["L4", "L40S"]


def test_a_processor_by_its_full_name() -> None:
    assert detect(HostFacts(cpu_name="Intel(R) N100"))[0].answer == "Intel N100"
    with pytest.raises(UsageError, match="no GPU found"):
        detect(HostFacts(cpu_name="Intel(R) N100 something"))


def test_thor_by_nvml_needs_memory_or_sms() -> None:
    assert names(HostFacts(gpus=(GpuFacts("NVIDIA Thor", None, 20),), memory_bytes=round(122.8 * GIB))) == [
        "Jetson AGX Thor T5000"
    ]
    assert len(names(HostFacts(gpus=(GpuFacts("Thor"),)))) == 2


def test_nvpmodel_texts() -> None:
    assert parse_query("NV Power Mode: 25W\n1\n") == "25W"
    assert parse_query("NVPM ERROR: no permission") is None
    modes = parse_conf(CONF)
    assert [(m.mode_id, m.name, m.emc_hz) for m in modes] == [(0, "MAXN", None), (1, "15W", 2_133_000_000)]
    assert parse_conf("") == ()


def test_the_current_mode_is_found_by_name_and_checked_by_its_emc_cap() -> None:
    device = find("Jetson AGX Orin 64GB")
    mode, note = current_mode(device, "NV Power Mode: 15W\n1", CONF)
    assert mode is not None and mode.bandwidth_bytes_s == 136.5e9 and note == "power mode 15W"
    mode, note = current_mode(device, "NV Power Mode: 15W\n1", CONF.replace("2133000000", "1600000000"))
    assert mode is None and "1600 MHz" in note and "2133 MHz" in note and "102.4 GB/s" in note
    mode, note = current_mode(device, None, None)
    assert mode is None and "136.5 to 204.8 GB/s by mode" in note
    mode, note = current_mode(device, "NV Power Mode: MY_MODE\n7", None)
    assert mode is None and "MY_MODE is not in the table" in note


def test_ids_are_not_portable() -> None:
    meaning = {m.name for d in table() for m in d.modes if m.mode_id == 1}
    assert {"7W", "10W", "15W", "25W", "120W"} <= meaning


def test_bandwidth_range_of_one_value() -> None:
    assert bandwidth_range(find("Jetson Orin Nano 8GB")) == "68.3 GB/s in every mode"
    assert bandwidth_range(find("H100 SXM")) == "bandwidth by mode unknown"


def test_gathering_reads_a_machines_files(tmp_path: Path) -> None:
    tree = tmp_path / "proc/device-tree"
    tree.mkdir(parents=True)
    (tree / "model").write_bytes(AGX.encode() + b"\0")
    (tree / "compatible").write_bytes(b"nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0")
    (tmp_path / "proc/meminfo").write_text("MemTotal:       64313564 kB\nMemFree: 1 kB\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nvpmodel.conf").write_text(CONF)
    clock = tmp_path / "sys/class/devfreq/17000000.gpu"
    clock.mkdir(parents=True)
    (clock / "cur_freq").write_text("1300500000\n")
    facts = gather(tmp_path, gpus=())
    assert facts.device_tree_model == AGX and facts.gpu_hz == 1_300_500_000 and facts.emc_hz is None
    found = detect(facts)[0]
    assert found.answer == "Jetson AGX Orin 64GB"
    assert "EMC clock unobserved" in found.evidence and "GPU 1300 MHz" in found.evidence  # never zero


def test_gathering_on_an_empty_machine_finds_nothing(tmp_path: Path) -> None:
    facts = gather(tmp_path, gpus=())
    assert facts == HostFacts(compatible=("",))
