"""The kernel whose blocks stay and walk over rows, whatever the launch table says about where it is used."""

from __future__ import annotations

import pytest
import torch

from robot_perf.kernels import rmsnorm_eager, rmsnorm_plan, rmsnorm_ptx
from robot_perf.kernels.rmsnorm import add_rms_norm, add_rms_norm_, rms_norm
from robot_perf.kernels.rmsnorm_config import Launch
from tests.kernels.oracle import check, rows_like, truth

ON_GPU = torch.cuda.is_available()
LAUNCHES = [Launch("stream", 2, stages=3), Launch("stream", 4, stages=4, policy=5)]
if ON_GPU and torch.cuda.get_device_capability() >= (9, 0):
    LAUNCHES += [Launch("stream", 8, ctas=c, stages=3, remote=True, pdl=1) for c in (2, 4, 8)]


@pytest.fixture(params=LAUNCHES, ids=lambda x: f"{x.warps} warps, {x.ctas} blocks")
def stream(request, monkeypatch):
    rmsnorm_eager.forget_plans()
    monkeypatch.setattr(rmsnorm_plan, "choose", lambda *a, **k: request.param)
    yield
    rmsnorm_eager.forget_plans()


@pytest.mark.parametrize(("m", "d"), [(1, 512), (2, 1000), (7, 2048), (33, 1024), *([(4099, 65536)] if ON_GPU else [])])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_every_row_is_right_however_many_turns_a_block_takes(device, stream, m, d, dtype):
    if dtype == torch.float32 and d > 16384:
        d = 16384  # what its registers are meant for
    x, r = rows_like((m, d), dtype, device), rows_like((m, d), dtype, device)
    w = (1 + 0.1 * torch.randn(d, device=device)).to(dtype)
    check(rms_norm(x, w), truth(x, w))
    y, s = add_rms_norm(x, r, w, cast="hf", weight_offset=1.0)
    assert torch.equal(s, x + r)
    check(y, truth(s, w, cast="hf", weight_offset=1.0), cast="hf")
    assert torch.equal(add_rms_norm(x, r, w)[0], rms_norm(s, w))  # N6
    a, b = x.clone(), r.clone()
    add_rms_norm_(a, b, w)  # rows on their way are read before any row is written
    assert torch.equal(b, s)
    assert torch.equal(a, rms_norm(s, w))


def test_the_grid_gives_every_cluster_equally_many_rows():
    launch = Launch("stream", 8, ctas=8)
    assert launch.grid(2048, 33) == 33  # 62.06 rows: 63 turns with 33, and with 32 it would be 64
    assert launch.grid(2048, 32) == 32
    assert launch.grid(4096, 132) == 128  # 32 turns either way
    assert launch.grid(5, 132) == 5
    assert all(launch.grid(m, 66) <= 66 for m in range(1, 999))


def test_a_kernel_with_many_sums_alternates_its_buffers():
    one, many = rmsnorm_ptx.block_sum_asm(4, 1), rmsnorm_ptx.block_sum_asm(4, 1, turn="$2")
    assert "$2" not in one
    assert "part[16]" in one
    assert "part[32]" in many
    assert "and.b32 slot, $2, 1" in many
