"""The `tensorrt` backend: an engine built from ONNX, run without torch through cuda-python, as one CUDA graph by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_perf.backends.protocol import Runner
from robot_perf.backends.trt import api, build
from robot_perf.specs import PolicySpec

EDITION = "tensorrt"


def unavailable() -> str | None:
    """Why it can't run here, with the install line."""
    return api.unavailable(EDITION)


def takes(policy: PolicySpec) -> str | None:
    """Why this backend can't take the policy's format; None when it can."""
    return build.takes(policy)


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner; see `trt.execute.load`."""
    from robot_perf.backends.trt import execute

    return execute.load(EDITION, policy, options)
