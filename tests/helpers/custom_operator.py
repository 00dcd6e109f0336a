"""A model with an operator that only a library of custom operators has, and such a library."""

from __future__ import annotations

from pathlib import Path

import pytest

DOMAIN = "ai.onnx.contrib"


def model_and_library(folder: Path) -> tuple[Path, str]:
    """action = max(obs, 0) through NegPos of onnxruntime-extensions. Skips where that or onnx is not installed."""
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    extensions = pytest.importorskip("onnxruntime_extensions", reason="onnxruntime-extensions is not installed")
    info, opset = onnx.helper.make_tensor_value_info, onnx.helper.make_opsetid
    nodes = [onnx.helper.make_node("NegPos", ["obs"], ["negative", "action"], domain=DOMAIN)]
    outputs = [info("action", 1, [1, 8]), info("negative", 1, [1, 8])]
    graph = onnx.helper.make_graph(nodes, "g", [info("obs", 1, [1, 8])], outputs)
    path = folder / "custom.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset("", 17), opset(DOMAIN, 1)], ir_version=8), path)
    return path, str(extensions.get_library_path())
