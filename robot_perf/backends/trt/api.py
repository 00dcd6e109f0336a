"""The Python module of a TensorRT edition: found, loaded, its log kept, its version and flags read."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from robot_perf.backends.gpu import cudart, faults
from robot_perf.backends.shared.text import first_line
from robot_perf.errors import BackendUnavailableError, install_line
from robot_perf.policies.onnxfile.graph import main_nodes

EDITIONS = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT for RTX"}
INSTALL = {
    "tensorrt": install_line("tensorrt"),
    "tensorrt_rtx": install_line("tensorrt-rtx"),
}


@dataclass(frozen=True)
class Api:
    """One edition. `log` holds the newest of what it said at warning level and above, newest last."""

    edition: str
    module: ModuleType
    logger: Any
    log: list[str]

    @property
    def heard(self) -> int:
        """How many lines it has said so far, forgotten ones too: what `last_words` takes."""
        return int(self.logger.heard)

    @property
    def name(self) -> str:
        """For people, with the version."""
        return f"{EDITIONS[self.edition]} {self.version}"

    @property
    def version(self) -> str:
        """As the module says it."""
        return str(self.module.__version__)

    @property
    def major(self) -> int:
        """8, 10, 11; the RTX edition counts from 1."""
        return int(self.version.split(".")[0])

    def flags(self, enum: str) -> tuple[str, ...]:
        """Names of an enum's members."""
        members = getattr(getattr(self.module, enum), "__members__", {})
        return tuple(members)

    def last_words(self, since: int = 0) -> str:
        """The first error since `heard` was `since`, else the last thing said, shortened."""
        said = self.log[-(self.heard - since) :] if self.heard > since else []
        told = next((line for line in said if line.startswith("E ")), said[-1] if said else "")
        return told[2:].strip()[:300]


def unavailable(edition: str) -> str | None:
    """Why the edition can't run here: the package, one of its libraries, or cuda-python is missing; with the install line."""
    if importlib.util.find_spec(edition) is None:
        words = f"{EDITIONS[edition]} is not installed for {sys.executable}"
        if platform.machine() == "aarch64":
            return f"{words}; on a Jetson it comes with JetPack: sudo apt install python3-libnvinfer, and a venv with --system-site-packages"
        return f"{words}; install it: {INSTALL[edition]}"
    try:
        importlib.import_module(edition)
    except (ImportError, OSError, RuntimeError) as error:
        library = faults.missing_library(str(error))
        return f"{EDITIONS[edition]} is installed but can't be imported: {f'{library} is missing' if library else first_line(error)}"
    return cudart.unavailable()


def load(edition: str) -> Api:
    """The edition, with a logger of ours. Raises BackendUnavailableError."""
    try:
        module = importlib.import_module(edition)
    except (ImportError, OSError, RuntimeError) as error:
        raise faults.library_missing(EDITIONS[edition], error, INSTALL[edition]) from error
    log: list[str] = []
    return Api(edition, module, _logger(module, log), log)


def builder(api: Api) -> Any:
    """A Builder. Raises BackendUnavailableError where the version needs a device to build and there is none."""
    try:
        return api.module.Builder(api.logger)
    except (TypeError, RuntimeError) as error:
        raise BackendUnavailableError(
            f"{api.name} can't build an engine here",
            why="It builds on the device that will run it.",
            detail=api.last_words(),
        ) from error


def _logger(module: ModuleType, log: list[str]) -> Any:
    severity = module.ILogger
    letters = {severity.INTERNAL_ERROR: "E", severity.ERROR: "E", severity.WARNING: "W"}

    class Log(module.ILogger):  # type: ignore[misc, name-defined]
        """Keeps errors and warnings; the rest is a build's chatter."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.heard = 0

        def log(self, level: Any, text: str) -> None:
            if level in letters:
                self.heard += 1
                log.append(f"{letters[level]} {text}")
                del log[:-200]

    return Log()


def parser_errors(parser: Any, model: bytes) -> Sequence[str]:
    """What an ONNX parser objects to: operator and name of the node, from the error (10 and newer) or from the `model` itself.

    An older error counts the nodes in the file's order, and says -1 of the model as a whole.
    """
    found, nodes = [], None
    for i in range(parser.num_errors):
        error = parser.get_error(i)
        where = " ".join(
            str(f()) for name in ("node_operator", "node_name") if callable(f := getattr(error, name, None)) and f()
        )
        if not where and (at := error.node()) >= 0:
            nodes = main_nodes(model) if nodes is None else nodes
            where = nodes[at] if at < len(nodes) else f"node {at}"
        found.append(f"{where}: {error.desc()}" if where else str(error.desc()))
    return found
