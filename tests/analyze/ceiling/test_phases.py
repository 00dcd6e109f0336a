"""Phase floors of robot policies: the reference rows, and what is said where a number is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.analyze.ceiling.bound import Launches
from robot_perf.analyze.ceiling.inverse import policy_limits
from robot_perf.analyze.ceiling.phases import PhaseFloor, phase_floor
from robot_perf.devices import find, mode_of
from robot_perf.errors import UsageError
from robot_perf.policies.models.catalogue import PolicyRow, find_model, size_policy
from robot_perf.specs.device import DeviceSpec
from robot_perf.specs.model import SizedPolicy, Stage

PI_PARAMETERS = {"vision": 0.41e9, "prefix": 1.98e9, "expert": 0.31e9}


def catalogue(name: str, device: str, **sizes: int) -> PhaseFloor:
    row = find_model(name)
    assert isinstance(row, PolicyRow)
    return phase_floor(size_policy(row, **sizes), find(device))  # type: ignore[arg-type]


def pi(views: int) -> SizedPolicy:
    """pi0 with parts rounded to two digits, as the reference table has them."""
    stages = (
        Stage("vision", PI_PARAMETERS["vision"], 256 * views),
        Stage("prefix", PI_PARAMETERS["prefix"], 256 * views + 48),
        Stage("expert", PI_PARAMETERS["expert"], 51, 10),
    )
    return SizedPolicy("pi0", stages, sum(s.params * s.repeats for s in stages), 3.2e9)


def printed(floor: PhaseFloor, digits: int = 2) -> list[str]:
    return [f"{p.least_ns / 1e6:.{digits}f}" for p in floor.phases]


# the models' own numbers, two devices
@pytest.mark.parametrize(
    ("model", "device", "stages", "total"),
    [
        ("pi0", "GeForce RTX 4090", ["3.82", "19.58", "6.17"], "29.6"),
        ("pi0", "Jetson AGX Orin 64GB", ["14.85", "76.11", "30.37"], "121.3"),
        ("OpenVLA-7B", "GeForce RTX 4090", ["2.22", "21.95", "78.65"], "102.8"),
        ("OpenVLA-7B", "Jetson AGX Orin 64GB", ["8.61", "85.33", "387.13"], "481.1"),
        ("SmolVLA", "GeForce RTX 4090", ["3.16", "0.50", "1.94"], "5.6"),
        ("SmolVLA", "Jetson AGX Orin 64GB", ["12.29", "1.96", "9.57"], "23.8"),
    ],
)
def test_catalogue_rows(model: str, device: str, stages: list[str], total: str) -> None:
    floor = catalogue(model, device)
    assert printed(floor) == stages
    assert f"{floor.floor_ns / 1e6:.1f}" == total
    assert floor.at_least == ()


@pytest.mark.parametrize(
    ("device", "views", "bits", "compute", "bytes_only", "floor", "measured", "fractions"),
    [
        ("GeForce RTX 4090", 1, 16, "bf16", 10.9, 14.7, 20.0, (0.54, 0.74)),
        ("GeForce RTX 4090", 2, 16, "bf16", 10.9, 22.1, 27.3, (0.40, 0.81)),
        ("GeForce RTX 4090", 3, 16, "bf16", 10.9, 29.5, 36.8, (0.30, 0.80)),
        ("GeForce RTX 5090", 1, 16, "bf16", 6.1, 10.2, 17.6, (0.35, 0.58)),
        ("GeForce RTX 5090", 2, 16, "bf16", 6.1, 16.0, 24.0, (0.26, 0.67)),
        ("GeForce RTX 5090", 3, 16, "bf16", 6.1, 21.9, 31.9, (0.19, 0.69)),
        ("Jetson AGX Orin 32GB", 2, 16, "bf16", 53.6, 128, 215.9, (0.25, 0.59)),
        ("Jetson AGX Orin 64GB", 2, 8, "int8", 26.8, 46.2, 124, (0.22, 0.37)),
        ("Jetson AGX Thor T5000", 3, 16, "bf16", 40.2, 40.2, 163, (0.25, 0.25)),
        ("Jetson AGX Thor T5000", 2, 8, "fp8", 20.1, 20.1, 44, (0.46, 0.46)),
    ],
)
def test_pi0_on_seven_devices(
    device: str,
    views: int,
    bits: float,
    compute: str,
    bytes_only: float,
    floor: float,
    measured: float,
    fractions: tuple[float, float],
) -> None:
    found = phase_floor(pi(views), find(device), weight_bits=bits, compute=compute)
    digits = 0 if floor >= 100 else 1
    assert round(found.bytes_only_ns / 1e6, 1) == pytest.approx(bytes_only, abs=0.051)
    assert round(found.floor_ns / 1e6, digits) == pytest.approx(floor, abs=0.11 if digits else 0.5)
    assert found.bytes_only_ns / 1e6 / measured == pytest.approx(fractions[0], abs=0.006)
    assert found.fraction(measured * 1e6) == pytest.approx(fractions[1], abs=0.006)


def test_openvla_bytes_only_and_phase_wise() -> None:
    floor = catalogue("OpenVLA-7B", "Jetson AGX Orin 64GB")
    assert f"{floor.bytes / 1e9:.1f}" == "93.9"
    assert f"{floor.bytes_only_ns / 1e6:.0f}" == "459"
    assert f"{floor.floor_ns / 1e6:.0f}" == "481"
    desktop = catalogue("openvla", "GeForce RTX 4090")
    assert f"{desktop.bytes_only_ns / 1e6:.0f}" == "93" and f"{1e9 / desktop.bytes_only_ns:.1f}" == "10.7"


def test_phases_name_their_side() -> None:
    floor = catalogue("pi0", "GeForce RTX 4090")
    assert [p.limited_by for p in floor.phases] == ["compute", "compute", "DRAM"]
    assert floor.limited_by == "compute"


def test_views_and_prompt_are_inputs() -> None:
    few, many = catalogue("pi0", "agx-orin", views=1), catalogue("pi0", "agx-orin", views=3)
    assert few.floor_ns < many.floor_ns
    assert catalogue("pi0.5", "agx-orin", prompt_tokens=48).floor_ns < catalogue("pi0.5", "agx-orin").floor_ns
    assert catalogue("pi0", "agx-orin", solver_steps=5).floor_ns < catalogue("pi0", "agx-orin").floor_ns


def test_missing_parts_make_the_floor_at_least() -> None:
    assert any("vision encoder" in m for m in catalogue("RDT-1B", "agx-orin").at_least)
    fast = catalogue("pi0-FAST", "agx-orin")
    assert any("--decode-tokens" in m for m in fast.at_least) and any("--views" in m for m in fast.at_least)
    act = catalogue("ACT (LeRobot default)", "agx-orin")
    assert any("--views" in m for m in act.at_least)
    assert not catalogue("ACT (LeRobot default)", "agx-orin", views=2).at_least


def test_policies_without_parameters_are_refused() -> None:
    for name in ("X-VLA (LeRobot port)", "Multi-Task DiT (LeRobot)", "FastWAM action denoiser (LeRobot)"):
        with pytest.raises(UsageError, match="parameter count unknown"):
            catalogue(name, "agx-orin")


def test_policies_without_parts_are_bounded_by_bytes_alone() -> None:
    floor = catalogue("GR00T N1.6-3B", "GeForce RTX 5090")
    assert floor.floor_ns == floor.bytes_only_ns == pytest.approx(6e9 / 1792e9 * 1e9)
    assert floor.at_least


def test_an_unknown_peak_leaves_bytes_and_says_so() -> None:
    row = find_model("pi0")
    assert isinstance(row, PolicyRow)
    floor = phase_floor(size_policy(row), find("gb10"))
    assert floor.floor_ns == pytest.approx(floor.bytes_only_ns)
    assert any("bf16 peak unknown" in n for n in floor.notes)


def test_repeats_of_a_stage_that_fits_in_l2_are_read_once() -> None:
    stages = (Stage("big", 1e9, 1), Stage("small", 1e6, 1, 100))
    policy = SizedPolicy("p", stages, 1e9 + 1e8, 1e9)
    floor = phase_floor(policy, find("H100 SXM"))
    assert floor.phases[1].bytes == 2e6 and floor.phases[1].limited_by == "cache"
    assert floor.bytes_only_ns > floor.phases[0].memory_ns


def test_a_policy_inside_l2_has_launch_and_compute_bounds_only() -> None:
    policy = SizedPolicy("mlp", (Stage("mlp", 0.2e6, 1),), 0.2e6, 0.2e6)
    floor = phase_floor(policy, find("agx-orin"), weight_bits=32, launches=Launches(7))
    assert floor.bytes_only_ns == 0 and floor.limited_by == "launch" and floor.floor_ns == 35_000
    assert any("L2-resident" in n for n in floor.notes)


def test_lower_power_modes_are_slower() -> None:
    row = find_model("pi0")
    assert isinstance(row, PolicyRow)
    orin = find("agx-orin")
    floors = [phase_floor(size_policy(row), orin, mode_of(orin, m)).floor_ns for m in ("MAXN", "50W", "30W", "15W")]
    assert floors == sorted(floors)


def test_limits_of_a_policy_at_a_rate() -> None:
    row = find_model("pi0")
    assert isinstance(row, PolicyRow)
    orin, sized = find("agx-orin"), size_policy(row)
    budget = phase_floor(sized, orin).floor_ns
    size, bits = policy_limits(sized, orin, None, budget, weight_bits=16, compute="bf16")
    assert size.value == pytest.approx(1.0) and bits.value == 16
    _, none = policy_limits(sized, orin, None, budget / 100, weight_bits=16, compute="bf16")
    assert none.value is None and "arithmetic alone is too slow" in none.text


stage = st.builds(Stage, st.just("s"), st.floats(1e6, 1e11), st.none() | st.integers(1, 10_000), st.integers(1, 100))


@given(st.lists(stage, min_size=1, max_size=5), st.floats(10, 1e4), st.floats(1, 1e4), st.floats(1, 10))
def test_phases_add_up_and_the_floor_never_lies_below_bytes(
    stages: list[Stage], gb_s: float, tflop: float, factor: float
) -> None:
    policy = SizedPolicy("p", tuple(stages), sum(s.params * s.repeats for s in stages), 0)

    def floor(scale_bandwidth: float = 1.0, scale_peak: float = 1.0, bits: float = 16) -> PhaseFloor:
        device = DeviceSpec(
            "d", peaks={"bf16": tflop * 1e12 * scale_peak}, bandwidth_bytes_s=gb_s * 1e9 * scale_bandwidth, l2_bytes=1
        )
        return phase_floor(policy, device, weight_bits=bits)

    base = floor()
    assert base.floor_ns == pytest.approx(sum(p.least_ns for p in base.phases))
    assert base.floor_ns >= base.bytes_only_ns * (1 - 1e-9)
    for other in (floor(factor), floor(1.0, factor), floor(bits=16 / factor)):
        assert other.floor_ns <= base.floor_ns * (1 + 1e-12)
