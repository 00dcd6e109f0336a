"""An ONNX file as a PolicySpec: parsed and checked in an order that gives the most useful refusal first."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from robot_perf.errors import BackendUnavailableError, PolicyError, install_line
from robot_perf.policies import state
from robot_perf.policies.asked import Asked, action_position, named_counters, shown
from robot_perf.policies.identify import Identified, mapped
from robot_perf.policies.onnxfile import cost, external, operators, signature
from robot_perf.specs import PolicySpec, TensorSpec

COUNTER_WORDS = ("step", "phase")


def describe(found: Identified, asked: Asked) -> PolicySpec:
    """The PolicySpec of an ONNX file. Raises PolicyError with one of the refusals of docs/policies.md."""
    path = found.path
    model = parse(path)
    notes = list(found.notes)
    notes += operators.check_versions(model, path)
    operators.check_known(model, path, ort_library=asked.ort_library)
    data = external.check(model, path)
    notes += data.notes
    tensors = signature.read(model, path, asked)
    notes += tensors.notes
    carried, possible = state.pairs(tensors.inputs, tensors.outputs, asked.state, policy=path.name)
    notes += possible
    counters = counter_positions(tensors.inputs, {p.target for p in carried}, asked, path.name)
    notes += [counter_note(tensors.inputs[i].name, asked) for i in counters]
    if warning := operators.forgetful(model, len(carried)):
        notes.append(warning)
    action = action_position(asked.action, tensors.outputs, {p.source for p in carried}, policy=path.name)
    return PolicySpec(
        name=path.stem,
        kind="onnx",
        path=str(path.absolute()),
        sha256=digest((path, *data.files)),
        size_bytes=sum(p.stat().st_size for p in (path, *data.files)),
        inputs=tensors.inputs,
        outputs=tensors.outputs,
        action=action,
        state=carried,
        counters=counters,
        state_note=state.finding(carried, tensors.inputs, tensors.outputs),
        seed=asked.seed,
        asked=asked.to_spec(),
        cost=cost.of(model, tensors.inputs, tensors.sizes),
        metadata=_metadata(model, data),
        notes=tuple(notes),
    )


def parse(path: Path) -> Any:
    """The ModelProto at `path`, external data not loaded. Raises PolicyError for a damaged protobuf or an empty graph."""
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise BackendUnavailableError(
            f"{path} is an ONNX model, and the package onnx is not installed",
            do=f"Install it: {install_line('onnx')}",
        ) from error
    with mapped(path) as data:
        try:
            model = onnx.ModelProto.FromString(bytes(data))
        except (DecodeError, RuntimeError, UnicodeDecodeError, ValueError) as error:
            raise PolicyError(
                f"{path} is an ONNX model that is damaged: its protobuf does not parse",
                why=f"{len(data):,} bytes; the outermost fields are whole, something inside is not.",
                do="Download or copy it again and compare its checksum with the source's.",
                detail=str(error),
            ) from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise PolicyError(
            f"{path} is an ONNX model without a graph", why=f"{path.stat().st_size:,} bytes.", do="Export it again."
        )
    _refuse_broken_text(model, path)
    return model


def _refuse_broken_text(model: Any, path: Path) -> None:
    """protobuf hands out a string that is no UTF-8 as bytes; every rule about names would stumble over it."""
    stack = [model]
    while stack:
        for field, value in stack.pop().ListFields():
            values = [value] if isinstance(value, (str, bytes)) or hasattr(value, "ListFields") else value
            if field.type == field.TYPE_MESSAGE:
                stack.extend(values)
            elif field.type == field.TYPE_STRING and (broken := [v for v in values if isinstance(v, bytes)]):
                raise PolicyError(
                    f"{path} is an ONNX model that is damaged: a name in it is not UTF-8",
                    why=f"Field {field.name}: {broken[0][:40]!r}.",
                    do="Download or copy it again and compare its checksum with the source's.",
                )


def counter_positions(inputs: tuple[TensorSpec, ...], carried: set[int], asked: Asked, policy: str) -> tuple[int, ...]:
    """Inputs that count steps: those named by the user, else numbers of shape [1] or [1,1] named like a step or a phase."""
    if asked.counters is not None:
        return named_counters(asked.counters, inputs, carried, policy=policy)
    return tuple(
        i
        for i, t in enumerate(inputs)
        if t.shape in ((1,), (1, 1))
        and t.dtype != "bool"
        and i not in carried
        and any(w in t.name.lower() for w in COUNTER_WORDS)
    )


def counter_note(name: str, asked: Asked) -> str:
    """What is said about an input that counts steps."""
    if name in asked.recorded:
        return f"input {name} counts steps; its values are the recording's"
    return f"input {name} counts steps: it starts at 0 and advances by 1 per step"


def digest(files: tuple[Path, ...]) -> str:
    """SHA-256 over the files in order: a policy is its graph and its weights."""
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                total.update(block)
    return total.hexdigest()


def _metadata(model: Any, data: external.External) -> dict[str, str]:
    entries = {
        "format": "ONNX",
        "ir_version": str(model.ir_version),
        "opset": ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import),
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
    }
    if data.files:
        entries["external_data"] = ", ".join(f.name for f in data.files)
    entries.update({f"metadata.{p.key}": shown(p.value, 500) for p in model.metadata_props})
    return {k: shown(v, 500) for k, v in entries.items() if v}
