"""Small ONNX models and files for the tests of policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_perf.policies.onnxfile import encode


@pytest.fixture
def onnx_file(tmp_path: Path) -> Callable[..., Path]:
    """`onnx_file(inputs, outputs, name=…)` writes a model whose every output is a constant-free Identity or MatMul of its input.

    `inputs` and `outputs` are {name: dims}, a dim is a size, a symbol or None; output i is an Identity of input i (or of the
    last). Only the signature matters for the tests that use it.
    """
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")

    def write(inputs: dict[str, Any], outputs: dict[str, Any], name: str = "policy.onnx", **options: Any) -> Path:
        def value(pair: tuple[str, Any]) -> Any:
            return onnx.helper.make_tensor_value_info(pair[0], options.get("dtype", onnx.TensorProto.FLOAT), pair[1])

        names = list(inputs)
        nodes = [
            onnx.helper.make_node(
                options.get("op", "Identity"), [names[min(i, len(names) - 1)]], [out], domain=options.get("domain", "")
            )
            for i, out in enumerate(outputs)
        ]
        graph = onnx.helper.make_graph(
            nodes, "g", [value(p) for p in inputs.items()], [value(p) for p in outputs.items()]
        )
        opsets = [onnx.helper.make_opsetid("", options.get("opset", 17))]
        if options.get("domain"):
            opsets.append(onnx.helper.make_opsetid(options["domain"], 1))
        model = onnx.helper.make_model(graph, opset_imports=opsets, producer_name="test")
        model.ir_version = options.get("ir", 8)
        for key, text in options.get("metadata", {}).items():
            entry = model.metadata_props.add()
            entry.key, entry.value = key, text
        path = tmp_path / name
        path.write_bytes(model.SerializeToString())
        return path

    return write


@pytest.fixture
def tiny_model() -> bytes:
    """A 4-in 2-out linear policy, written by our own encoder."""
    nodes = [encode.Node("Gemm", ["obs", "w", "b"], ["actions"], {"transB": 1})]
    weights = {"w": np.ones((2, 4), np.float32), "b": np.zeros(2, np.float32)}
    return encode.model(nodes, weights, [("obs", "float32", [1, 4])], [("actions", "float32", [1, 2])])


@pytest.fixture
def refused() -> Callable[..., str]:
    """`refused(text, **asked)` describes and returns the message of the refusal, checked for form: exit code 2, at most 4 lines."""
    from robot_perf import policies
    from robot_perf.errors import ExitCode, RobotPerfError

    def check(text: object, **asked: Any) -> str:
        with pytest.raises(RobotPerfError) as caught:
            policies.describe(str(text), **asked)
        message = str(caught.value)
        assert caught.value.exit_code == ExitCode.USAGE
        assert 1 <= len(message.splitlines()) <= 4
        assert "Traceback" not in message and "weights_only" not in message
        return message

    return check
