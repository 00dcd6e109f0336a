"""From ONNX to an engine: parse, set precision, build with progress and a timing cache, keep it with its record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_perf.backends.gpu import faults
from robot_perf.backends.shared import progress
from robot_perf.backends.trt import api as trt_api
from robot_perf.backends.trt import cache
from robot_perf.backends.trt.api import Api
from robot_perf.backends.trt.precision import Means, means
from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies.builtin import NETWORKS
from robot_perf.policies.onnxfile import lower
from robot_perf.specs import PolicySpec

LEVELS = range(6)


@dataclass(frozen=True, slots=True)
class Engine:
    """A serialized engine and how it came about."""

    plan: bytes
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """The ONNX model: its bytes, and its path where its weights lie in a second file."""

    data: bytes
    path: str | None
    sha256: str


def source(policy: PolicySpec) -> Source:
    """The model of a file or of a built-in network."""
    if policy.kind == "builtin":
        from robot_perf.policies.builtin.onnx_model import render

        data = render(policy.builtin, policy.seed)
        return Source(data, None, hashlib.sha256(data).hexdigest())
    path = Path(str(policy.path))
    data = path.read_bytes()
    return Source(data, str(path), policy.sha256 or hashlib.sha256(data).hexdigest())


def takes(policy: PolicySpec) -> str | None:
    """Why TensorRT can't take the policy's format; None when it can."""
    if policy.kind == "onnx" or (policy.kind == "builtin" and policy.builtin["name"] in NETWORKS):
        return None
    return "It runs ONNX files and the built-in networks; export the policy to ONNX."


def engine_for(
    api: Api, policy: PolicySpec, precision: str, device: Mapping[str, Any], options: Mapping[str, Any]
) -> Engine:
    """The engine of a policy: the one named by the option `engine`, the kept one, or a newly built one.

    Options: `engine` (a file that must fit, else PolicyError), `engine_cache` (False: build and do not keep),
    `builder_level` (0 to 5), `workspace_mib`. Raises PolicyError for an operator or precision that TensorRT does not take.
    """
    model = source(policy)
    how = means(
        precision,
        version=api.version,
        builder_flags=api.flags("BuilderFlag"),
        network_flags=api.flags("NetworkDefinitionCreationFlag"),
        quantised=lower.is_quantised(model.data),
        runtime=trt_api.EDITIONS[api.edition],
    )
    record = cache.Record(
        policy_sha256=model.sha256,
        runtime=api.edition,
        version=api.version,
        device_name=str(device.get("device_name", "")),
        compute_capability=str(device.get("compute_capability", "")),
        flags=_flags(policy, precision, how, options),
    )
    if options.get("engine"):
        found = cache.read(Path(str(options["engine"])), record)
        return Engine(found.engine, {"engine": "given", **found.entries})
    where = cache.folder() if options.get("engine_cache", True) is not False else None
    why = ""
    if where is not None:
        kept, why = cache.find(record, where)
        if kept is not None:
            return Engine(kept.engine, {"engine": "kept", **kept.entries, "engine_cache": str(where)})
    # The RTX edition times nothing when it builds: it compiles for the device when it loads.
    timing = cache.timing_path(record, where) if where is not None and api.edition == "tensorrt" else None
    begin = time.monotonic_ns()
    plan = build(api, policy, model, how, options, timing)
    entries = {"build_ns": time.monotonic_ns() - begin}
    if where is not None:
        cache.write(record, plan, where, entries)
    note = {"engine_note": why} if why else {}
    return Engine(plan, {"engine": "built", "engine_bytes": len(plan), **entries, **note})


def build(
    api: Api, policy: PolicySpec, model: Source, how: Means, options: Mapping[str, Any], timing: Path | None = None
) -> bytes:
    """A serialized engine. Raises PolicyError with the parser's or the builder's words."""
    trt = api.module
    said = api.heard
    progress.say(f"{trt_api.EDITIONS[api.edition]}: reading {policy.name}")
    builder = trt_api.builder(api)
    network = builder.create_network(_network_flags(trt, api.edition, api.major, how))
    parser = trt.OnnxParser(network, api.logger)
    data = model.data
    if how.lower_to is not None:
        data = lower.lower(data, how.lower_to, folder=Path(model.path).parent if model.path else None)
    whole = how.lower_to is not None or model.path is None
    if not (parser.parse(data) if whole else parser.parse(data, model.path)):
        objections = trt_api.parser_errors(parser, data)
        raise PolicyError(
            f"{policy.name}: {api.name} can't take this model",
            why=_shortened(objections),
            do="Run it with --backend onnxruntime, or export it with other operators or another opset.",
            detail=api.last_words(said) if not objections else "",
        )
    config = builder.create_builder_config()
    _configure(trt, config, how, options)
    _fix_sizes(builder, config, network, policy)
    timings = _with_timing(config, timing)
    monitor = _monitor(trt, policy.name)
    if monitor is not None:
        config.progress_monitor = monitor
    progress.say(f"building an engine for {policy.name}")
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        words = api.last_words(said)
        if faults.is_out_of_memory(RuntimeError(words)):
            raise faults.out_of_memory(policy.name, RuntimeError(words))
        raise PolicyError(
            f"{policy.name}: {api.name} could not build an engine",
            why=words,
            do="Run it with --backend onnxruntime, or with precision fp32.",
        )
    if timings is not None and timing is not None:
        cache.keep_timing(timing, bytes(memoryview(timings.serialize())))
    return bytes(memoryview(plan))


def _flags(policy: PolicySpec, precision: str, how: Means, options: Mapping[str, Any]) -> dict[str, Any]:
    level = options.get("builder_level")
    if level is not None and level not in LEVELS:
        raise UsageError(f"builder_level {level!r} is out of range", why="Allowed: 0 to 5.")
    workspace = options.get("workspace_mib")
    if workspace is not None and not (isinstance(workspace, (int, float)) and workspace > 0):
        raise UsageError(f"workspace_mib {workspace!r} is not a size", why="Allowed: above 0 MiB.")
    return {
        "precision": precision,
        "builder_on": sorted(how.on),
        "builder_off": sorted(how.off),
        "strongly_typed": how.strongly_typed,
        "lowered_to": how.lower_to,
        "lowering": lower.VERSION if how.lower_to else None,
        "builder_level": level,
        "workspace_mib": workspace,
        "shapes": {t.name: list(t.shape) for t in policy.inputs if any(t.symbols)},
    }


def _network_flags(trt: Any, edition: str, major: int, how: Means) -> int:
    flags = trt.NetworkDefinitionCreationFlag
    value = 1 << int(flags.STRONGLY_TYPED) if how.strongly_typed else 0
    if edition == "tensorrt" and major < 10:
        value |= 1 << int(flags.EXPLICIT_BATCH)
    return value


def _configure(trt: Any, config: Any, how: Means, options: Mapping[str, Any]) -> None:
    for name in how.on:
        config.set_flag(getattr(trt.BuilderFlag, name))
    for name in how.off:
        config.clear_flag(getattr(trt.BuilderFlag, name))
    if options.get("builder_level") is not None:
        config.builder_optimization_level = int(options["builder_level"])
    if options.get("workspace_mib") is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, round(options["workspace_mib"] * 2**20))


def _fix_sizes(builder: Any, config: Any, network: Any, policy: PolicySpec) -> None:
    """One profile of the policy's own sizes: a control loop has no others."""
    sizes = {t.name: t.shape for t in policy.inputs}
    profile = None
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        if -1 in tuple(tensor.shape):
            profile = profile or builder.create_optimization_profile()
            shape = sizes[tensor.name]
            profile.set_shape(tensor.name, shape, shape, shape)
    if profile is not None:
        config.add_optimization_profile(profile)


def _with_timing(config: Any, path: Path | None) -> Any:
    """The timing cache in use, or None. One that the version refuses is started anew."""
    if path is None or not hasattr(config, "create_timing_cache"):
        return None
    kept = path.read_bytes() if path.exists() else b""
    timings = config.create_timing_cache(kept)
    if timings is None or not config.set_timing_cache(timings, False):
        timings = config.create_timing_cache(b"")
        if timings is None or not config.set_timing_cache(timings, False):
            return None
    return timings


def _monitor(trt: Any, name: str) -> Any:
    """Reports the outermost phase's steps; None where the version has no monitor (before 10)."""
    if not hasattr(trt, "IProgressMonitor"):
        return None

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        """Called from the builder's own threads."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.steps: dict[str, int] = {}

        def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
            if not parent:
                self.steps[phase] = steps
                progress.say(f"building an engine for {name}: {phase}", 0.0)

        def phase_finish(self, phase: str) -> None:
            if self.steps.pop(phase, 0):
                progress.say(f"building an engine for {name}: {phase}", 1.0)

        def step_complete(self, phase: str, step: int) -> bool:
            if self.steps.get(phase):
                progress.say(f"building an engine for {name}: {phase}", min(1.0, (step + 1) / self.steps[phase]))
            return True

    return Monitor()


def _shortened(objections: Any, limit: int = 2) -> str:
    text = "; ".join(" ".join(o.split())[:200] for o in objections[:limit])
    return text + (f"; and {len(objections) - limit} more" if len(objections) > limit else "")
