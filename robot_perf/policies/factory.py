"""Python factories: `module:callable`, described without importing them and constructed in the worker.

Contract: `module:callable(**options)` returns an object with `step(inputs: dict[str, array]) -> sequence of arrays`, or one
that is itself callable with the arrays in order; optionally `reset()`, `close()` and `spec()`, a mapping with `inputs` and
`outputs` ({name: shape} or {name: [shape, dtype]}), `action` and `counters`.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf.errors import PolicyError, UsageError, did_you_mean
from robot_perf.policies import state
from robot_perf.policies.asked import Asked, action_position, position, shown
from robot_perf.specs import PolicySpec, TensorSpec

_OURS = str(Path(__file__).resolve().parents[1])


@dataclasses.dataclass(frozen=True, slots=True)
class Built:
    """What a factory returned, the spec completed with what it says about itself, and how long each part took."""

    policy: Any
    spec: PolicySpec
    import_ns: int
    construct_ns: int


def describe(text: str, asked: Asked) -> PolicySpec:
    """The PolicySpec of `module:callable`: its source is hashed and searched for torch, not imported."""
    module, _, attribute = text.partition(":")
    source = _source(module)
    known = {n: (d, s) for n, (d, s) in asked.recorded.items()} if not asked.shapes else {}
    inputs = tuple(
        TensorSpec(n, asked.recorded.get(n, ("float32", ()))[0], s) for n, s in asked.shapes.items()
    ) or tuple(TensorSpec(n, d, s) for n, (d, s) in known.items())
    options = {k: plain(v) for k, v in asked.options.items()}
    return PolicySpec(
        name=attribute,
        kind="factory",
        path=str(source) if source else None,
        sha256=hashlib.sha256(source.read_bytes()).hexdigest() if source else None,
        size_bytes=source.stat().st_size if source else None,
        inputs=inputs,
        seed=asked.seed,
        factory=text,
        asked={**dataclasses.replace(asked, options=options).to_spec(), "folder": str(Path.cwd())},
        metadata={"factory_uses": "torch" if source and _imports_torch(source) else "numpy"},
    )


def construct(spec: PolicySpec) -> Built:
    """Imports the module and calls the factory. Raises PolicyError with the user's own frames when their code fails."""
    module_name, _, attribute = str(spec.factory).partition(":")
    folder = spec.asked.get("folder", str(Path.cwd()))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    start = time.monotonic_ns()
    try:
        target: Any = _import(spec, module_name, folder)
        for part in attribute.split("."):
            target = _member(spec, target, part)
        imported = time.monotonic_ns()
        policy = target(**spec.asked.get("options", {}))
        said = policy.spec() if callable(getattr(policy, "spec", None)) else {}
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        raise failure(spec, error) from error
    built = time.monotonic_ns()
    if not callable(getattr(policy, "step", None)) and not callable(policy):
        raise PolicyError(
            f"{spec.factory} returned {type(policy).__name__}, which has no step() and is not callable",
            do="Return an object with step(inputs: dict) -> sequence of arrays, or a callable.",
        )
    resets = any(callable(getattr(policy, name, None)) for name in ("reset", "reset_memory"))
    return Built(policy, complete(spec, said, resets), imported - start, built - imported)


def end(policy: Any) -> None:
    """The object's own close(), where it has one: it may hold a camera or a bus."""
    close = getattr(policy, "close", None)
    if callable(close):
        close()


def _import(spec: PolicySpec, name: str, folder: str) -> Any:
    """The module. One that is not there was mistyped or lies elsewhere: no fault of the policy's code."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that the policy imports
        here = [path.stem for path in Path(folder).glob("*.py")]
        raise PolicyError(
            f"{spec.factory}: there is no module {shown(error.name)}",
            why=f"Looked in {shown(folder, 200)} and among the packages of {shown(sys.executable, 200)}.",
            do=did_you_mean(error.name, here) or "Run it from the module's folder, or install the module.",
        ) from None


def _member(spec: PolicySpec, owner: Any, name: str) -> Any:
    if hasattr(owner, name):
        return getattr(owner, name)
    offered = [n for n, value in vars(owner).items() if callable(value) and not n.startswith("_")]
    raise PolicyError(
        f"{spec.factory}: {shown(getattr(owner, '__name__', owner))} has no {shown(name)}",
        why=f"Callable in it: {', '.join(offered[:12]) or 'nothing'}.",
        do=did_you_mean(name, offered),
    )


def complete(spec: PolicySpec, said: Any, resets: bool) -> PolicySpec:
    """`spec` with what the object's `spec()` says. Sizes given with --shape win over it; state pairs are found by name."""
    if not isinstance(said, Mapping):
        raise PolicyError(
            f"{spec.factory}: spec() returned {type(said).__name__}, wanted a mapping with inputs and outputs"
        )
    given = {t.name: t for t in spec.inputs}
    inputs = tuple(given.get(t.name, t) for t in _tensors(spec, said.get("inputs", {}))) or spec.inputs
    outputs = _tensors(spec, said.get("outputs", {}))
    if not inputs:
        raise PolicyError(
            f"{spec.factory} does not say what it is fed",
            why="Neither --shape nor its spec() names inputs.",
            do="Add --shape NAME=1,48 for each input, or give the object spec() with inputs and outputs.",
        )
    asked_state = [(str(a), str(b)) for a, b in spec.asked.get("state", [])]
    if asked_state and not outputs:
        raise UsageError(
            f"{spec.factory}: --state needs a spec() that names its outputs",
            do="An object can keep its own state: give it reset().",
        )
    carried, possible = state.pairs(inputs, outputs, asked_state, policy=str(spec.factory)) if outputs else ((), ())
    note = state.finding(carried, inputs, outputs)
    if resets and not carried:
        note = "state: kept in the object, reset() is called before measuring"
    words = [w for w in spec.asked.get("counters", said.get("counters")) or [] if w != "none"]
    counters = tuple(position(str(w), inputs, policy=spec.name, option="--counter", what="input") for w in words)
    spec = dataclasses.replace(
        spec,
        inputs=inputs,
        outputs=outputs,
        state=carried,
        state_note=note,
        counters=counters,
        notes=(*spec.notes, *possible),
    )
    word = spec.asked.get("action", said.get("action"))
    return with_action(spec, None if word is None else str(word)) if outputs else spec


def with_action(spec: PolicySpec, word: str | None) -> PolicySpec:
    """`spec` with its action settled. Raises UsageError when it can't be told."""
    carried = {p.source for p in spec.state}
    return dataclasses.replace(spec, action=action_position(word, spec.outputs, carried, policy=spec.name))


def with_results(spec: PolicySpec, outputs: Sequence[TensorSpec]) -> PolicySpec:
    """`spec` after its first call: real outputs, the action, and one note where a dtype is not the one that was fed."""
    if spec.outputs:
        wanted = [(t.dtype, t.shape) for t in spec.outputs]
        if wanted != [(t.dtype, t.shape) for t in outputs]:
            got = ", ".join(f"{t.dtype} {list(t.shape)}" for t in outputs)
            raise PolicyError(
                f"{spec.name}: the first call answered {got}",
                why="Wanted by its spec(): " + ", ".join(f"{d} {list(s)}" for d, s in wanted),
            )
        return spec
    spec = dataclasses.replace(spec, outputs=tuple(outputs))
    fed = {t.dtype for t in spec.inputs}
    odd = sorted({t.dtype for t in outputs if t.dtype.startswith("float")} - fed)
    if odd and any(d.startswith("float") for d in fed):
        fed_words = "/".join(sorted(d for d in fed if d.startswith("float")))
        spec = dataclasses.replace(
            spec, notes=(*spec.notes, f"it answers {'/'.join(odd)} although it is fed {fed_words}")
        )
    return with_action(spec, spec.asked.get("action"))


def failure(spec: PolicySpec, error: BaseException) -> PolicyError:
    """An exception of the user's code as one message with the user's frames alone."""
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0] if str(error) else type(error).__name__
    frames = user_frames(error)
    return PolicyError(
        f"{spec.factory or spec.name}: the policy's own code raised {shown(text, 300)}",
        why=f"At {frames}." if frames else "",
        do="Mend the factory, or its options (--option NAME=VALUE).",
    )


def user_frames(error: BaseException, limit: int = 4) -> str:
    """`file.py:12 in build < file.py:40 in main`: the innermost frames that are neither ours nor the import machinery's."""
    frames = [
        f"{shown(frame.filename, 120)}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OURS, "<frozen")) and f"{os.sep}importlib{os.sep}" not in frame.filename
    ]
    return " < ".join(reversed(frames[-limit:]))


def plain(value: Any) -> Any:
    """An option's value: text as YAML reads a scalar (`100`, `0.5`, `true`, `[1,2]`), anything else as it is."""
    if not isinstance(value, str):
        return value
    import yaml

    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return read if isinstance(read, (bool, int, float, str, list)) else value


def _tensors(spec: PolicySpec, said: Any) -> tuple[TensorSpec, ...]:
    found = []
    try:
        for name, value in dict(said).items():
            shape, dtype = value if len(value) == 2 and isinstance(value[0], (list, tuple)) else (value, "float32")
            found.append(TensorSpec(str(name), np.dtype(dtype).name, tuple(int(n) for n in shape)))
    except (TypeError, ValueError) as error:
        raise PolicyError(
            f"{spec.factory}: spec() describes a tensor wrongly",
            why="Wanted {name: shape} or {name: [shape, dtype]}, for example {'obs': [[1, 48], 'float32']}.",
            detail=str(error),
        ) from error
    return tuple(found)


def _source(module: str) -> Path | None:
    parts = module.split(".")
    for root in (Path.cwd(), *(Path(p) for p in sys.path if p)):
        for candidate in (root.joinpath(*parts[:-1], parts[-1] + ".py"), root.joinpath(*parts, "__init__.py")):
            if candidate.is_file():
                return candidate.absolute()
    return None


def _imports_torch(source: Path) -> bool:
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return False  # the import in the worker will name the line
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
        if any(n.split(".")[0] == "torch" for n in names):
            return True
    return False
