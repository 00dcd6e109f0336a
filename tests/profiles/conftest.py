"""Fixtures of the importer tests: the sample files, checked before a test trusts one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def samples(shared_dir: Path) -> Path:
    """The folder of sample profiles, every file as its checksum says."""
    folder = shared_dir / "profiles"
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name} is not the sample"
    return folder
