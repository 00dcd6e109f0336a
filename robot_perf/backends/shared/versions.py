"""Versions of what the `python` backend computes with."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np


def versions() -> dict[str, Any]:
    """For the report."""
    return {"backend": "python", "python": platform.python_version(), "numpy": np.__version__}
