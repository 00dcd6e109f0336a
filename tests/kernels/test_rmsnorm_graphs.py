"""CUDA graphs, streams, host path (A9, A11, A12). GPU only."""

from __future__ import annotations

import pytest
import torch

from robot_perf.errors import UsageError
from robot_perf.kernels import rmsnorm_eager, rmsnorm_launch
from robot_perf.kernels.rmsnorm import add_rms_norm, add_rms_norm_, rms_norm, warmup

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    # torch's own, where a test means to: a capture that ends without a kernel, a profiler that keeps one cycle
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning"),
]


def capture(call, stream=None):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = call()
    return graph, out


@pytest.mark.parametrize("d", (256, 1000, 4096, 16384, 65536))
@pytest.mark.parametrize("m", (1, 40, 700))
def test_replay_is_bitwise_eager(m, d):
    x, r = (torch.randn(m, d, device="cuda").to(torch.bfloat16) for _ in range(2))
    w = torch.randn(d, device="cuda").to(torch.bfloat16)
    warmup([(m, d)], [torch.bfloat16])
    for stream in (None, torch.cuda.Stream()):
        graph, (y, s, z) = capture(lambda: (*add_rms_norm(x, r, w), rms_norm(x, w)), stream)
        for _ in range(2):
            x.normal_()
            y.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            expected = (*add_rms_norm(x, r, w), rms_norm(x, w))
            assert all(torch.equal(a, b) for a, b in zip((y, s, z), expected, strict=True))


# (rows, width): one block per row; clusters that exchange their sums by stores that count on a barrier; cache hints
CHAINS = [(3, 2048), (3, 65536), (600, 65536), (560, 131072), (8200, 8192)]


@pytest.mark.parametrize(("m", "d"), CHAINS)
def test_a_chain_of_dependent_kernels_in_one_graph(m, d):
    # dependent launch starts a kernel before its predecessor ends: every read must still see the predecessor's writes
    steps = 60
    w = (1 + 0.01 * torch.randn(d, device="cuda")).to(torch.bfloat16)
    x0, r0 = (torch.randn(m, d, device="cuda").to(torch.bfloat16) for _ in range(2))
    warmup([(m, d)], [torch.bfloat16])
    x, r = x0.clone(), r0.clone()
    graph, _ = capture(lambda: [add_rms_norm_(x, r, w) for _ in range(steps)])
    want_x, want_r = x0.clone(), r0.clone()
    for _ in range(steps):
        want_x, want_r = add_rms_norm(want_x, want_r, w)
        torch.cuda.synchronize()
    for _ in range(20):
        x.copy_(x0)
        r.copy_(r0)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(x, want_x)
        assert torch.equal(r, want_r)


@pytest.mark.parametrize(("m", "d"), CHAINS[2:])
def test_launches_that_overlap_keep_their_sums_apart(m, d):
    # Every launch has another input, so a number that reaches the shared memory of another launch's block, or one that is not
    # waited for, changes an output. Small launches between them change which block follows which on an SM.
    many = 12
    w = (1 + 0.1 * torch.randn(d, device="cuda")).to(torch.bfloat16)
    inputs = [torch.randn(m, d, device="cuda").mul_(2.0**i).to(torch.bfloat16) for i in range(many)]
    small = torch.randn(5, d, device="cuda").to(torch.bfloat16)
    rms_norm(small, w)
    want = []
    for i, x in enumerate(inputs):
        want.append((rms_norm(x, w), *add_rms_norm(x, inputs[i - 1], w)))
        torch.cuda.synchronize()
        assert torch.equal(want[-1][1], rms_norm(want[-1][2], w))  # N6
        torch.cuda.synchronize()

    def chain():
        out = []
        for i, x in enumerate(inputs):
            plain = rms_norm(x, w)
            if i % 3 == 0:
                rms_norm(small, w)
            out.append((plain, *add_rms_norm(x, inputs[i - 1], w)))
        return out

    graph, captured = capture(chain)
    for _ in range(25):
        for out in captured:
            for tensor in out:
                tensor.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for got, right in zip(captured, want, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(got, right, strict=True))
    for _ in range(10):
        for got, right in zip(chain(), want, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(got, right, strict=True))


def test_between_other_kernels_in_eager_and_in_a_graph():
    d = 4096
    w = torch.ones(d, device="cuda", dtype=torch.bfloat16)
    a = torch.randn(d, d, device="cuda").to(torch.bfloat16) / 64
    x = torch.randn(1, d, device="cuda").to(torch.bfloat16)
    warmup([(1, d)], [torch.bfloat16])

    def step():
        h = x
        for _ in range(8):
            h = rms_norm(h @ a, w)
        return h

    def slow():
        h = x
        for _ in range(8):
            h = h @ a
            torch.cuda.synchronize()
            h = rms_norm(h, w)
            torch.cuda.synchronize()
        return h

    want = slow()
    step()
    graph, y = capture(step)
    for _ in range(10):
        assert torch.equal(step(), want)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, want)


def test_capture_without_warm_up_says_so():
    d = 4104 + 8  # a width no other test uses
    x = torch.randn(1, d, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(UsageError, match="warmup"):  # noqa: SIM117
        with torch.cuda.graph(graph):
            rms_norm(x)
    torch.cuda.synchronize()
    warmup([(1, d)], [torch.float32], weight=False)
    graph, y = capture(lambda: rms_norm(x))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, rms_norm(x))


def test_nothing_to_launch_in_a_capture():
    x = torch.empty(0, 64, device="cuda")
    graph, y = capture(lambda: rms_norm(x))
    graph.replay()
    assert y.shape == (0, 64)


def test_streams_are_respected():
    x = torch.randn(4096, 4096, device="cuda")
    want = rms_norm(x)
    side = torch.cuda.Stream()
    y = torch.empty_like(x)
    with torch.cuda.stream(side):
        for _ in range(20):
            y = rms_norm(x)
        done = side.record_event()
    torch.cuda.current_stream().wait_event(done)
    assert torch.equal(y, want)


def test_a_second_call_is_a_plan_and_one_launch():
    x = torch.randn(1, 512, device="cuda")
    rmsnorm_eager.forget_plans()
    rms_norm(x)
    assert len(rmsnorm_eager.plans) == 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        rms_norm(x)
        torch.cuda.synchronize()
    kernels = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(kernels) == 1, [e.name for e in kernels]


def test_no_loaded_variant_spills():
    for d in (4096, 16384, 32768):  # alone, too, there is something to look at
        rms_norm(torch.randn(2, d, device="cuda").to(torch.bfloat16))
    assert rmsnorm_launch._loaded or not rmsnorm_launch.direct()
    for (variant, _), loaded in rmsnorm_launch._loaded.items():
        if variant.d <= 32768 and variant.vector:
            assert loaded.spills == 0, (variant, loaded.registers)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_tensor_on_another_device_is_launched_there():
    x = torch.randn(2, 64, device="cuda:1")
    for _ in range(2):
        assert rms_norm(x).device == x.device
    torch.testing.assert_close(rms_norm(x), torch.nn.functional.rms_norm(x, (64,), None, 1e-6))
