"""The Run file: one Parquet file, rows are steps, conditions are JSON in the file's metadata under `robot_perf.run`."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf.errors import RunFileError, UsageError, did_you_mean
from robot_perf.run.model import Run

KEY = b"robot_perf.run"


def save(run: Run, path: Path, *, force: bool = False, numbered: bool = False) -> Path:
    """Writes the Run beside its final name, then gives it that: a reader never sees half a file. Returns the path.

    Without `force` nothing is replaced: where the name is taken it is an error, or with `numbered` the next free NAME-2, NAME-3, …
    """
    pa, pq = _pyarrow()
    if path.exists() and not force and not numbered:
        raise UsageError(f"{path} exists", do="Choose another name with -o or add --force.")
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: pa.array(column, pa.int64()) for name, column in run.columns.items()})
    table = table.replace_schema_metadata({KEY: json.dumps(_plain(dict(run.conditions)), allow_nan=False).encode()})
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(table, temporary, compression="zstd")
        return temporary.replace(path) if force else _named(temporary, path, numbered=numbered)
    finally:
        temporary.unlink(missing_ok=True)


def _named(temporary: Path, path: Path, *, numbered: bool) -> Path:
    """The file under `path`, or the next free name: a link fails where the name is taken, a look beforehand may come too early."""
    more = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
    for target in itertools.chain((path,), more if numbered else ()):
        try:
            os.link(temporary, target)
        except FileExistsError:
            continue
        except OSError:  # a file system without hard links (exFAT, some network ones): a look must do
            if target.exists():
                continue
            temporary.replace(target)
        return target
    raise UsageError(f"{path} exists", do="Choose another name with -o or add --force.")


def _plain(value: Any) -> Any:
    """JSON has neither infinity nor NaN: a condition that holds one (a backend's fact, say) is kept as its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _pyarrow() -> tuple[Any, Any]:
    """pyarrow and its parquet module. A build that refuses this numpy (pyarrow 25 beside numpy 1) says so at import."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise RunFileError(
            "Run files can't be read or written: pyarrow does not import",
            do="On JetPack 6 install with: pip install -c constraints-jetson.txt -e .",
            detail=str(error),
        ) from None
    return pa, pq


def _no_file(path: Path) -> RunFileError:
    """What is there instead of the Run, and the nearest name or the newest Run there is."""
    folder = path if path.is_dir() else path.parent
    runs = sorted((p for p in folder.glob("*.parquet") if p.is_file()), key=lambda p: p.stat().st_mtime, reverse=True)
    if path.is_dir():
        return RunFileError(
            f"{path} is a folder", do=f"The newest Run in it: {runs[0]}" if runs else "Name a Run file."
        )
    near = did_you_mean(path.name, [p.name for p in runs])
    return RunFileError(f"{path} {'is not a file' if path.exists() else 'does not exist'}", do=near)


def load(path: Path) -> Run:
    """A saved Run. Raises RunFileError with what is wrong: absent, not Parquet, not ours, damaged, another schema."""
    pa, pq = _pyarrow()
    if not path.is_file():
        raise _no_file(path)
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunFileError(
            f"{path} is not a readable Run file",
            why=f"It has {path.stat().st_size:,} bytes and is no whole Parquet file.",
            do=f"A step map becomes a Run by: robot-perf recover {path}"
            if path.suffix == ".map"
            else "Copy it again; robot-perf recover lists what a measurement that died has left.",
            detail=str(error),
        ) from None
    raw = (table.schema.metadata or {}).get(KEY)
    if raw is None:
        raise RunFileError(f"{path} is a Parquet file, but not a Run", why="Its metadata has no robot_perf.run.")
    try:
        conditions = json.loads(raw)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RunFileError(f"{path}: the Run's conditions are damaged", detail=str(error)) from None
    if not isinstance(conditions, dict):
        raise RunFileError(f"{path}: the Run's conditions are damaged", why="They are not a JSON object.")
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if column.type != pa.int64() or column.null_count:
            raise RunFileError(
                f"{path}: column {name} is not whole int64", why=f"It is {column.type} with {column.null_count} nulls."
            )
        columns[name] = np.array(column.to_numpy(), dtype=np.int64)
    try:
        run = Run(columns, conditions)
        _ = run.policy, run.loop, run.budget
    except RunFileError as error:
        raise RunFileError(f"{path}: {error.what}", why=error.why, do=error.do) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFileError(
            f"{path}: the Run's conditions are damaged", detail=f"{type(error).__name__}: {error}"
        ) from None
    return run
