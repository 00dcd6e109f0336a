"""tegrastats lines of several JetPacks: what is there is read, what is not stays absent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from robot_perf.devices.tegrastats import TegraSample, parse_line

ORIN = (
    "11-29-2026 10:00:00 RAM 3182/62785MB (lfb 4x4MB) SWAP 0/31393MB (cached 0MB) CPU [12%@2201,0%@2201,off,off] "
    "EMC_FREQ 37%@3199 GR3D_FREQ 99%@1300 VIC_FREQ 729 cpu@51.2C gpu@48C tj@52.5C VDD_GPU_SOC 9604mW/8402mW VDD_CPU_CV 1200mW/1100mW"
)


def test_orin() -> None:
    s = parse_line(ORIN)
    assert (s.ram_used_bytes, s.ram_total_bytes) == (3182 * 2**20, 62785 * 2**20)
    assert (s.emc_percent, s.emc_hz) == (37.0, 3199e6)
    assert (s.gpu_percent, s.gpu_hz) == (99.0, (1300e6,))
    assert s.cpu_percent == (12.0, 0.0, None, None)
    assert s.temperatures_c == {"cpu": 51.2, "gpu": 48.0, "tj": 52.5}
    assert s.rails_w == {"VDD_GPU_SOC": (9.604, 8.402), "VDD_CPU_CV": (1.2, 1.1)}


def test_the_forms_of_gr3d() -> None:
    assert parse_line("GR3D_FREQ 45%").gpu_percent == 45.0
    seven = parse_line("GR3D_FREQ 45%@[1300,1300]")
    assert (seven.gpu_percent, seven.gpu_hz) == (45.0, (1300e6, 1300e6))
    thor = parse_line("GR3D_FREQ @[1575,1575,1575]")
    assert thor.gpu_percent is None and thor.gpu_hz == (1575e6,) * 3  # clocks, no utilisation: not zero


def test_absent_is_absent() -> None:
    assert parse_line("") == TegraSample()
    assert parse_line("EMC_FREQ 5%").emc_hz is None


@given(st.text())
def test_any_text_is_survived(line: str) -> None:
    parse_line(line)
