"""An ONNX model computed in float16 or bfloat16: weights rounded, casts at its inputs and outputs. Bytes in, bytes out.

For runtimes that follow the file's own types: ONNX Runtime's CUDA provider, strongly typed TensorRT networks. Signature, names and
order stay; inputs and outputs keep their float32, so that the host feeds and reads what it always did. Written without the
`onnx` package, because the measured process may lack it. Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shown
from robot_perf.policies.onnxfile import graph as g
from robot_perf.policies.onnxfile.protobuf import Field, block, encoded, fields
from robot_perf.policies.onnxfile.tensors import FLOAT, LOW, RawTensor, lowered, read_tensor, write_tensor

VERSION = 1  # of the rules below: engines built from a lowered model are kept under it
LARGEST_BYTES = 2**31 - 1

# These keep computing in float32, between casts: their definition wants it, or their result is an index or a random value.
_IMAGES = ("Resize", "Upsample", "RoiAlign", "NonMaxSuppression")
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
KEPT = frozenset((*_IMAGES, *_RANDOM, "Range", "EyeLike", "MelWeightMatrix", "DFT", "STFT"))


def is_quantised(data: bytes) -> bool:
    """True when the model holds quantisation operators."""
    return any("Quantize" in op or op.startswith("QLinear") for op in g.operators(data))


def lower(data: bytes, precision: str, *, folder: Path | None = None) -> bytes:
    """The model in `fp16` or `bf16`; weights of a second file (in `folder`) are taken into the result.

    Raises PolicyError for what can't be lowered by rule: branches and loops, local functions, quantised models, weights beyond
    float16's range, bfloat16 below opset 13, results above 2 GiB.
    """
    try:
        return _lower(data, precision, folder)
    except (ValueError, UnicodeDecodeError, OverflowError) as error:
        raise PolicyError(
            f"precision {precision}: the model can't be rewritten", why="Its protobuf is not sound.", detail=str(error)
        ) from error


def _lower(data: bytes, precision: str, folder: Path | None) -> bytes:
    model = list(fields(data))
    if any(n == 25 for n, _, _ in model):
        raise _refusal(precision, "It holds local functions.")
    if is_quantised(data):
        raise _refusal(precision, "It is quantised: run it with precision int8.")
    if precision == "bf16" and _opset(model) < 13:
        raise _refusal(precision, f"Its opset {_opset(model)} has no bfloat16; 13 and newer do.")
    parts = [
        block(7, _Lowering(g.read(value), precision, folder).graph())
        if n == 7 and not isinstance(value, int)
        else encoded(n, w, value)
        for n, w, value in model
    ]
    result = b"".join(parts)
    if len(result) > LARGEST_BYTES:
        raise _refusal(precision, f"The result would have {len(result):,} bytes; a protobuf holds less than 2 GiB.")
    return result


def _opset(model: list[Field]) -> int:
    for number, _, value in model:
        if number == 8 and not isinstance(value, int):
            entry = {n: v for n, _, v in fields(value)}
            domain = entry.get(1, memoryview(b""))
            if not isinstance(domain, int) and bytes(domain) in (b"", b"ai.onnx"):
                version = entry.get(2, 1)
                return version if isinstance(version, int) else 1
    return 1


def _refusal(precision: str, why: str) -> PolicyError:
    return PolicyError(
        f"precision {precision}: the model can't be lowered by rule",
        why=why,
        do=f"Export it in {precision}, or use tf32.",
    )


@dataclass
class _Lowering:
    """One graph on its way. `types` are element types by tensor name in the new graph; FLOAT there means kept in float32."""

    source: g.Graph
    precision: str
    folder: Path | None
    types: dict[str, int] = field(default_factory=dict)
    out: list[bytes] = field(default_factory=list)
    weights: list[bytes] = field(default_factory=list)
    tensors: dict[str, RawTensor] = field(default_factory=dict)
    widened: set[str] = field(default_factory=set)

    @property
    def low(self) -> int:
        """The element type computed in."""
        return LOW[self.precision]

    def graph(self) -> bytes:
        """The new GraphProto."""
        self._read_weights()
        casts_in = self._inputs()
        for node in self.source.nodes:
            self._node(node)
        self._outputs()
        kept = [encoded(n, w, v) for n, w, v in self.source.other]
        return b"".join([*(block(1, n) for n in (*casts_in, *self.out)), *(block(5, t) for t in self.weights), *kept])

    def _read_weights(self) -> None:
        for message in self.source.initializers:
            tensor = read_tensor(message, self.folder)
            self.tensors[tensor.name] = tensor
            self.types[tensor.name] = self.low if tensor.elem_type == FLOAT else tensor.elem_type
            self.weights.append(write_tensor(self._lowered(tensor)) if tensor.elem_type == FLOAT else bytes(message))

    def _lowered(self, tensor: RawTensor) -> RawTensor:
        result, beyond = lowered(tensor, self.precision)
        if beyond is not None:
            raise _refusal(
                self.precision, f"{shown(tensor.name)} reaches {beyond:.3g}, beyond float16's 65504; bf16 holds it."
            )
        return result

    def _inputs(self) -> list[bytes]:
        casts = []
        for name, elem_type in self.source.inputs:
            if name in self.types:
                continue  # an initializer that is listed as an input as well
            self.types[name] = elem_type
            if elem_type == FLOAT:
                casts.append(g.cast(name, self._renamed(name), self.low))
                self.types[self._renamed(name)] = self.low
        return casts

    def _renamed(self, name: str) -> str:
        return f"{name}/{self.precision}"

    def _current(self, name: str) -> str:
        """The name under which the new graph computes with a tensor of the old one."""
        return self._renamed(name) if self._renamed(name) in self.types else name

    def _node(self, node: g.Node) -> None:
        if node.has_subgraph:
            raise _refusal(self.precision, f"{node.op} {shown(node.name)} holds a branch or a loop.")
        if node.op in KEPT or node.domain not in ("", "ai.onnx"):
            self._kept(node)
            return
        attributes = [self._attribute(node, a) for a in node.attributes]
        if node.op == "ConstantOfShape" and not attributes:
            attributes = [g.tensor_attribute("value", write_tensor(RawTensor("", (1,), self.low, b"\0\0")))]
        inputs = [self._current(n) for n in node.inputs]
        given = [self.types.get(n) for n in inputs]
        outputs = list(node.outputs)
        for i, kind in enumerate(g.output_types(node, given, attributes, self.low)):
            if i < len(outputs) and outputs[i]:
                name = outputs[i]
                if kind == self.low and name in self.source.float_outputs:
                    outputs[i] = self._renamed(name)
                self.types[outputs[i]] = kind if kind is not None else 0
        self.out.append(g.write(node, inputs, outputs, attributes))

    def _kept(self, node: g.Node) -> None:
        """Between casts, in float32: its inputs are widened, its outputs lowered again."""
        inputs = []
        for name in node.inputs:
            current = self._current(name)
            inputs.append(self._wide(name) if name and self.types.get(current) == self.low else current)
        given = [
            FLOAT if n and self.types.get(self._current(n)) == self.low else self.types.get(self._current(n))
            for n in node.inputs
        ]
        outputs, after = [], []
        for name, kind in zip(node.outputs, g.output_types(node, given, node.attributes, FLOAT), strict=False):
            if kind != FLOAT or not name:
                outputs.append(name)
                self.types[name] = kind or 0
                continue
            wide = f"{name}/fp32"
            # A graph output that is already float32 keeps its name; others get the lowered value under the old one.
            if name in self.source.float_outputs:
                outputs.append(name)
                self.types[name] = FLOAT
                target, wide = self._renamed(name), name
            else:
                outputs.append(wide)
                target = name
            after.append(g.cast(wide, target, self.low))
            self.types[target] = self.low
        outputs += node.outputs[len(outputs) :]
        self.out.append(g.write(node, inputs, outputs, node.attributes))
        self.out += after

    def _wide(self, name: str) -> str:
        """The float32 value of a tensor: the file's own weight, the graph's own input, or a cast."""
        if self.types.get(name) == FLOAT:
            return name
        wide = f"{name}/fp32"
        if wide not in self.widened:
            self.widened.add(wide)
            if name in self.tensors:
                self.weights.append(write_tensor(self.tensors[name].named(wide)))
            else:
                self.out.append(g.cast(self._current(name), wide, FLOAT))
        return wide

    def _attribute(self, node: g.Node, attribute: bytes) -> bytes:
        name, entries = g.attribute(attribute)
        if node.op == "Cast" and name == "to" and entries.get(3) == FLOAT:
            return g.int_attribute("to", self.low)
        if node.op in ("Constant", "ConstantOfShape") and name == "value":
            tensor = read_tensor(entries[5], self.folder)
            if tensor.elem_type == FLOAT:
                result, beyond = lowered(tensor, self.precision, clamp=True)
                return attribute if beyond is not None else g.tensor_attribute("value", write_tensor(result))
        if node.op == "Constant" and name in ("value_float", "value_floats"):
            result, _ = lowered(g.float_constant(name, entries), self.precision, clamp=True)
            return g.tensor_attribute("value", write_tensor(result))
        return attribute

    def _outputs(self) -> None:
        for name, elem_type in self.source.outputs:
            if elem_type != FLOAT:
                continue
            if self.types.get(self._renamed(name)) == self.low and name not in {n for n, _ in self.source.inputs}:
                if self.types.get(name) != FLOAT:  # a kept operator writes it, or the name is listed twice
                    self.out.append(g.cast(self._renamed(name), name, FLOAT))
                    self.types[name] = FLOAT
            elif self.types.get(name) == self.low:
                raise _refusal(self.precision, f"Its output {shown(name)} is a weight.")


__all__ = ["KEPT", "VERSION", "is_quantised", "lower"]
