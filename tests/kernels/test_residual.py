"""The fused norm inside models."""

from __future__ import annotations

import pickle

import pytest
import torch

from robot_perf.errors import UsageError
from robot_perf.kernels import residual
from robot_perf.kernels.residual import FusedRMSNorm, ResidualStack, replace_rms_norm


def layers(d, n, device):
    return [torch.nn.Sequential(torch.nn.Linear(d, d, bias=False), torch.nn.GELU()).to(device) for _ in range(n)]


def test_the_stack_is_the_unfused_pre_norm_model(device):
    d, n = 64, 3
    blocks = layers(d, n, device)
    norms = [torch.nn.RMSNorm(d, eps=1e-6).to(device) for _ in range(n + 1)]
    for norm in norms:
        torch.nn.init.normal_(norm.weight, 1.0, 0.2)
    x = torch.randn(2, 5, d, device=device)
    with torch.no_grad():
        want = x
        for block, norm in zip(blocks, norms, strict=False):
            want = want + block(norm(want))
        fused = [FusedRMSNorm(d, 1e-6, weight=norm.weight) for norm in norms]
        stack = ResidualStack(blocks, fused[:-1], fused[-1])
        y, stream = stack.stream(x)
        torch.testing.assert_close(stream, want)
        torch.testing.assert_close(y, norms[-1](want))
        torch.testing.assert_close(stack(x), y)


def test_the_stack_trains(device):
    d = 32
    stack = ResidualStack(
        layers(d, 2, device), [FusedRMSNorm(d).to(device) for _ in range(2)], FusedRMSNorm(d).to(device)
    )
    stack(torch.randn(4, d, device=device)).square().mean().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in stack.parameters())


def test_one_call_replaces_every_norm_and_keeps_the_weights(device):
    class GemmaRMSNorm(torch.nn.Module):
        pass

    model = torch.nn.Sequential(
        torch.nn.Linear(16, 16),
        torch.nn.RMSNorm(16),
        torch.nn.Sequential(torch.nn.RMSNorm(16, eps=1e-3, elementwise_affine=False), torch.nn.RMSNorm((4, 16))),
        GemmaRMSNorm(),
    ).to(device)
    torch.nn.init.normal_(model[1].weight)
    x = torch.randn(3, 4, 16, device=device)
    with torch.no_grad():
        want = model[2](model[1](model[0](x)))
        done = replace_rms_norm(model)
        got = model[2](model[1](model[0](x)))
    torch.testing.assert_close(got, want)
    assert done["1"] == done["2.0"] == "replaced"
    assert "2 dimensions" in done["2.1"]
    assert "not torch.nn.RMSNorm" in done["3"]
    assert model[1].eps == torch.finfo(torch.float32).eps
    assert "1.weight" in model.state_dict()


def test_a_replaced_model_pickles_and_copies(device):
    norm = pickle.loads(pickle.dumps(FusedRMSNorm(8)))
    assert type(norm) is FusedRMSNorm
    assert "8" in repr(norm)


def test_gemmas_offset_starts_at_zero_weight(device):
    norm = FusedRMSNorm(8, weight_offset=1.0).to(device)
    x = torch.randn(2, 8, device=device)
    with torch.no_grad():
        torch.testing.assert_close(norm(x), torch.nn.functional.rms_norm(x, (8,), None, 1e-6))


def test_errors():
    with pytest.raises(UsageError, match="shape"):
        FusedRMSNorm(8, weight=torch.nn.Parameter(torch.ones(9)))
    with pytest.raises(UsageError, match="last dimension"):
        FusedRMSNorm(8)(torch.zeros(2, 9))
    with pytest.raises(UsageError, match="one norm"):
        ResidualStack([torch.nn.Identity()], [], FusedRMSNorm(8))
    with pytest.raises(UsageError, match="itself"):
        replace_rms_norm(torch.nn.RMSNorm(8))
    with pytest.raises(AttributeError):
        _ = residual.nothing


def test_what_is_not_nn_rmsnorm_itself_is_left_alone_and_said(device):
    class Gemma(torch.nn.RMSNorm):
        def forward(self, x):
            return super().forward(x) * 2

    hooked = torch.nn.RMSNorm(8)
    hooked.register_forward_hook(lambda module, given, made: made + 1)
    model = torch.nn.Sequential(Gemma(8), hooked, torch.nn.RMSNorm(8)).to(device)
    x = torch.randn(3, 8, device=device)
    with torch.no_grad():
        want = model(x)
        done = replace_rms_norm(model)
        torch.testing.assert_close(model(x), want)
    assert "subclass" in done["0"] and "hooks" in done["1"] and done["2"] == "replaced"


def test_a_norm_that_is_held_twice_stays_one(device):
    model = torch.nn.Module()
    model.first = model.second = torch.nn.RMSNorm(8).to(device)
    model.inner = torch.nn.Module()
    model.inner.third = model.first
    assert replace_rms_norm(model) == {"first": "replaced", "second": "replaced", "inner.third": "replaced"}
    assert type(model.first) is FusedRMSNorm
    assert model.first is model.second is model.inner.third
