"""torch itself, for every backend that runs it: whether it is there, how many threads it has, what the report says of it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

from robot_perf.backends.shared import cpu_options
from robot_perf.backends.shared.text import first_line
from robot_perf.errors import UsageError, install_line


def unavailable() -> str | None:
    """Why torch can't run here, with the install line. Imports torch."""
    try:
        import torch  # noqa: F401 - a wheel may be there and still lack a library that it links to
    except (ImportError, OSError) as error:
        if importlib.util.find_spec("torch") is None:
            return f"torch is not installed for {sys.executable}; install it: {install_line('torch')}"
        return f"torch is installed but can't be imported: {first_line(error)}"
    return None


def base_facts(backend: str) -> dict[str, Any]:
    """Versions, threads and mode of every torch backend."""
    import torch

    return {
        "backend": backend,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "inter_threads": torch.get_num_interop_threads(),
        "mode": "no_grad",
    }


def set_threads(options: Mapping[str, Any], default: int) -> None:
    """Sizes torch's pools: as asked, else `default` intra-op threads and one inter-op thread."""
    import torch

    for key, set_to, current in (
        ("threads", torch.set_num_threads, torch.get_num_threads),
        ("inter_threads", torch.set_num_interop_threads, torch.get_num_interop_threads),
    ):
        value = cpu_options.threads(options, key, least=1)
        wanted = value if value is not None else (default if key == "threads" else 1)
        if current() == wanted:
            continue
        try:
            set_to(wanted)
        except RuntimeError as error:
            # torch allows the inter-op pool to be sized once per process; a default must not fail for that.
            if value is not None:
                raise UsageError(
                    f"{key} can't be changed in this process any more", detail=first_line(error)
                ) from error
