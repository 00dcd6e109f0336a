"""A precision that is said is the one that is computed in: TF32 is off where fp32 was asked for, or fp32 is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_perf import policies
from robot_perf.backends.gpu import options, ort_session
from robot_perf.errors import UsageError

HELPERS = Path(__file__).resolve().parents[1] / "helpers"


@pytest.fixture(autouse=True)
def not_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(options.OVERRIDE, raising=False)


@pytest.fixture
def flags() -> Iterator[Any]:
    """torch's own, as they were."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from robot_perf.backends.gpu import torch_cuda

    cudnn = torch.backends.cudnn.allow_tf32
    yield torch
    torch_cuda.hold_arithmetic("fp32")
    torch.backends.cudnn.allow_tf32 = cudnn


def test_onnxruntimes_tensorrt_offers_fp32_only_where_nothing_can_make_it_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider, precision in (("cuda", "fp32"), ("tensorrt", "tf32"), ("tensorrt", "fp16")):
        assert ort_session.check_arithmetic(provider, precision) == {}
    with pytest.raises(UsageError, match="provider tensorrt doesn't promise fp32") as told:
        ort_session.check_arithmetic("tensorrt", "fp32")
    assert "precision=tf32" in told.value.do and "NVIDIA_TF32_OVERRIDE=0" in told.value.do
    monkeypatch.setenv(options.OVERRIDE, "1")
    with pytest.raises(UsageError):
        ort_session.check_arithmetic("tensorrt", "fp32")
    monkeypatch.setenv(options.OVERRIDE, "0")
    assert ort_session.check_arithmetic("tensorrt", "fp32") == {"tf32": "off by NVIDIA_TF32_OVERRIDE=0"}


def test_the_onnxruntime_backend_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    from robot_perf.backends import onnxruntime

    monkeypatch.setattr(ort_session, "check_present", lambda _provider: None)
    with pytest.raises(UsageError, match="doesn't promise fp32"):
        onnxruntime.load(policies.describe("mlp", preset="tiny"), {"device": "cuda:0", "provider": "tensorrt"})


def test_tf32_is_refused_where_the_process_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"device": "cuda:0", "precision": "tf32"}
    assert options.read(asked, "eager").precision == "tf32"
    monkeypatch.setenv(options.OVERRIDE, "0")
    with pytest.raises(UsageError, match="NVIDIA_TF32_OVERRIDE=0"):
        options.read(asked, "eager")
    assert options.read({"device": "cuda:0"}, "eager").precision == "fp32"


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("newer", [False, True])
def test_what_a_policy_sets_is_put_back_and_said(flags: Any, precision: str, newer: bool) -> None:
    from robot_perf.backends.gpu.torch_cuda import hold_arithmetic, set_arithmetic

    backends, asked = flags.backends, precision == "tf32"
    if newer and not hasattr(backends, "fp32_precision"):
        pytest.skip(f"torch {flags.__version__} has the older names alone")
    set_arithmetic(precision)
    assert hold_arithmetic(precision) == ""
    if newer:
        backends.cuda.matmul.fp32_precision = backends.cudnn.fp32_precision = "ieee" if asked else "tf32"
    else:
        backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = not asked
    assert precision in hold_arithmetic(precision)
    assert backends.cuda.matmul.allow_tf32 is asked and backends.cudnn.allow_tf32 is asked
    assert flags.get_float32_matmul_precision() == ("high" if asked else "highest")
    assert hold_arithmetic(precision) == ""


@pytest.mark.parametrize("backend", ["eager", "cuda_graph"])
def test_a_factory_that_turns_tf32_on_is_measured_in_fp32(
    flags: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fake_torch

    monkeypatch.chdir(HELPERS)
    played = fake_torch.Played(monkeypatch)
    runner = played(backend, policies.describe("uncompiled:WantsTf32"))
    assert not flags.backends.cuda.matmul.allow_tf32 and not flags.backends.cudnn.allow_tf32
    assert any("its code set TF32" in note for note in runner.spec.notes)
    runner.close()
