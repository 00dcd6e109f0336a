"""What autograd must see of calls that launch a kernel past it: saved values that were overwritten, forward mode, vmap (A13)."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

from robot_perf.kernels.rmsnorm import add_rms_norm, add_rms_norm_, explain, rms_norm, rms_norm_
from robot_perf.kernels.rmsnorm_reference import rms_norm_reference


@pytest.mark.parametrize("calls", [1, 3])  # the first call of a shape, and one that finds its plan
def test_a_backward_pass_notices_that_what_it_saved_was_overwritten(device, calls):
    h = torch.randn(3, 64, device=device, requires_grad=True)
    hidden = h * 1.0
    loss = hidden.square().sum()  # saves `hidden`
    with torch.no_grad():
        for _ in range(calls):
            rms_norm_(hidden.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_both_buffers_of_the_fused_add_count_as_written(device):
    x, r = torch.randn(3, 64, device=device), torch.randn(3, 64, device=device)
    before = x._version, r._version
    for _ in range(2):
        add_rms_norm_(x, r)
    assert (x._version - before[0], r._version - before[1]) == (2, 2)


def test_inference_tensors_count_no_versions(device):
    with torch.inference_mode():
        x = torch.ones(3, 64, device=device)
        for _ in range(2):
            rms_norm_(x)
    torch.testing.assert_close(x, torch.ones_like(x))


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")
def test_forward_mode_differentiation_keeps_the_tangent(device):
    x, tangent = torch.randn(3, 64, device=device), torch.randn(3, 64, device=device)
    rms_norm(x)  # its plan is there
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        found = forward_ad.unpack_dual(rms_norm(dual)).tangent
        want = forward_ad.unpack_dual(rms_norm_reference(dual)).tangent
        both = forward_ad.unpack_dual(add_rms_norm(dual, x)[0]).tangent
        assert "forward-mode" in explain(x)
    torch.testing.assert_close(found, want)
    assert both is not None


def test_vmap_takes_torch_operations_in_place_too(device):
    x = torch.randn(4, 2, 64, device=device)
    want = rms_norm_reference(x)
    torch.func.vmap(rms_norm_)(x)
    torch.testing.assert_close(x, want)


def test_explain_says_that_a_layout_is_copied(device):
    if "torch operations" in explain(torch.zeros(2, 64, device=device)):
        pytest.skip("the kernels do not run here")
    assert explain(torch.zeros(64, 2, device=device).t()).startswith("kernel on copies: ")
    assert explain(torch.zeros(2, 64, device=device)).startswith("kernel: ")
    unaligned = torch.zeros(129, device=device)[1:].view(2, 64)
    assert "element accesses" in explain(unaligned)
    assert "kernel on copies" in explain(unaligned, None, unaligned)  # the fused add promises bits
