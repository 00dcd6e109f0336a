"""Built engines on disk, each beside a record of what it was made from. An engine whose record differs is never run.

An engine holds machine code for one GPU and one TensorRT version: another version refuses it with a number, another GPU of the
same architecture may run it slower or wrongly. Folder: $ROBOT_PERF_CACHE, else $XDG_CACHE_HOME/robot-perf, else
~/.cache/robot-perf.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from robot_perf.errors import PolicyError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Record:
    """What an engine was made from. Two equal records mean interchangeable engines."""

    policy_sha256: str
    runtime: str  # tensorrt | tensorrt_rtx
    version: str
    device_name: str
    compute_capability: str
    flags: Mapping[str, Any] = field(default_factory=dict)  # precision, typing, shapes, builder options

    def document(self) -> dict[str, Any]:
        """As JSON would give it back."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self), sort_keys=True))
        return found

    @property
    def key(self) -> str:
        """A file name's worth of it."""
        return hashlib.sha256(json.dumps(self.document(), sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Found:
    """An engine and its sidecar's further entries (build_ns, created_utc)."""

    engine: bytes
    entries: dict[str, Any]


def folder() -> Path:
    """Where engines are kept; made on the first use, for this user alone."""
    root = os.environ.get("ROBOT_PERF_CACHE")
    if root:
        path = Path(root).expanduser() / "engines"
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robot-perf" / "engines"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise PolicyError(
            f"the engine cache {path} can't be made",
            do="Set ROBOT_PERF_CACHE to a folder that can be written.",
            detail=str(error),
        ) from error
    return path


def find(record: Record, where: Path) -> tuple[Found | None, str]:
    """The engine of this record, or None and why it has to be built (empty: there was none)."""
    path = where / f"{record.key}.engine"
    if not path.exists():
        return None, ""
    try:
        return read(path, record), ""
    except PolicyError as error:
        return None, f"the kept engine was not used: {error.why or error.what}"


def read(path: Path, record: Record) -> Found:
    """The engine file at `path`, whose sidecar must say what `record` says. Raises PolicyError with every difference."""
    sidecar = sidecar_of(path)
    try:
        engine = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"the engine {path} can't be read", detail=str(error)) from error
    try:
        entries = json.loads(sidecar.read_text(encoding="utf-8"))
        made_from = dict(entries["record"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolicyError(
            f"the engine {path} is refused",
            why=f"It has no readable record of what it was made from ({sidecar.name}).",
            do="Give the ONNX file: robot-perf builds the engine and writes the record.",
        ) from error
    if differing := differences(made_from, record.document()):
        raise PolicyError(
            f"the engine {path} is refused",
            why=f"It was made for {'; '.join(differing)}.",
            do="Give the ONNX file alone: the engine is built again.",
        )
    if entries.get("engine_sha256") != hashlib.sha256(engine).hexdigest():
        raise PolicyError(
            f"the engine {path} is refused",
            why=f"Its {len(engine):,} bytes are not those that its record was written for.",
            do="Delete it; it is built again.",
        )
    return Found(engine, {k: v for k, v in entries.items() if k != "record"})


def write(record: Record, engine: bytes, where: Path, entries: Mapping[str, Any]) -> Path:
    """Keeps an engine, whole or not at all, with its record. Returns its path."""
    path = where / f"{record.key}.engine"
    document = {
        "schema": SCHEMA,
        "record": record.document(),
        "engine_sha256": hashlib.sha256(engine).hexdigest(),
        "engine_bytes": len(engine),
        "created_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **entries,
    }
    # The record first replaces an older one: a crash in between leaves an engine whose hash does not fit, which is refused.
    _replace(sidecar_of(path), (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())
    _replace(path, engine)
    return path


def sidecar_of(path: Path) -> Path:
    """`policy.engine` -> `policy.engine.json`."""
    return path.with_name(path.name + ".json")


def timing_path(record: Record, where: Path) -> Path:
    """Kernel timings of earlier builds: they hold for one version on one device, whatever the policy."""
    words = json.dumps([record.runtime, record.version, record.device_name, record.compute_capability])
    return where / f"timing-{hashlib.sha256(words.encode()).hexdigest()[:16]}.cache"


def keep_timing(path: Path, data: bytes) -> None:
    """Replaces the timings, whole or not at all."""
    _replace(path, data)


def differences(made_from: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """`version 8.6.0, here 10.3.0`, for every entry that is not equal; flags one by one."""
    found = []
    for key in sorted(set(made_from) | set(wanted)):
        a, b = made_from.get(key), wanted.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += [f"{key} {words}" for words in differences(a, b)]
            continue
        if key == "policy_sha256":
            a, b = str(a)[:12], str(b)[:12]
        found.append(f"{key.replace('_', ' ')} {a}, here {b}")
    return found


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
