"""A word outside a closed list is refused with the nearest word of the list; a word near nothing without a guess."""

from __future__ import annotations

import pytest
from cli_calls import call

from robot_perf.errors import did_you_mean

DEADLINE = ("deadline", "null", "--rate", "100")


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("dedline", "mlp", "--rate", "50"), "deadline"),
        (("deadline", "mpl", "--rate", "50"), "mlp"),
        (("deadline", "spn:200", "--rate", "50"), "spin"),
        (("deadline", "mlp", "--rate", "50", "--preset", "quadrupd"), "quadruped"),
        ((*DEADLINE, "--backend", "onnxruntme"), "onnxruntime"),
        ((*DEADLINE, "--overrun", "skp"), "skip"),
        ((*DEADLINE, "--wait", "Hybritt"), "hybrid"),
        (("bench", "mlp", "--backends", "tensort"), "tensorrt"),
        (("devices", "show", "H20 SXM"), "H200 SXM"),
        (("devices", "shows", "H200 SXM"), "show"),
        (("kernels", "bnch"), "bench"),
        (("kernels", "bench", "rmsnrm"), "rmsnorm"),
        (("launch", "overhed"), "overhead"),
        (("devices", "list", "--class", "jetsn"), "jetson"),
        (("ceiling", "--params", "8e9", "--on", "agx-orin", "--power-mode", "MAXM"), "MAXN"),
        (("ceiling", "--params", "8e9", "--on", "agx-orin", "--compute", "bf61"), "bf16"),
        (("ceiling", "--params", "8e9", "--on", "agx-orin", "--weight-format", "int4-g12"), "int4-g128"),
    ],
)
def test_the_nearest_name_is_suggested(capsys, arguments, near):
    assert call(*arguments) == 2
    error = capsys.readouterr().err
    assert "Did you mean " in error and near in error[error.index("Did you mean ") :].split("?")[0]


def test_a_file_near_the_mistyped_one_is_suggested(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk.onnx").write_bytes(b"x")
    assert call("deadline", "walk.onxx", "--rate", "50") == 2
    assert "Did you mean walk.onnx?" in capsys.readouterr().err


def test_a_link_to_nowhere_says_where_it_leads(tmp_path, monkeypatch, capsys):
    """`latest.onnx` of a deployment that was cleaned up."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latest.onnx").symlink_to("v7/walk.onnx")
    assert call("deadline", "latest.onnx", "--rate", "50") == 2
    told = capsys.readouterr().err
    assert "latest.onnx is a link to v7/walk.onnx, which is not there" in told
    assert "Did you mean" not in told, "itself"


def test_nothing_is_suggested_where_nothing_is_near(capsys):
    assert call(*DEADLINE, "--overrun", "zzz") == 2
    error = capsys.readouterr().err
    assert "Did you mean" not in error and "Known: skip, queue." in error
    assert did_you_mean("zzz", ["skip", "queue"]) == ""
