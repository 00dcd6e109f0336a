"""A backend that can't take a policy names one that can."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from robot_perf import policies
from robot_perf.backends import BACKENDS, why_not

MLP = policies.describe("mlp", preset="tiny")


@pytest.mark.parametrize("kind", ["onnx", "torchscript", "torch_export", "factory", "null"])
@pytest.mark.parametrize("name", BACKENDS)
def test_the_backends_that_a_refusal_names_take_it(name, kind):
    """ONNX files were sent to eager, TorchScript files to onnxruntime."""
    policy = policies.describe("null") if kind == "null" else replace(MLP, kind=kind)
    reason = why_not(name, policy)
    if reason is None:
        return
    named = [b for b in BACKENDS if b != name and re.search(rf"\b{b}\b", reason)]
    assert all(why_not(b, policy) is None for b in named), reason
    assert named or name in ("compile", "tensorrt", "tensorrt_rtx"), reason
