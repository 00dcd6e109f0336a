"""What is fed: seeded, varied, of the declared dtype; recordings by name, never cast in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robot_perf.errors import PolicyError
from robot_perf.policies.observations import PREPARED_BYTES, PREPARED_MAX, initial_state, open_observations
from robot_perf.specs import PolicySpec, StatePair, TensorSpec


def spec_of(*inputs: TensorSpec, **fields: object) -> PolicySpec:
    return PolicySpec(
        name="p", kind="onnx", inputs=inputs, outputs=(TensorSpec("a", "float32", (1, 2)),), action=0, **fields
    )  # type: ignore[arg-type]


OBS = TensorSpec("obs", "float32", (1, 4))


def test_values_are_seeded_varied_and_in_range() -> None:
    spec = spec_of(
        OBS, TensorSpec("mask", "bool", (1, 200)), TensorSpec("ids", "int64", (3,)), TensorSpec("scale", "float64", ())
    )
    one, same, other = open_observations(spec), open_observations(spec), open_observations(spec, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(one.at(5), same.at(5), strict=True))
    assert not np.array_equal(one.at(5)[0], other.at(5)[0])
    assert not np.array_equal(one.at(5)[0], one.at(6)[0])
    x, mask, ids, scale = one.at(3)
    assert x.dtype == np.float32 and x.shape == (1, 4) and np.abs(x).max() <= 1
    assert mask.dtype == np.bool_ and 0.1 < mask.mean() < 0.5
    assert ids.dtype == np.int64 and ids.min() >= 0 and ids.max() <= 3
    assert isinstance(scale, np.ndarray) and scale.shape == () and scale.dtype == np.float64


@pytest.mark.parametrize(
    ("shape", "at_least"), [((1, 48), PREPARED_MAX), ((1, 3, 480, 640), 8), ((2, 3, 1080, 1920), 8)]
)
def test_prepared_steps_are_bounded_by_memory(shape: tuple[int, ...], at_least: int) -> None:
    observations = open_observations(spec_of(TensorSpec("x", "uint8", shape)))
    assert at_least <= observations.steps <= PREPARED_MAX
    if observations.steps > 8:
        assert observations.steps * np.prod(shape) <= PREPARED_BYTES


def test_huge_inputs_are_prepared_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robot_perf.policies.observations.LARGEST_BYTES", 5_000_000)
    assert open_observations(spec_of(TensorSpec("x", "uint8", (1_000_000,)))).steps == 5
    assert open_observations(spec_of(TensorSpec("x", "uint8", (4_000_000,)))).steps == 2


def test_the_loop_allocates_nothing_but_counters() -> None:
    observations = open_observations(spec_of(OBS))
    assert observations.at(observations.steps) is observations.at(0)
    observations = open_observations(spec_of(OBS, TensorSpec("time_step", "float32", (1, 1)), counters=(1,)))
    first = observations.at(0)
    later = observations.at(observations.steps)
    assert later[0] is first[0]
    assert later[1] is not first[1] and first[1][0, 0] == 0, "a policy may keep the counter that it was fed"


def test_what_a_policy_wrote_into_its_observation_is_seen_and_undone() -> None:
    spec = spec_of(
        OBS, TensorSpec("mask", "bool", (3,)), TensorSpec("scale", "float64", ()), TensorSpec("none", "float32", (0, 2))
    )
    observations = open_observations(spec, seed=3)
    pristine = [a.copy() for a in observations.at(7)]
    assert not observations.written_to()
    observations.at(7)[2][...] += 1e-9
    assert observations.written_to()
    observations.renew()
    for _ in range(2):
        given = observations.reader()(7)
        assert all(np.array_equal(a, b) for a, b in zip(given, pristine, strict=True))
        given[0][...] = 5.0
    assert not observations.written_to()


def test_a_recording_is_read_again_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", obs=np.ones((5, 1, 4), np.float32))
    observations = open_observations(spec_of(OBS), path=str(tmp_path / "r.npz"))
    observations.at(2)[0][...] = 0
    assert observations.written_to()
    observations.renew()
    assert (observations.at(2)[0] == 1).all()
    assert not observations.written_to()


def test_counters_advance() -> None:
    spec = spec_of(OBS, TensorSpec("time_step", "float32", (1, 1)), TensorSpec("phase", "uint8", (1,)), counters=(1, 2))
    observations = open_observations(spec)
    for k in (0, 1, 511, 600, 100_000):
        step = observations.at(k)
        assert step[1].dtype == np.float32 and step[1][0, 0] == k
        assert step[2][0] == k % 256
    assert observations.at(-3)[1][0, 0] == 0


def test_recordings_by_any_of_three_keys(tmp_path: Path) -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 1, 4)
    for key in ("obs", "in.obs", "in.0"):
        path = tmp_path / "r.npz"
        np.savez(path, **{key: data, "out.0": np.zeros((3, 1, 2))})
        observations = open_observations(spec_of(OBS), path=str(path))
        assert observations.steps == 3
        assert all(np.array_equal(observations.at(k)[0], data[k % 3]) for k in range(7))
        assert observations.at(0)[0].flags.writeable


def test_a_recording_saved_in_column_order_or_another_byte_order(tmp_path: Path) -> None:
    data = np.asfortranarray(np.random.default_rng(0).uniform(size=(5, 1, 4)).astype(">f4"))
    path = tmp_path / "r.npz"
    np.savez(path, obs=data)
    step = open_observations(spec_of(OBS), path=str(path)).at(2)[0]
    assert step.dtype == np.float32 and np.array_equal(step, data[2])


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 1, 4)), ["obs", "float64", "float32", "--cast", "step 0"]),
        (np.zeros((3, 4), np.float32), ["obs", "[4]", "[1,4]", "step"]),
        (np.zeros((1, 4), np.float32), ["obs", "[4]", "[1,4]"]),
        (np.zeros((3, 1, 5), np.float32), ["[1,5]", "[1,4]"]),
        (np.zeros((0, 1, 4), np.float32), ["steps"]),
        (np.float32(3), ["steps"]),
        (np.array([{"a": 1}] * 3, dtype=object), ["Python objects", "never unpickles"]),
    ],
)
def test_a_recording_that_does_not_fit(tmp_path: Path, array: np.ndarray, words: list[str]) -> None:
    path = tmp_path / "r.npz"
    np.savez(path, obs=array)
    with pytest.raises(PolicyError) as caught:
        open_observations(spec_of(OBS), path=str(path))
    for word in [*words, "r.npz"]:
        assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 4


def test_a_cast_is_made_when_asked_and_said(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    np.savez(path, obs=np.full((3, 1, 4), 0.1))
    observations = open_observations(spec_of(OBS), path=str(path), cast=True)
    assert observations.at(0)[0].dtype == np.float32
    assert any("cast from float64 to float32" in n for n in observations.notes)


def test_inputs_must_all_be_there_and_equally_long(tmp_path: Path) -> None:
    spec = spec_of(OBS, TensorSpec("cmd", "float32", (3,)))
    path = tmp_path / "r.npz"
    np.savez(path, obs=np.zeros((3, 1, 4), np.float32))
    with pytest.raises(PolicyError, match="lack cmd"):
        open_observations(spec, path=str(path))
    np.savez(path, obs=np.zeros((3, 1, 4), np.float32), cmd=np.zeros((4, 3), np.float32))
    with pytest.raises(PolicyError, match="obs 3, cmd 4"):
        open_observations(spec, path=str(path))


def test_a_counter_needs_no_recording_but_takes_one(tmp_path: Path) -> None:
    spec = spec_of(OBS, TensorSpec("time_step", "float32", (1, 1)), counters=(1,))
    path = tmp_path / "r.npz"
    np.savez(path, obs=np.zeros((3, 1, 4), np.float32))
    observations = open_observations(spec, path=str(path))
    assert [float(observations.at(k)[1][0, 0]) for k in range(5)] == [0, 1, 2, 3, 4]
    np.savez(path, obs=np.zeros((3, 1, 4), np.float32), time_step=np.array([5, 9, 600], np.float32).reshape(3, 1, 1))
    observations = open_observations(spec, path=str(path))
    assert [float(observations.at(k)[1][0, 0]) for k in range(4)] == [5, 9, 600, 5]


def test_values_that_are_not_finite_are_said(tmp_path: Path) -> None:
    data = np.zeros((4, 1, 4), np.float32)
    data[2, 0, 1] = np.nan
    path = tmp_path / "r.npz"
    np.savez(path, obs=data)
    assert any("step 2" in n for n in open_observations(spec_of(OBS), path=str(path)).notes)


def test_the_initial_state_may_be_recorded(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    h = np.random.default_rng(0).uniform(size=(3, 1, 8)).astype(np.float32)
    np.savez(path, obs=np.zeros((3, 1, 4), np.float32), **{"in.h_in": h})
    fields = {"state": (StatePair(1, 0),), "asked": {"observations": str(path)}}
    spec = spec_of(OBS, TensorSpec("h_in", "float32", (1, 8)), **fields)
    assert np.array_equal(initial_state(spec)[0], h[0])
    assert np.array_equal(
        initial_state(spec_of(OBS, TensorSpec("h_in", "float32", (1, 8)), state=(StatePair(1, 0),)))[0],
        np.zeros((1, 8)),
    )


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 not a zip", b"text", b"PK\x05\x06" + bytes(18)])
def test_damaged_archives(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "r.npz"
    path.write_bytes(data)
    with pytest.raises(PolicyError, match=r"r\.npz"):
        open_observations(spec_of(OBS), path=str(path))
    with pytest.raises(PolicyError, match="no such file"):
        open_observations(spec_of(OBS), path=str(tmp_path / "absent.npz"))


def test_describe_names_a_bad_recording(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "no such file" in refused("mlp", observations=str(tmp_path / "absent.npz"))
