"""What the compiler makes of every table entry, without a GPU: no spills, no FP64, wide accesses, and every chip assembles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("triton", reason="triton is not installed")

PROGRAM = """
import json, multiprocessing, os, re, subprocess, sys, tempfile, itertools
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from robot_perf.kernels import rmsnorm_config as config
from robot_perf.kernels.rmsnorm_launch import Variant, compile_variant

def spills(cubin):
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(cubin); f.flush()
        text = subprocess.run([tool, "-res-usage", f.name], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\\d+)", text)[1])

chip, sm, l2, mode = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
facts = config.DeviceFacts(chip, sm, l2)
cases = {}
for m, d, size, launch in config.table_entries(facts):
    if mode == "remote" and not (launch.remote and size == 2):
        continue
    dtypes = ("fp32",) if size == 4 else ("bf16",) if chip >= 80 else ("fp16",)
    for dtype in dtypes:
        for fused, weight in itertools.product((False, True), (dtype, "fp32") if mode == "full" else (dtype,)):
            cases[Variant(launch, d, dtype, weight, True, fused)] = None
if mode.isdecimal():
    cases = dict(list(cases.items())[:: max(1, len(cases) // int(mode))])


def compiled(v):
    c = compile_variant(v, GPUTarget("cuda", chip, 32))
    ptx = c.asm["ptx"]
    loads = re.findall(r"ld\\.global\\S*", ptx)
    return {"variant": repr(v), "d": v.d, "spills": spills(c.asm["cubin"]), "f64": bool(re.search(r"\\.f64\\b", ptx)),
                "narrow": sum(".v4" not in l and ".v2" not in l for l in loads), "dependent": "griddepcontrol" in ptx,
                "early": "griddepcontrol" in ptx and min(ptx.find("ld.global"), ptx.find("st.global")) < ptx.find("griddepcontrol.wait"),
                "cluster": "cluster" in ptx, "remote": "st.async" in ptx, "releases": "arrive.release" in ptx}


with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("fork")) as pool:
    print(json.dumps(list(pool.map(compiled, cases, chunksize=8))))
"""


def compile_all(chip, sm, l2, mode):
    import triton

    from robot_perf.kernels.rmsnorm_support import DIRECT

    if chip >= 90 and triton.__version__.rsplit(".", 1)[0] not in DIRECT:
        # `usable_facts` gives such a chip neither clusters nor dependent launch under a release that was not tested.
        pytest.skip(f"the cluster kernels are used with Triton {', '.join(DIRECT)} alone, this is {triton.__version__}")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(chip), str(sm), str(l2), mode],
        capture_output=True, text=True, cwd=ROOT, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def judge(found):
    assert found
    for entry in found:
        assert not entry["f64"], entry
        assert not entry["early"], f"memory is touched before the earlier kernels are complete: {entry}"
        if entry["d"] <= 32768:
            assert entry["spills"] == 0, entry


def test_a_sample_of_the_h200_table():
    found = compile_all(90, 132, 60 * 2**20, "12")
    judge(found)
    assert all(entry["dependent"] for entry in found)


def test_many_wide_rows_are_summed_without_waiting_for_stores():
    found = compile_all(90, 132, 60 * 2**20, "remote")
    judge(found)
    assert {entry["d"] for entry in found} >= {49152, 65536, 131072}
    for entry in found:
        assert entry["remote"], entry
        assert not entry["releases"], "the exchange waits for the block's stores"


@pytest.mark.slow
def test_every_entry_of_the_h200_table():
    judge(compile_all(90, 132, 60 * 2**20, "full"))


@pytest.mark.parametrize(("chip", "sm", "l2"), [(75, 40, 4 * 2**20), (87, 16, 4 * 2**20)], ids=["T4", "Orin"])
def test_older_chips_get_neither_clusters_nor_dependent_launch(chip, sm, l2):
    found = compile_all(chip, sm, l2, "4")
    judge(found)
    assert not any(entry["dependent"] or entry["cluster"] for entry in found)


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "sm", "l2"), [(75, 40, 4 * 2**20), (87, 16, 4 * 2**20), (120, 170, 96 * 2**20)])
def test_every_entry_for_other_chips(chip, sm, l2):
    found = compile_all(chip, sm, l2, "full")
    judge(found)
    assert not any(entry["remote"] for entry in found)
