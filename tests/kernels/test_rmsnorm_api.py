"""Errors, fallbacks, gradients, imports, support by capability (A6, A13, A14)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from robot_perf.errors import BackendUnavailableError, UsageError
from robot_perf.kernels import rmsnorm_support as support
from robot_perf.kernels.rmsnorm import add_rms_norm, add_rms_norm_, explain, rms_norm, rms_norm_, warmup
from robot_perf.kernels.rmsnorm_compile_error import explain_compile_error
from robot_perf.kernels.rmsnorm_reference import rms_norm_reference

ROOT = Path(__file__).resolve().parents[2]
x64 = torch.zeros(2, 64)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rms_norm(x64.double()), ("x", "float64", "float16")),
        (lambda: rms_norm(x64.long()), ("x", "int64")),
        (lambda: rms_norm([1.0, 2.0]), ("x", "list")),
        (lambda: rms_norm(torch.tensor(1.0)), ("no dimensions",)),
        (lambda: rms_norm(x64, torch.ones(63)), ("weight", "(63,)", "(64,)")),
        (lambda: rms_norm(x64, torch.ones(2, 64)), ("weight", "(2, 64)")),
        (lambda: rms_norm(x64, torch.ones(64, dtype=torch.int32)), ("weight", "int32")),
        (lambda: rms_norm(x64, None, -1e-6), ("eps", "-1e-06")),
        (lambda: rms_norm(x64, None, float("nan")), ("eps", "nan")),
        (lambda: rms_norm(x64, None, None), ("eps", "None")),
        (lambda: rms_norm(x64, None, cast="bf16"), ("cast", "bf16", "'hf'")),
        (lambda: rms_norm(x64, None, weight_offset=1.0), ("weight_offset", "weight")),
        (lambda: rms_norm(x64, torch.ones(64), weight_offset=float("inf")), ("weight_offset", "inf")),
        (lambda: add_rms_norm(x64, torch.zeros(3, 64)), ("residual", "(3, 64)", "(2, 64)")),
        (lambda: add_rms_norm(x64, x64.half()), ("residual", "float16", "float32")),
        (lambda: add_rms_norm_(x64.clone(), torch.zeros(2, 63)), ("residual", "(2, 63)")),
    ],
)
def test_errors_name_the_argument_what_was_got_and_what_is_accepted(call, words):
    with pytest.raises(UsageError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_a_row_above_the_supported_width_is_refused():
    from robot_perf.kernels.rmsnorm_config import MAX_D, DeviceFacts, choose

    with pytest.raises(UsageError, match=str(MAX_D)):
        choose(1, MAX_D + 1, 2, DeviceFacts(90, 132, 2**26))


def test_rows_larger_than_the_cache_get_hints_and_clusters_without_barriers_on_sm_90_alone():
    from robot_perf.kernels.rmsnorm_config import MEASURED, PASS, DeviceFacts, choose

    h200 = DeviceFacts(90, 132, 60 * 2**20)
    for m, d in ((512, 65536), (2048, 49152), (1024, 131072)):
        large = choose(m, d, 2, h200)
        assert large.remote
        assert large.policy == PASS
        assert large.basis == MEASURED
        for other in (DeviceFacts(100, 148, 60 * 2**20), DeviceFacts(120, 170, 60 * 2**20)):
            assert not choose(m, d, 2, other).remote
            assert choose(m, d, 2, other).policy != PASS
    assert all(
        choose(m, d, 2, h200).policy == PASS for m, d in ((16384, 8192), (8192, 5120), (32768, 1000), (2**20, 2048))
    )
    for m, d in ((1, 65536), (132, 65536), (400, 65536), (4096, 4096), (2**20, 768), (None, 65536)):
        small = choose(m, d, 2, h200)
        assert not small.remote
        assert small.policy != PASS


def test_gradients_take_the_torch_operations_and_are_right(device):
    x = torch.randn(3, 64, device=device, requires_grad=True)
    w = torch.randn(64, device=device, requires_grad=True)
    assert "gradient" in explain(x, w)
    rms_norm(x, w).square().sum().backward()
    got = x.grad.clone(), w.grad.clone()
    x.grad = w.grad = None
    torch.nn.functional.rms_norm(x, (64,), w, 1e-6).square().sum().backward()
    torch.testing.assert_close(got[0], x.grad)
    torch.testing.assert_close(got[1], w.grad)
    y, s = add_rms_norm(x, torch.randn(3, 64, device=device), w)
    assert y.requires_grad
    assert s.requires_grad
    with torch.no_grad():
        assert explain(x, w).startswith("kernel:")
        assert not rms_norm(x, w).requires_grad


def test_a_gradient_asked_for_after_the_shape_was_seen_is_not_lost(device):
    x = torch.randn(3, 64, device=device)
    rms_norm(x)
    x.requires_grad_()
    assert rms_norm(x).requires_grad


def test_in_place_refuses_gradients(device):
    with pytest.raises(UsageError, match="in-place"):
        rms_norm_(torch.randn(2, 64, device=device), torch.ones(64, device=device, requires_grad=True))


def test_jit_trace_records_operations_not_a_constant(device):
    x = torch.randn(2, 64, device=device)
    rms_norm(x)
    with pytest.warns(DeprecationWarning) if sys.version_info >= (3, 14) else _nothing():
        traced = torch.jit.trace(rms_norm, (x,), check_trace=False)
    other = torch.randn(2, 64, device=device)
    torch.testing.assert_close(traced(other), rms_norm_reference(other))


@pytest.mark.parametrize("tracing_mode", ["real", "symbolic"])
def test_a_traced_graph_has_the_op_and_not_what_was_in_the_memory(device, tracing_mode):
    from torch.fx.experimental.proxy_tensor import make_fx

    x, r, w = torch.randn(3, 64, device=device), torch.randn(3, 64, device=device), torch.randn(64, device=device)

    def step(x, r, w):
        y, s = add_rms_norm(x, r, w)
        return rms_norm(y, w), s

    with torch.no_grad():
        step(x, r, w)  # a call seen before goes straight to the launch, but for who watches
        traced = make_fx(step, tracing_mode=tracing_mode)(x, r, w)
        names = [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]
        assert "robot_perf.add_rms_norm.default" in names
        assert "robot_perf.rms_norm.default" in names
        x, r = torch.randn(3, 64, device=device), torch.randn(3, 64, device=device)
        for got, want in zip(traced(x, r, w), step(x, r, w), strict=True):
            torch.testing.assert_close(got, want)


def test_a_dispatch_mode_sees_the_ops(device):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            seen.append(str(op))
            return op(*args, **(kwargs or {}))

    x, r, w = torch.randn(2, 64, device=device), torch.randn(2, 64, device=device), torch.randn(64, device=device)
    want, want_s = add_rms_norm(x, r, w)
    with torch.no_grad(), Watch():
        rms_norm(x, w)
        add_rms_norm_(x, r, w)
        rms_norm_(r, w)
        with pytest.raises(UsageError, match="share memory"):
            add_rms_norm_(x, x, w)
    assert [op for op in seen if op.startswith("robot_perf")] == [
        "robot_perf.rms_norm.default", "robot_perf.add_rms_norm_.default", "robot_perf.rms_norm_.default",
    ]  # fmt: skip
    torch.testing.assert_close(x, want)
    torch.testing.assert_close(r, rms_norm(want_s, w))


def test_a_fake_tensor_is_written_in_place_by_the_op(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, r = torch.empty(2, 64, device=device), torch.empty(2, 64, device=device)
        assert add_rms_norm_(x, r)[0] is x
        assert rms_norm_(x) is x


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_vmap_and_jvp_take_the_torch_operations(device):
    x, w = torch.randn(3, 5, 64, device=device), torch.randn(64, device=device)
    rms_norm(x[0], w)
    for _ in range(2):  # seen before or not
        torch.testing.assert_close(torch.vmap(lambda t: rms_norm(t, w))(x), rms_norm(x, w))
    y, change = torch.func.jvp(lambda t: rms_norm(t, w), (x,), (x,))
    torch.testing.assert_close(y, rms_norm(x, w))
    torch.testing.assert_close(
        change, torch.zeros_like(x), atol=1e-3, rtol=0
    )  # a norm doesn't change with its input's scale


class _nothing:
    def __enter__(self):
        import warnings

        self.ignore = warnings.catch_warnings()
        self.ignore.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *args):
        self.ignore.__exit__(*args)


def test_warmup_counts_its_calls(device):
    assert warmup([(1, 64), (3, 64)], [torch.float16], device=device) == 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_a_cpu_tensor_without_the_interpreter_takes_torch_operations():
    code = (
        "import torch; from robot_perf.kernels.rmsnorm import *; x = torch.randn(2, 8); print(explain(x));"
        "assert torch.allclose(rms_norm(x), torch.nn.functional.rms_norm(x, (8,), None, 1e-6));"
        "y = x.clone(); rms_norm_(y); assert torch.equal(y, rms_norm(x));"
        "r = x + 1; a, b = add_rms_norm(x, r); c, e = x.clone(), r.clone(); add_rms_norm_(c, e); assert torch.equal(a, c) and torch.equal(b, e)"
    )
    out = run(code)
    assert "torch operations: x is on cpu" in out


def test_the_module_imports_neither_torch_nor_triton():
    out = run(
        "import sys, robot_perf.kernels.rmsnorm, robot_perf.kernels.rmsnorm_config, robot_perf.kernels.residual;"
        "print([m for m in ('torch', 'triton', 'numpy') if m in sys.modules])"
    )
    assert out.strip() == "[]"


def test_every_module_imports_without_triton_and_the_ops_take_torch_operations():
    out = run(
        "import sys; sys.modules['triton'] = None\n"
        "import importlib, pkgutil, robot_perf.kernels as k\n"
        "for m in pkgutil.iter_modules(k.__path__): importlib.import_module('robot_perf.kernels.' + m.name)\n"
        "import torch; from robot_perf.kernels.rmsnorm import *; print(explain(torch.zeros(1, 8))); rms_norm(torch.zeros(1, 8))"
    )
    assert "Triton is not installed" in out


def test_without_torch_the_error_says_how_to_get_it():
    out = run(
        "import sys; sys.modules['torch'] = None\n"
        "from robot_perf.kernels.rmsnorm import rms_norm\n"
        "from robot_perf.errors import RobotPerfError\n"
        "try: rms_norm(1)\nexcept RobotPerfError as e: print(e)"
    )
    assert "robot_perf[torch]" in out


def run(code):
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dtypes_by_capability():
    support.check_dtype("x", "float16", 75)
    support.check_dtype("x", "bfloat16", 87)
    with pytest.raises(UsageError, match=r"7\.5.*no BF16"):
        support.check_dtype("x", "bfloat16", 75)
    with pytest.raises(UsageError, match=r"7\.0"):
        support.check_dtype("x", "float16", 70)


def test_the_advice_for_thor_names_the_variable():
    advice = support.triton_advice(110, (12, 9))
    assert "TRITON_PTXAS_PATH" in advice
    assert "TRITON_PTXAS_BLACKWELL_PATH" in advice
    assert "13.0" in advice
    assert support.triton_advice(110, (13, 0)) is None
    assert support.triton_advice(87, (12, 8)) is None
    error = explain_compile_error(
        RuntimeError("ptxas fatal : Value 'sm_110a' is not defined for option 'gpu-name'"), 110
    )
    assert isinstance(error, BackendUnavailableError)
    assert "TRITON_PTXAS_PATH" in str(error)
