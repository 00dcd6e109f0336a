"""What a pickle would do, read as a list of instructions with `pickletools`: it is never run."""

from __future__ import annotations

import mmap
import pickletools
from dataclasses import dataclass
from pathlib import Path

from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shown

SCAN_BYTES = 4_000_000
_REBUILD = "torch._utils _rebuild_tensor"
# Names that a plain state dict may refer to.
_HARMLESS = (
    "torch._utils ",
    "collections OrderedDict",
    "torch ",
    "torch.storage ",
    "torch._tensor ",
    "torch.nn.parameter ",
)


@dataclass(frozen=True, slots=True)
class PickleFacts:
    """Importable names a pickle refers to (`module name`), tensor names it holds, and whether it was read to its end."""

    names: tuple[str, ...]
    tensors: tuple[str, ...]
    complete: bool

    @property
    def only_tensors(self) -> bool:
        """Tensors and containers, nothing that is an object of its own."""
        return bool(self.tensors) and all(n.startswith(_HARMLESS) for n in self.names)


def looks_like_pickle(data: mmap.mmap) -> bool:
    """True for a pickle without an archive around it: protocol 2 to 5 by its header, 0 and 1 by reading its instructions."""
    if data[0] == 0x80 and len(data) > 2 and 2 <= data[1] <= 5:
        return True
    if data[0] not in b"(c]}lds" or data[len(data) - 1 : len(data)] not in (b".", b"\n"):
        return False
    facts = scan(bytes(data[:SCAN_BYTES]))
    return facts.complete and bool(facts.names)


def scan(data: bytes) -> PickleFacts:
    """Names and tensor names of a pickle, without running it."""
    names: list[str] = []
    tensors: list[str] = []
    strings: list[str] = []
    memo: dict[int, str] = {}
    last = text = ""
    complete = False
    try:
        for op, value, _ in pickletools.genops(data):
            name = op.name
            if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
                memo[len(memo) if value is None else int(value)] = last
                continue
            if name in ("GET", "BINGET", "LONG_BINGET"):
                last = memo.get(int(value or 0), "")
                if last.startswith("str:"):
                    strings.append(last[4:])
            elif name in ("GLOBAL", "STACK_GLOBAL"):
                last = str(value) if name == "GLOBAL" else " ".join(strings[-2:])
                names.append(last)
            elif isinstance(value, str):
                strings.append(value)
                last = f"str:{value}"
            else:
                last = ""
            if last.startswith(_REBUILD):
                # The dictionary's key was pushed just before the tensor it belongs to.
                text = next((s for s in reversed(strings) if s not in ("torch._utils", "_rebuild_tensor_v2")), "")
                tensors.append(text)
            complete = name == "STOP"
    except Exception:  # noqa: BLE001 - a damaged pickle may raise anything in the reader; what was read so far stands
        complete = False
    return PickleFacts(tuple(dict.fromkeys(names)), tuple(t for t in tensors if t), complete)


def bare(path: Path, facts: PickleFacts, where: str = "") -> PolicyError:
    """The refusal of a pickle: it can run code."""
    refers = (
        f" This one refers to {', '.join(shown(n.replace(' ', '.'), 40) for n in facts.names[:3])}."
        if facts.names
        else ""
    )
    return PolicyError(
        f"{path} is a pickle{where}, not an exported policy",
        why=f"Loading a pickle can run code, so robot-perf never unpickles.{refers}",
        do="Export the network to ONNX (torch.onnx.export) or TorchScript (torch.jit.script) where it was trained.",
    )
