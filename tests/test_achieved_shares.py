"""docs/achieved-shares.md is what its generator writes today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_is_generated_and_current(shared_dir: Path) -> None:
    page = (ROOT / "docs" / "achieved-shares.md").read_text(encoding="utf-8")
    date = re.search(r"on (\d{4}-\d\d-\d\d) from 180 published rates", page)
    assert date is not None
    script, rates = ROOT / "benchmarks" / "achieved_shares.py", shared_dir / "data" / "measured_rates.csv"
    command = [sys.executable, str(script), str(rates), "--date", date[1]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == page, "run benchmarks/achieved_shares.py and review the page"
    assert "Of 118 plain single-stream rates 0 exceed it" in page
