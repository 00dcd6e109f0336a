"""The newest IR version and opset that the installed runtime takes."""

from __future__ import annotations

import re
from functools import cache

from robot_perf.policies.onnxfile import encode

# Every onnxruntime since 1.18 (the oldest that the `onnx` extra admits) takes these; below them nothing needs asking.
ALWAYS_TAKEN_OPSET = 21
ALWAYS_TAKEN_IR = 10


@cache
def newest() -> tuple[str, int | None, int | None]:
    """(library and version, newest IR version, newest opset); None where it does not say.

    Asked of onnxruntime itself by offering it a one-operator model of ours with absurd numbers: its refusal names its limits,
    which no function does. Without onnxruntime the `onnx` package's own numbers serve.
    """
    try:
        import onnxruntime
    except ImportError:
        import onnx

        return f"onnx {onnx.__version__}", int(onnx.IR_VERSION), int(onnx.defs.onnx_opset_version())
    ir = _refused(onnxruntime, 17, 9999, r"max supported IR version: (\d+)")
    opset = _refused(onnxruntime, 9999, 8, r"till opset (\d+)")
    return f"onnxruntime {onnxruntime.__version__}", ir, opset


def _refused(onnxruntime: object, opset: int, ir_version: int, pattern: str) -> int | None:
    x, y = ("x", "float32", [1]), ("y", "float32", [1])
    data = encode.model([encode.Node("Identity", ["x"], ["y"])], {}, [x], [y], opset=opset, ir_version=ir_version)
    try:
        onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - the runtime's exceptions have no common base; the text is what is wanted
        found = re.search(pattern, str(error))
        return int(found[1]) if found else None
    return None
