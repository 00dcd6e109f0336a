"""Fixtures for every test: the optional folder of shared sample files, and a golden-file switch."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A shell ignores SIGINT for what it starts in the background, and children inherit that: tests that interrupt would then fail.
signal.signal(signal.SIGINT, signal.default_int_handler)


if importlib.util.find_spec("hypothesis") is not None:  # not on every machine whose GPU is tested
    from hypothesis import settings

    # Answers are judged, not durations, and by the same examples everywhere: a red run is the change's own.
    settings.register_profile("fixed", deadline=None, derandomize=True)
    settings.register_profile("search", deadline=None)
    settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the files under tests/golden from today's output"
    )


@pytest.fixture
def hangup_heard():  # type: ignore[no-untyped-def]
    """Under nohup SIGHUP is ignored, and what a test starts inherits that, as it should."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder `shared` beside the checkout: real policies, profiles and tables with known answers."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("the folder ../shared with sample policies, profiles and tables is not beside this checkout")
    return path


@pytest.fixture
def golden(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """`golden(name, text)` compares text with tests/golden/name, or rewrites it under --update-golden."""

    def check(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run pytest --update-golden and review the file"
        assert text == path.read_text(encoding="utf-8")

    return check
