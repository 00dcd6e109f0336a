"""Which backends take a policy of some format: the second half of every "can't take it"."""

from __future__ import annotations

from robot_perf.specs import PolicySpec

__all__ = ["taken_by"]

_TAKEN = {
    "onnx": "an ONNX file runs on onnxruntime or tensorrt",
    "torchscript": "a TorchScript file runs on eager or cuda_graph",
    "torch_export": "a torch.export file runs on eager, compile or cuda_graph",
    "factory": "a factory runs on python where it is numpy, on eager, compile or cuda_graph where it is torch",
    "pipeline": "a pipeline runs on the backends of its stages",
    "builtin": "null and spin run on python",
}


def taken_by(policy: PolicySpec) -> str:
    """`an ONNX file runs on onnxruntime or tensorrt`."""
    return _TAKEN.get(policy.kind, f"nothing here takes {policy.kind}")
