"""Operators: which the runtime can't know, which remember within a call, and all nodes of a model in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shown
from robot_perf.policies.onnxfile import limits

STANDARD = ("", "ai.onnx")
# Domains that onnxruntime's CPU build registers beside the standard one.
RUNTIME = (
    "ai.onnx.ml",
    "ai.onnx.training",
    "ai.onnx.preview.training",
    "com.microsoft",
    "com.microsoft.nchwc",
    "com.ms.internal.nhwc",
)
RECURRENT = ("LSTM", "GRU", "RNN")
OLDEST_TESTED_OPSET = 11


def nodes(model: Any) -> Iterator[Any]:
    """Every node: main graph first, then subgraphs and functions."""
    stack = list(model.graph.node)
    stack.reverse()
    for function in model.functions:
        stack[:0] = list(function.node)
    while stack:
        node = stack.pop()
        yield node
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.HasField("g") else []
            for graph in (*graphs, *attribute.graphs):
                stack[:0] = list(graph.node)


def check_versions(model: Any, path: Path) -> tuple[str, ...]:
    """Notes on the opset. Raises PolicyError when the IR version or an opset is newer than the runtime takes."""
    standard = [o.version for o in model.opset_import if o.domain in STANDARD]
    opset = max(standard, default=1)
    if model.ir_version > limits.ALWAYS_TAKEN_IR or opset > limits.ALWAYS_TAKEN_OPSET:
        library, newest_ir, newest_opset = limits.newest()
        for what, got, newest in (("IR version", model.ir_version, newest_ir), ("opset", opset, newest_opset)):
            if newest is not None and got > newest:
                raise PolicyError(
                    f"{path} has {what} {got}",
                    why=f"The newest that {library} takes is {newest}.",
                    do=f"Re-export it with {'opset_version=' if what == 'opset' else 'IR version '}{newest} or less, or upgrade the runtime.",
                )
    if standard and opset < OLDEST_TESTED_OPSET:
        return (f"opset {opset} is older than the range robot-perf is tested with (from {OLDEST_TESTED_OPSET})",)
    return ()


def check_known(model: Any, path: Path, *, ort_library: str | None) -> None:
    """Raises PolicyError for an operator that no registered domain has, unless a custom library was given."""
    if ort_library is not None:
        if not Path(ort_library).is_file():
            raise PolicyError(
                f"--ort-library {ort_library}: there is no such file", do="Give the path of the operators' .so file."
            )
        return
    import onnx

    versions = {("" if o.domain in STANDARD else o.domain): o.version for o in model.opset_import}
    functions = {(f.domain, f.name) for f in model.functions}
    readable = versions.get("", 0) <= onnx.defs.onnx_opset_version()
    for node in nodes(model):
        domain = "" if node.domain in STANDARD else node.domain
        if (node.domain, node.op_type) in functions:
            continue
        known = domain in RUNTIME
        if domain == "":
            # An opset newer than the `onnx` package can't be judged here: the runtime will.
            known = not readable or onnx.defs.has(node.op_type, "") or not node.op_type
        if not known:
            raise PolicyError(
                f"{path} uses the operator {shown(node.op_type)} of domain {shown(domain or 'ai.onnx')} version "
                f"{versions.get(domain, 'unstated')}, which the runtime does not have",
                why="A custom operator must be registered from the library that implements it.",
                do="Add --ort-library PATH/TO/libops.so, or export without the custom operator.",
            )


def forgetful(model: Any, carried: int) -> str | None:
    """The warning about a recurrent operator whose memory no state pair carries; None where there is nothing to say."""
    recurrent = [n.op_type for n in nodes(model) if n.op_type in RECURRENT and n.domain in STANDARD]
    if not recurrent or carried:
        return None
    name = recurrent[0]
    return (
        f"this file has {'an' if name in ('LSTM', 'RNN') else 'a'} {name} but its state is a constant: every step starts from the "
        "same memory. Its latency is valid; its behaviour is not that of the trained policy"
    )
