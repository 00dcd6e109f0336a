"""The bench on a CUDA device: graphs against eager, keep-warm, and what the device did meanwhile."""

from __future__ import annotations

import pytest

from robot_perf.cli.__main__ import main
from robot_perf.run.bench_report import load

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    folder = tmp_path_factory.mktemp("bench")
    with pytest.raises(SystemExit) as end:
        main(["bench", "mlp", "lstm", "--backends", "eager,cuda_graph", "--rates", "100,tight", "--steps", "200", "--device",
              "cuda:0", "--keep-warm", "rehearse:500,tiny-kernel:300,touch:500,spin-sync", "-o", str(folder), "--json"])  # fmt: skip
    assert end.value.code == 0
    return load(folder / "bench.json")


def test_a_graph_is_faster_back_to_back(report):
    for policy in ("mlp-quadruped", "lstm-small"):
        rows = {r.backend: r for r in report.rows if r.policy == policy}
        eager, graph = rows["eager"].point("tight"), rows["cuda_graph"].point("tight")
        assert graph.p("p50") < eager.p("p50")
        assert rows["cuda_graph"].facts["captured"] is True


def test_every_cure_was_measured_on_the_graph(report):
    row = next(r for r in report.rows if r.policy == "lstm-small" and r.backend == "cuda_graph")
    cures = {p.keep_warm: p.status for p in row.points if p.rate == "100"}
    assert cures == dict.fromkeys(("none", "rehearse:500", "tiny-kernel:300", "touch:500", "spin-sync"), "ok")


def test_the_device_was_watched(report):
    point = report.rows[0].point("100")
    assert report.machine.device != "unknown machine"
    assert all(b.sm_hz is not None for b in point.blocks)
    assert point.power_w is None or point.power_w > 0
