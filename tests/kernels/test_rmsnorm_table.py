"""The launch table: its generator gives it back from the committed reports, and a launch is named in words."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from robot_perf.kernels.rmsnorm_config import KEEP, PASS, DeviceFacts, choose

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "reports" / "nvidia-h200"
BETWEEN = REPORTS / "rmsnorm_tune_between.json"
TUNES = [REPORTS / "rmsnorm_tune.json", BETWEEN]
TRIALS = [REPORTS / "rmsnorm_trial.json", REPORTS / "rmsnorm_trial_wide.json", BETWEEN]
SPILLS = REPORTS / "rmsnorm_spills.json"
TABLE = ROOT / "kernels" / "rmsnorm_table.py"
SM, L2 = 132, 60 * 2**20
H200 = DeviceFacts(90, SM, L2)


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("rmsnorm_table", ROOT / "benchmarks" / "rmsnorm_table.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_generator_gives_the_table_back(generator):
    assert generator.module(TUNES, TRIALS, generator.spills_of(SPILLS), SM, L2) == TABLE.read_text(encoding="utf-8")


def test_what_spills_in_a_dtype_that_was_not_timed_is_in_no_cell(generator):
    spilling = generator.spills_of(SPILLS)
    assert ("loop", 1, 32, 16384, 32) in {structure for structure, _ in spilling}
    found = generator.gather(TUNES, spilling)
    assert found
    assert not any((structure, d) in spilling for (d, _), times in found.items() for structure in times)


def test_a_width_without_a_point_of_its_own_repeats_the_column_beside(generator):
    cells = {}
    exec(generator.module(TUNES[:1], [], set(), SM, L2), cells)
    for _, column in cells["H200"]:
        assert column[2] == column[1]  # the first tuning has no point between a row per two SMs and a row per SM


def test_a_width_that_nothing_was_timed_at_is_said(generator):
    with pytest.raises(SystemExit, match="no point for column 0 at 64 elements"):
        generator.module([BETWEEN], [], set(), SM, L2)


def test_without_a_trial_the_last_column_repeats_the_one_before(generator):
    cells = {}
    exec(generator.module(TUNES, [], set(), SM, L2), cells)
    assert all(column[generator.LARGE] == column[generator.MANY] for _, column in cells["H200"])


def test_only_launches_in_the_last_columns_form_are_its_candidates(generator):
    found = generator.gather(TRIALS, set(), large=True)
    assert {(65536, 2048), (8192, 16384), (3072, 32768)} <= set(found)
    assert all(2 * m * d >= L2 for d, m in found)
    assert (131072, 1024) not in found  # a guard, which was timed with other hints alone
    assert not generator.large_form({"kernel": "split", "policy": PASS, "ctas": 8, "remote": False})
    assert not generator.large_form({"kernel": "loop", "policy": KEEP, "ctas": 1, "remote": False})
    split = {"kernel": "split", "weight_early": True, "registers": 0}
    assert generator.named(split)
    assert not generator.named({**split, "weight_early": False})
    assert not generator.named({**split, "registers": 48})
    assert not generator.named({**split, "kernel": "row", "pack16": True})
    assert generator.large_form({"kernel": "row", "policy": PASS, "ctas": 1, "remote": False})


@pytest.mark.parametrize(
    ("m", "d", "words"),
    [
        (2048, 65536, "split, 8 blocks per row, 8 warps, sums exchanged by remote stores, x evict-last, weight evict-last, outputs evict-first"),
        (1, 65536, "split, 8 blocks per row, 8 warps, sums exchanged by cluster barriers"),
        (1, 4096, "split, 1 blocks per row, 8 warps"),
        (16384, 8192, "row, 1 x 8192, 8 warps, x evict-last, weight evict-last, outputs evict-first"),
        (132, 131072, "loop, chunks of 4096, 8 blocks per row, 16 warps, sums exchanged by cluster barriers, x evict-last, weight evict-last"),
    ],
)  # fmt: skip
def test_a_launch_in_words(m, d, words):
    assert choose(m, d, 2, H200).words() == words


def test_large_rows_are_sent_by_remote_stores_on_the_h200_alone():
    assert choose(2048, 65536, 2, H200).remote
    assert not choose(2048, 65536, 2, DeviceFacts(100, SM, L2)).remote
    assert not choose(300, 65536, 2, H200).remote  # below the L2: the exchange that was timed there


def test_every_public_report_is_a_test_or_a_stated_non_goal(shared_dir):
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8").split("## Known public reports")[1]
    reference = (shared_dir / "reference" / "rmsnorm.md").read_text(encoding="utf-8")
    reports = set(re.findall(r"#(\d+)", reference.split("## 9. ")[1].split("## 10. ")[0]))
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ") and "#" in line]
    assert len(reports) > 40
    assert reports <= {number for report, _ in rows for number in re.findall(r"#(\d+)", report)}
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "kernels").glob("test_*.py"))
    for report, here in rows:
        named = re.findall(r"`(test_\w+)`", here)
        assert named or "not a goal" in here, report
        assert [name for name in named if f"def {name}(" not in tests] == []
