"""TorchScript and torch.export files as the conductor sees them: the zip's directory and JSON, never torch itself.

A TorchScript file does not say its shapes: `backends.eager` finds them in the worker. A torch.export file does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies import sizes, state
from robot_perf.policies.asked import Asked, action_position, shown
from robot_perf.policies.formats import archive
from robot_perf.policies.identify import Identified
from robot_perf.policies.onnxfile.model import counter_note, counter_positions, digest
from robot_perf.specs import PolicyCost, PolicySpec, StatePair

# torch.export's ScalarType by number.
DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
}
LARGEST_JSON = 256_000_000
_SYMBOL = re.compile(r"^Symbol\('(\w+)'|^(\w+)$")


def describe(found: Identified, asked: Asked) -> PolicySpec:
    """The PolicySpec of a TorchScript file (inputs unknown) or of a torch.export file."""
    if asked.ort_library is not None:
        raise UsageError(f"{found.path}: --ort-library belongs to ONNX files")
    if found.kind == "torch_export":
        return _exported(found, asked)
    return PolicySpec(
        name=found.path.stem,
        kind="torchscript",
        path=str(found.path.absolute()),
        sha256=digest((found.path,)),
        size_bytes=found.size_bytes,
        state_note="state: looked for when it is loaded",
        seed=asked.seed,
        asked=asked.to_spec(recorded=True),
        metadata={"format": "TorchScript"},
        notes=found.notes,
    )


def _exported(found: Identified, asked: Asked) -> PolicySpec:
    path = found.path
    _refuse_pickled(path)
    program = _program(path)
    try:
        graph = program["graph_module"]["graph"]
        signature = program["graph_module"]["signature"]
        values: dict[str, Any] = graph["tensor_values"]
        inputs = [
            _declared(s["user_input"]["arg"], values, path) for s in signature["input_specs"] if "user_input" in s
        ]
        outputs = [
            _declared(s["user_output"]["arg"], values, path) for s in signature["output_specs"] if "user_output" in s
        ]
        weights = [values[s["parameter"]["arg"]["name"]]["sizes"] for s in signature["input_specs"] if "parameter" in s]
        parameters = sum(math.prod(n["as_int"] for n in w) for w in weights)
        limits = {k: _limit(v) for k, v in program.get("range_constraints", {}).items()}
        nested = _nested(program["graph_module"].get("module_call_graph", []))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise PolicyError(
            f"{path} is a torch.export archive that this version can't read",
            why=f"It was written by torch {shown(program.get('torch_version', 'unknown'), 40)}; its description lacks {shown(error, 60)}.",
            do="Export it again with a current torch.",
        ) from error
    tensors = sizes.settle(inputs, outputs, path, asked, limits)
    carried, notes = state.pairs(tensors.inputs, tensors.outputs, asked.state, policy=path.name)
    taken = {p.target for p in carried}
    carried += tuple(
        StatePair(i, o)
        for i, o in nested
        if i not in taken
        and (tensors.inputs[i].dtype, tensors.inputs[i].shape) == (tensors.outputs[o].dtype, tensors.outputs[o].shape)
    )
    counters = counter_positions(tensors.inputs, {p.target for p in carried}, asked, path.name)
    return PolicySpec(
        name=path.stem,
        kind="torch_export",
        path=str(path.absolute()),
        sha256=digest((path,)),
        size_bytes=found.size_bytes,
        inputs=tensors.inputs,
        outputs=tensors.outputs,
        action=action_position(asked.action, tensors.outputs, {p.source for p in carried}, policy=path.name),
        state=carried,
        counters=counters,
        state_note=state.finding(carried, tensors.inputs, tensors.outputs),
        seed=asked.seed,
        asked=asked.to_spec(),
        cost=PolicyCost(parameters=parameters, bytes_read=4 * parameters),
        metadata={
            "format": "torch.export",
            "written_by": f"torch {shown(program.get('torch_version', 'unknown'), 40)}",
        },
        notes=(*found.notes, *tensors.notes, *notes, *(counter_note(tensors.inputs[i].name, asked) for i in counters)),
    )


def _refuse_pickled(path: Path) -> None:
    """A torch.export archive may carry pickled objects, which torch would run: only plain tensors are let through."""
    for name in ("weights", "constants"):
        data = archive.member(path, f"model_{name}_config.json", LARGEST_JSON)
        if data is not None and b'"use_pickle": true' in data.replace(b'"use_pickle":true', b'"use_pickle": true'):
            raise PolicyError(
                f"{path} is a torch.export archive with pickled {name}",
                why="Loading a pickle can run code, so robot-perf never unpickles.",
                do="Export it again with plain tensors as parameters, buffers and constants.",
            )


def _program(path: Path) -> dict[str, Any]:
    data = archive.member(path, "serialized_exported_program.json", LARGEST_JSON)
    data = data or archive.member(path, ".json", LARGEST_JSON, inside="models/")
    try:
        program = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise PolicyError(
            f"{path}: its program is damaged JSON", do="Download or copy it again.", detail=str(error)
        ) from error
    if not isinstance(program, dict):
        raise PolicyError(f"{path}: its program is {type(program).__name__}, not a torch.export description")
    return program


def _declared(argument: Mapping[str, Any], values: Mapping[str, Any], path: Path) -> sizes.Declared:
    if "as_tensor" not in argument:
        raise PolicyError(
            f"{path}: an input or output is {shown(next(iter(argument), 'nothing'))}, not a tensor",
            do="Export it with tensors alone.",
        )
    name = argument["as_tensor"]["name"]
    value = values[name]
    if value["dtype"] not in DTYPES:
        raise PolicyError(
            f"{path}: {shown(name)} has a dtype that NumPy can't hold (torch ScalarType {shown(value['dtype'])})",
            why=f"Held: {', '.join(DTYPES.values())}.",
        )
    return str(name), DTYPES[value["dtype"]], tuple(_axis(n) for n in value["sizes"])


def _axis(size: Mapping[str, Any]) -> int | str:
    if "as_int" in size:
        return int(size["as_int"])
    text = str(size["as_expr"]["expr_str"])
    match = _SYMBOL.match(text)
    return (match[1] or match[2]) if match else text


def _limit(entry: Mapping[str, Any]) -> tuple[int, int | None]:
    least, most = entry.get("min_val"), entry.get("max_val")
    return (least if isinstance(least, int) else 0), (most if isinstance(most, int) and most < 2**62 else None)


def _nested(calls: list[Any]) -> list[tuple[int, int]]:
    """Flat (input, output) positions of tuple arguments that come back as a member of the result."""
    outer = next((c["signature"] for c in calls if c.get("fqn") == "" and c.get("signature")), None)
    if outer is None:
        return []
    arguments = json.loads(outer["in_spec"])[1]["children_spec"][0]["children_spec"]
    result = json.loads(outer["out_spec"])[1]
    return state.nested([_tree(a) for a in arguments], _tree(result))


def _tree(spec: Mapping[str, Any]) -> state.Tree:
    return None if spec.get("type") is None else [_tree(c) for c in spec["children_spec"]]
