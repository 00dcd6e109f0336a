"""The kernel tests run on a GPU where there is one, else through Triton's CPU interpreter: the same tests, cut sizes.

The interpreter has to be asked for before triton is first imported, hence the environment variable at import time.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'robot_perf[torch]'")

HAVE_TRITON = importlib.util.find_spec("triton") is not None
ON_GPU = torch.cuda.is_available()
if HAVE_TRITON and not ON_GPU and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _round_bf16_to_nearest() -> None:
    """Triton 3.6's interpreter truncates FP32 to BF16; a GPU rounds to nearest, as the contract says. Mends the interpreter."""
    if not HAVE_TRITON or ON_GPU:
        return
    import numpy as np
    from triton import language as tl
    from triton.runtime import interpreter

    truncating = interpreter._convert_float

    def convert(data, source, target, rounding):  # type: ignore[no-untyped-def]
        if source == tl.float32 and target == tl.bfloat16:
            flat = torch.from_numpy(np.ascontiguousarray(data).reshape(-1).view(np.float32).copy())
            return flat.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16).reshape(data.shape)
        return truncating(data, source, target, rounding)

    interpreter._convert_float = convert


@pytest.fixture(scope="session")
def device() -> str:
    """Where the kernels run: "cuda", or "cpu" under the interpreter. Skips where neither is possible."""
    if not HAVE_TRITON:
        pytest.skip("triton is not installed")
    if ON_GPU:
        return "cuda"
    from robot_perf.kernels.rmsnorm_launch import interpreting

    if not interpreting():
        pytest.skip("triton was imported without TRITON_INTERPRET=1 and there is no GPU")
    return "cpu"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """NaN, Inf and overflow are inputs here: numpy, under the interpreter, need not warn of them."""
    for item in items:
        if "tests/kernels" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bench's processes are stand-ins; the file that they log their commands to."""
    from bench_stand_in import STAND_IN

    from robot_perf.measure.kernel_bench import conductor, process

    script, log = tmp_path / "worker.py", tmp_path / "order.txt"
    script.write_text(STAND_IN % str(log))
    monkeypatch.setattr(process, "WORKER", (sys.executable, str(script)))
    monkeypatch.setattr(conductor, "open_meter", lambda device: (None, "none here"))
    return log
