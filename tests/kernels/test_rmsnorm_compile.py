"""torch.compile and torch.library (A10): no graph break, no copies, one kernel, no recompilation when M varies."""

from __future__ import annotations

import re

import pytest
import torch
import torch._dynamo.testing

from robot_perf.errors import UsageError
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
@pytest.mark.parametrize("wanting", ["x", "weight"])
def test_a_compiled_in_place_call_that_wants_a_gradient_raises(wanting):
    """The gradient ignored the norm: it came out as if rms_norm_ had not been called."""
    p, w = torch.randn(3, 64, requires_grad=wanting == "x"), torch.randn(64, requires_grad=wanting == "weight")

    def step(p, r, w):
        h = p * 2
        return (rms_norm_(h, w) if r is None else add_rms_norm_(h, r, w)[0]).sum()

    for residual in (None, torch.randn(3, 64)):
        with torch.enable_grad(), pytest.raises(UsageError, match="can't be differentiated"):
            torch.compile(step, backend="aot_eager")(p, residual, w)


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_in_place_call_writes_rows_or_raises():
    x = torch.randn(64, 3).t()  # eager refuses it, too
    with pytest.raises(Exception, match="can't be written in place"):
        torch.compile(rms_norm_, backend="aot_eager")(x)


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
def test_no_fp64_under_compile(tmp_path, monkeypatch):
    import triton

    # caches of its own: what an earlier run left there is not compiled again
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
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


ANALYSIS = """
import sys, torch, triton
from triton.backends.compiler import GPUTarget

class Driver:  # stands for a GPU's driver: the analysis asks it for the target alone
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0
    def get_active_torch_device(self): return torch.device("cuda", 0)
    def map_python_to_cpp_type(self, name): return name

triton.runtime.driver.set_active(Driver())
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from functorch.compile import make_boxed_func
from robot_perf.kernels import rmsnorm_config, rmsnorm_ops
from robot_perf.kernels.rmsnorm import *
rmsnorm_ops.register()
rmsnorm_ops.device_facts = lambda index: rmsnorm_config.DeviceFacts(90, 132, 60 * 2**20)
mode = FakeTensorMode()

def show(graph, example):
    for node in graph.graph.nodes:
        if "triton_kernel_wrapper" in str(node.target):
            print(NAME, ",".join(sorted(node.kwargs["tensors_to_clone"])))
        elif node.op == "call_function" and ("copy" in str(node.target) or "clone" in str(node.target)):
            print(NAME, "COPY", node.target)
    return make_boxed_func(graph.forward)

def run(name, function, *shapes, strides=None):
    global NAME
    NAME = name
    with mode, torch.no_grad():
        dense = [torch.empty(s, device="meta").stride() for s in shapes]
        inputs = [torch.empty_strided(*layout, dtype=torch.bfloat16, device="cuda") for layout in zip(shapes, strides or dense)]
        torch._dynamo.reset()
        backend = aot_autograd(fw_compiler=show, decompositions=select_decomp_table())
        try:
            torch.compile(function, fullgraph=True, backend=backend)(*inputs)
        except RuntimeError as error:  # there is no CUDA to run the graph with; it was shown by then
            assert "CUDA" in str(error) or "cuda" in str(error), error

run("plain", lambda x, w: rms_norm(x, w), (4, 1024), (1024,))
run("bare", lambda x: rms_norm(x), (4, 1024))
run("add", lambda x, r, w: add_rms_norm(x, r, w), (4, 1024), (4, 1024), (1024,))
run("in-place", lambda x, r, w: add_rms_norm_(x, r, w), (4, 1024), (4, 1024), (1024,))
run("wide", lambda x, w: rms_norm(x, w), (4, 65536), (65536,))
STRIDED = ((1024, 1), (2,))
run("strided-weight", lambda x, w: rms_norm(x, w), (4, 1024), (1024,), strides=STRIDED)
run("strided-weight-in-place", lambda x, w: rms_norm_(x, w), (4, 1024), (1024,), strides=STRIDED)
run("unaligned", lambda x, w: rms_norm(x, w, batch_invariant=True), (4, 1024), (1024,), strides=((1025, 1), (1,)))
"""


@pytest.mark.skipif(ON_GPU, reason="the tests above ask Inductor itself")
def test_the_compilers_analysis_finds_exactly_the_outputs_written():
    # If it can't read the kernel it takes every argument for written, and copies each before the launch.
    import os
    import subprocess
    import sys
    from pathlib import Path

    pytest.importorskip("triton")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ANALYSIS], capture_output=True, text=True, env=environment, check=False,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.splitlines() == [
        "plain y", "bare y", "add s,y", "in-place s,y", "wide y",
        # the kernel reads a weight as dense: what isn't is copied, in place too
        "strided-weight COPY aten.clone.default", "strided-weight y",
        "strided-weight-in-place COPY aten.clone.default", "strided-weight-in-place y",
        # and bits that are promised not to depend on the layout are those of an aligned copy
        "unaligned COPY aten.clone.default", "unaligned y",
    ], done.stdout  # fmt: skip
