"""torch.compile and torch.library (A10): no graph break, no copies, one kernel, no recompilation when M varies."""

from __future__ import annotations

import re

import pytest
import torch
import torch._dynamo.testing

from robot_perf.kernels import rmsnorm_ops
from robot_perf.kernels.rmsnorm import add_rms_norm, add_rms_norm_, rms_norm, rms_norm_
from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference
from tests.kernels.oracle import check, truth

ON_GPU = torch.cuda.is_available()
gpu = pytest.mark.skipif(not ON_GPU, reason="Inductor takes Triton kernels on a GPU only")


def block(x, r, w):
    y, s = add_rms_norm(x, r, w)
    return rms_norm(y, w), s, y


def in_place(x, r, w):
    add_rms_norm_(x, r, w)
    rms_norm_(x, w)
    return x * 1


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def reference(x, r, w):
    y, s = add_rms_norm_reference(x, r, w)
    return rms_norm_reference(y, w), s, y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
def test_a_full_graph_on_the_cpu(backend):
    x, r, w = torch.randn(3, 64), torch.randn(3, 64), torch.randn(64)
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    for got, want in zip(compiled(x, r, w), reference(x, r, w), strict=True):
        torch.testing.assert_close(got, want)
    a, b = x.clone(), r.clone()
    out = torch.compile(in_place, fullgraph=True, backend=backend)(a, b, w)
    torch.testing.assert_close(out, reference(x, r, w)[0])
    torch.testing.assert_close(b, x + r)


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_call_that_wants_a_gradient_gets_one():
    x, w = torch.randn(3, 64, requires_grad=True), torch.randn(64, requires_grad=True)
    with torch.enable_grad():
        torch.compile(lambda t: rms_norm(t, w), fullgraph=True, backend="aot_eager")(x).sum().backward()
        got = x.grad.clone()
        x.grad = None
        torch.nn.functional.rms_norm(x, (64,), w, 1e-6).sum().backward()
    torch.testing.assert_close(got, x.grad)


@pytest.mark.filterwarnings("ignore")
def test_the_number_of_rows_does_not_recompile():
    count = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(block, fullgraph=True, backend=count, dynamic=True)
    w = torch.randn(64)
    compiled(torch.randn(2, 64), torch.randn(2, 64), w)
    first = count.frame_count
    for m in (3, 16, 17, 600):
        compiled(torch.randn(m, 64), torch.randn(m, 64), w)
    assert count.frame_count == first


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", ("rms_norm", "add_rms_norm", "rms_norm_", "add_rms_norm_"))
def test_the_ops_pass_torchs_own_checks(op):
    rmsnorm_ops.register()
    x, r, w = torch.randn(3, 64), torch.randn(3, 64), torch.randn(64)
    one, two = (x, w, 1e-6, 0.0, "fp32", False), (x, r, w, 1e-6, True, 0.0, "fp32", False)
    torch.library.opcheck(getattr(torch.ops.robot_perf, op), two if "add" in op else one)


@pytest.mark.filterwarnings("ignore")
def test_zero_rows_under_compile(device):
    x = torch.empty(0, 64, device=device)
    backend = "inductor" if ON_GPU else "aot_eager"
    assert torch.compile(rms_norm, fullgraph=True, backend=backend)(x).shape == (0, 64)


@gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("m", (1, 33))
def test_inductor_takes_the_kernel_and_adds_no_copy(m):
    from torch._inductor.utils import run_and_get_code

    x, r = (torch.randn(m, 1024, device="cuda").to(torch.bfloat16) for _ in range(2))
    w = torch.randn(1024, device="cuda").to(torch.bfloat16)
    (y, s, middle), code = run_and_get_code(torch.compile(block, fullgraph=True, dynamic=False), x, r, w)
    assert torch.equal(s, x + r)
    check(middle, truth(s, w))
    check(y, truth(middle, w))
    text = "\n".join(code)
    launches = re.findall(r"^\s+(\w+)\.run\(", text, re.M)
    assert len(launches) == 2, launches  # our two kernels and nothing else
    assert "aten.copy" not in text
    assert "aten.clone" not in text


@gpu
@pytest.mark.filterwarnings("ignore")
def test_inductor_mutates_in_place_without_copies():
    from torch._inductor.utils import run_and_get_code

    x, r = (torch.randn(5, 1024, device="cuda").to(torch.bfloat16) for _ in range(2))
    w = torch.randn(1024, device="cuda").to(torch.bfloat16)
    total = x + r
    pointers = x.data_ptr(), r.data_ptr()

    def step(x, r, w):
        add_rms_norm_(x, r, w)

    _, code = run_and_get_code(torch.compile(step, fullgraph=True), x, r, w)
    assert (x.data_ptr(), r.data_ptr()) == pointers
    assert torch.equal(r, total)
    check(x, truth(total, w))
    assert len(re.findall(r"^\s+\w+\.run\(", "\n".join(code), re.M)) == 1


@gpu
@pytest.mark.filterwarnings("ignore")
def test_inductor_does_not_recompile_for_other_row_counts():
    count = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    compiled = torch.compile(block, fullgraph=True, backend=count, dynamic=True)
    w = torch.randn(1024, device="cuda").to(torch.bfloat16)
    first = None
    for m in (2, 3, 17, 600):
        x, r = (torch.randn(m, 1024, device="cuda").to(torch.bfloat16) for _ in range(2))
        y, s, middle = compiled(x, r, w)
        assert torch.equal(s, x + r)
        check(middle, truth(s, w))
        check(y, truth(middle, w))
        first = first or count.frame_count
    assert count.frame_count == first


@gpu
@pytest.mark.filterwarnings("ignore")
def test_no_fp64_under_compile():
    import triton

    x, w = torch.randn(4, 768, device="cuda"), torch.randn(768, device="cuda")
    before = set(_cached_ptx(triton))
    torch.compile(lambda t: rms_norm(t, w, 1.2345e-6), fullgraph=True)(x)
    new = [p for p in _cached_ptx(triton) if p not in before]
    texts = [p.read_text() for p in new if "rms" in p.name]
    assert texts, "the compiled graph's kernel left no PTX in Triton's cache"
    for text in texts:
        assert not re.search(r"\.f64\b", text)


def _cached_ptx(triton):
    from pathlib import Path

    roots = [Path(triton.knobs.cache.dir)]
    import torch._inductor.runtime.cache_dir_utils as dirs

    roots.append(Path(dirs.cache_dir()))
    return [p for root in roots if root.is_dir() for p in root.rglob("*.ptx")]
