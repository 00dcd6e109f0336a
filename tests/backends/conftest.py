"""Samples with their options and expected outputs, and torch modules saved as TorchScript for the tests of backends."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def scripted_file(tmp_path: Path) -> Callable[..., str]:
    """`scripted_file(module)` saves a torch module as TorchScript."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def save(module: Any, name: str = "policy.pt") -> str:
        path = tmp_path / name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch announces the end of its scripting
            torch.jit.script(module.eval()).save(str(path))
        return str(path)

    return save
