"""Opens torch files and works out how they are called: argument trees, input sizes, candidate shapes."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from robot_perf.backends.shared.text import first_line
from robot_perf.errors import PolicyError, RobotPerfError, UsageError
from robot_perf.policies.asked import shape_text, shown
from robot_perf.policies.state import Tree
from robot_perf.specs import PolicySpec, TensorSpec

_ERROR_LINE = re.compile(r"^\s*(?:\w+\.)*\w*(?:Error|Exception):\s*(.+)$")


@dataclass(frozen=True, slots=True)
class Signature:
    """How a module is called: flat names of its tensors, the tree of each argument, the tree of its result if declared."""

    names: tuple[str, ...]
    arguments: tuple[Tree, ...]
    result: Tree


def open_file(policy: PolicySpec, place: Callable[[Any], Any] | None = None) -> Any:
    """The module of a TorchScript or torch.export file, on the CPU, in evaluation mode. Raises PolicyError.

    `place` moves a torch.export program before it becomes a module.
    """
    import torch

    path = str(policy.path)
    try:
        if policy.kind == "torch_export":
            with _only_tensors(), warnings.catch_warnings():
                # torch 2.11 leaves an archive's tensors in the bytes that it read, which nobody else holds, and warns of it
                warnings.filterwarnings("ignore", message="The given buffer is not writable", category=UserWarning)
                program = torch.export.load(path)
            return (program if place is None else place(program)).module()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*torch.jit.load.*", category=DeprecationWarning)
            # Mapped to the CPU: a file saved from a GPU can't be opened without one otherwise.
            return torch.jit.load(path, map_location="cpu").eval()
    except RobotPerfError:
        raise
    except Exception as error:
        raise PolicyError(
            f"{path}: torch {torch.__version__} can't load it",
            why=f"It was written by {policy.metadata['written_by']}." if "written_by" in policy.metadata else "",
            do="Export it again with this torch version, or install the one that wrote it.",
            detail=call_error(error),
        ) from error


def signature(policy: PolicySpec, module: Any) -> Signature:
    """The argument tree. Raises PolicyError for an argument that is no tensor and has no default."""
    if policy.kind == "torch_export":
        import torch.utils._pytree as pytree

        spec = module._in_spec if hasattr(module, "_in_spec") else None
        flat = list(range(len(policy.inputs)))
        if spec is None:
            return Signature(tuple(t.name for t in policy.inputs), (None,) * len(flat), None)
        args, kwargs = pytree.tree_unflatten(flat, spec)
        if kwargs:
            raise PolicyError(f"{policy.path} takes keyword arguments", do="Export it with positional arguments.")
        return Signature(tuple(t.name for t in policy.inputs), tuple(_shape_of(a) for a in args), None)
    names: list[str] = []
    trees: list[Tree] = []
    schema = module.forward.schema
    for argument in schema.arguments[1:]:
        tree = _type_tree(argument.type)
        if tree is False:
            if argument.has_default_value():
                break  # it and what follows keep their defaults
            raise PolicyError(
                f"{policy.path}: forward takes {shown(argument.name)}: {shown(argument.type)}, which is no tensor",
                why=f"{shown(schema, 200)}",
                do="Export a forward that takes tensors, or wrap it in a Python factory (module:callable).",
            )
        trees.append(tree)
        names += _leaf_names(argument.name, tree)
    result: Any = _type_tree(schema.returns[0].type) if schema.returns else None
    return Signature(tuple(names), tuple(trees), None if result is False else result)


def inputs(policy: PolicySpec, module: Any, called: Signature) -> tuple[TensorSpec, ...] | None:
    """Input tensors by --shape or the recording; None when nothing was given and candidates may be tried.

    Raises UsageError for a name that the file does not have, PolicyError when some sizes are missing.
    """
    shapes = {k: tuple(v) for k, v in policy.asked.get("shapes", {}).items()}
    shapes.update({t.name: t.shape for t in policy.inputs if t.name not in shapes})
    recorded = dict(policy.asked.get("recorded", {}))
    if len(called.names) == 1 and len(recorded) == 1:
        recorded = {called.names[0]: next(iter(recorded.values()))}  # names of TorchScript arguments are arbitrary
    if unknown := [n for n in shapes if n not in called.names]:
        raise UsageError(
            f"{policy.path}: --shape {shown(unknown[0])}: there is no such input",
            why=f"Its forward takes: {', '.join(map(shown, called.names)) or 'nothing'}.",
        )
    found: list[TensorSpec] = []
    for name in called.names:
        # Members of one tuple mostly have one shape (the h and c of an LSTM): the first stands for the rest.
        first = name.rsplit(".", 1)[0] + ".0"
        shape = shapes.get(name) or (tuple(recorded[name][1]) if name in recorded else shapes.get(first))
        dtype = recorded[name][0] if name in recorded else parameter_dtype(module)
        if shape is not None:
            found.append(TensorSpec(name, dtype, shape))
    if len(found) == len(called.names):
        return tuple(found)
    if not found and len(called.names) == 1:
        return None
    missing = [n for n in called.names if n not in {t.name for t in found}]
    raise needs_shape(policy, missing, f"Its forward takes: {', '.join(map(shown, called.names))}.")


def sibling_notes(policy: PolicySpec) -> list[str]:
    """What is said about members of a tuple whose size was taken from the first member."""
    given = {*policy.asked.get("shapes", {}), *policy.asked.get("recorded", {})}
    taken = [t.name for t in policy.inputs if "." in t.name and t.name not in given and not t.name.endswith(".0")]
    return [f"input {n}: takes the size of {n.rsplit('.', 1)[0]}.0 (--shape {n}=… sets it)" for n in taken]


def candidates(module: Any) -> list[tuple[int, ...]]:
    """Shapes to try for a single input: columns of recurrent input weights, then of every 2-D weight, in file order."""
    parameters = [(n, tuple(p.shape)) for n, p in module.named_parameters()]
    first = [s[1] for n, s in parameters if "weight_ih" in n and len(s) == 2]
    rest = [s[1] for n, s in parameters if len(s) == 2]
    return [(1, columns) for columns in dict.fromkeys([*first, *rest])]


def needs_shape(policy: PolicySpec, missing: list[str], why: str) -> PolicyError:
    """The refusal that asks for sizes."""
    return PolicyError(
        f"{policy.path}: the sizes of {', '.join(shown(n) for n in missing)} are not in the file and were not given",
        why=why,
        do="Add " + " ".join(f"--shape {shown(n)}=1,48" for n in missing) + " with the sizes that the robot runs.",
    )


def parameter_dtype(module: Any) -> str:
    """numpy's name of the dtype of the first floating-point parameter; float32 where there is none."""
    for parameter in module.parameters():
        if parameter.is_floating_point():
            name = str(parameter.dtype).removeprefix("torch.")
            return name if name in ("float32", "float64", "float16") else "float32"
    return "float32"


def call_error(error: BaseException) -> str:
    """The telling line of a torch error: TorchScript puts it last, under a traceback of its own."""
    lines = [m[1] for m in map(_ERROR_LINE.match, str(error).splitlines()) if m]
    return first_line(RuntimeError(lines[-1])) if lines else first_line(error)


def call_failure(policy: PolicySpec, tensors: tuple[TensorSpec, ...], error: BaseException) -> PolicyError:
    """The refusal of a file whose trial call fails with the sizes given."""
    given = ", ".join(f"{shown(t.name)} {t.dtype} {shape_text(t.shape)}" for t in tensors)
    return PolicyError(
        f"{policy.path or policy.name}: its first call fails",
        why=f"Called with {given}.",
        do="Give the sizes that the robot runs: --shape NAME=…",
        detail=call_error(error),
    )


@contextmanager
def _only_tensors() -> Iterator[None]:
    """torch.export.load falls back to full unpickling for objects it does not know; this switch of torch's forbids it."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _type_tree(kind: Any) -> Any:
    """Tree of a TorchScript type; False for what is neither a tensor nor a tuple of such."""
    if kind.kind() == "TensorType":
        return None
    if kind.kind() == "TupleType":
        parts = [_type_tree(e) for e in kind.elements()]
        return False if False in parts else parts
    return False


def _leaf_names(name: str, tree: Tree) -> list[str]:
    if tree is None:
        return [name]
    return [n for i, part in enumerate(tree) for n in _leaf_names(f"{name}.{i}", part)]


def _shape_of(value: Any) -> Tree:
    return [_shape_of(v) for v in value] if isinstance(value, (tuple, list)) else None
