"""Refusals of files that are no policy we load, each with its evidence and the next step."""

from __future__ import annotations

import json
import mmap
import re
import struct
from pathlib import Path

from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shown
from robot_perf.policies.formats import pickles
from robot_perf.policies.formats.wire import Walk

REPLACEMENT = b"\xef\xbf\xbd"  # what a decoder writes for a byte that is no UTF-8
_EXPORT = "Export the network to ONNX (torch.onnx.export) or TorchScript (torch.jit.script) where it was trained."
_PLAN_DO = "Give the ONNX file it was built from."
# (bytes, offset, format, next step)
MAGIC = (
    (b"TFL3", 4, "a TensorFlow Lite model", "Convert it to ONNX (tf2onnx --tflite) and give that file."),
    (b"ftrt", 0, "a TensorRT plan", _PLAN_DO),
    (b"ptrt", 0, "a TensorRT plan", _PLAN_DO),
    (
        b"\x89HDF\r\n\x1a\n",
        0,
        "an HDF5 file (Keras or a checkpoint)",
        "Export the network to ONNX where it was trained.",
    ),
    (b"GGUF", 0, "a GGUF language model", "robot-perf runs ONNX, TorchScript and torch.export files."),
    (b"ORTM", 4, "an ONNX Runtime .ort model", "Give the .onnx file it was converted from."),
    (b"\x93NUMPY", 0, "a NumPy array", "Pass recorded inputs with --observations, in an .npz file."),
    (b"\x1f\x8b", 0, "gzip data", "Unpack it first (gunzip or tar xzf)."),
    (b"\x28\xb5\x2f\xfd", 0, "zstd data", "Unpack it first (unzstd)."),
    (b"\xfd7zXZ\x00", 0, "xz data", "Unpack it first (unxz)."),
    (b"BZh", 0, "bzip2 data", "Unpack it first (bunzip2)."),
    (b"7z\xbc\xaf\x27\x1c", 0, "a 7-zip archive", "Unpack it first."),
    (b"Rar!\x1a\x07", 0, "a RAR archive", "Unpack it first."),
    (
        b"\x7fELF",
        0,
        "compiled machine code (ELF)",
        "It belongs to one machine: give the ONNX file it was compiled from.",
    ),
)
_LFS = b"version https://git-lfs.github.com/spec/v"


def folder(path: Path) -> PolicyError:
    """The refusal of a folder."""
    if path.suffix == ".mlpackage" or (path / "Manifest.json").is_file():
        return PolicyError(
            f"{path} is a CoreML package", why="It runs on Apple hardware only.", do="Give the ONNX file."
        )
    if (path / "saved_model.pb").is_file():
        return PolicyError(f"{path} is a TensorFlow SavedModel", do="Convert it with tf2onnx and give the .onnx file.")
    inside = sorted(p.name for p in path.iterdir() if p.suffix in (".onnx", ".pt", ".pt2", ".yaml"))[:5]
    return PolicyError(
        f"{path} is a folder",
        why=f"It holds {', '.join(shown(n, 40) for n in inside)}." if inside else "",
        do="Name one policy file.",
    )


def refuse_by_magic(path: Path, head: bytes, size: int) -> None:
    """Raises for a format that is known by its first bytes."""
    if head.startswith(_LFS):
        found = re.search(rb"^size (\d{1,18})\s*$", head, re.MULTILINE)
        stands = f"{int(found[1]):,}" if found else "an unknown number of"
        raise PolicyError(
            f"{path} is a Git LFS pointer ({size} bytes standing for {stands} bytes)",
            do='Run "git lfs pull" in its repository, then try again.',
        )
    for magic, offset, name, do in MAGIC:
        if head[offset : offset + len(magic)] == magic:
            plan = name == "a TensorRT plan"
            why = (
                "It was made for one GPU and one TensorRT version."
                if plan
                else f"Its first bytes are {head[:8].hex(' ')}."
            )
            raise PolicyError(f"{path} is {name}", why=why, do=do)


def is_text(head: bytes) -> bool:
    """True for bytes that are printable UTF-8 (a cut character at the end is forgiven)."""
    if b"\x00" in head:
        return False
    text = head.decode("utf-8", "replace").rstrip("\ufffd")
    return bool(text) and sum(c.isprintable() or c in "\r\n\t\f" for c in text) >= 0.99 * len(text)


def is_markup(head: bytes) -> bool:
    """True for HTML or XML."""
    return head.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"<"


def refusal(path: Path, data: mmap.mmap, walk: Walk) -> PolicyError:
    """The refusal of a file that no magic number names."""
    named = _by_name(path, walk)
    if named is not None:
        return named
    if pickles.looks_like_pickle(data):
        return pickles.bare(path, pickles.scan(bytes(data[: pickles.SCAN_BYTES])))
    head = bytes(data[:4096])
    return _text(path, head) if is_text(head) else _binary(path, data, walk)


def _by_name(path: Path, walk: Walk) -> PolicyError | None:
    if walk.is_coreml or path.suffix == ".mlmodel":
        return PolicyError(
            f"{path} is a CoreML model", why="It runs on Apple hardware only.", do="Give the ONNX file it came from."
        )
    if path.suffix in (".plan", ".engine", ".trt"):
        return PolicyError(
            f"{path} is a TensorRT plan by its name",
            why="A plan is made for one GPU and one TensorRT version.",
            do=_PLAN_DO,
        )
    return None


def _binary(path: Path, data: mmap.mmap, walk: Walk) -> PolicyError:
    if (names := _safetensors_names(data)) is not None:
        return weights_only(path, names)
    if (count := _replacements(data)) * 100 > len(data):
        return text_damage(path, count)
    if walk.ir_version is not None and walk.fields[:1] == (1,):
        return PolicyError(
            f"{path} begins like an ONNX model but is damaged: its protobuf does not parse",
            why=f"{len(data):,} bytes; {len(walk.fields)} fields read before the damage.",
            do="Download or copy it again and compare its checksum with the source's.",
        )
    return PolicyError(
        f"{path} is none of the formats that robot-perf loads",
        why=f"{len(data):,} bytes, beginning {bytes(data[:12]).hex(' ')}.",
        do="Give an ONNX, TorchScript or torch.export file.",
    )


def text_damage(path: Path, count: int) -> PolicyError:
    """The refusal of a binary file that went through a text decoder."""
    return PolicyError(
        f"{path} was damaged by a text conversion",
        why=f"It holds {count:,} sequences EF BF BD, which a UTF-8 decoder writes for bytes it can't read; they can't be restored.",
        do="Get it again: fetch it in binary mode (curl -O, git with a binary attribute, scp).",
    )


def damaged_zip(path: Path, data: mmap.mmap, detail: str) -> PolicyError:
    """The refusal of a zip whose directory or members can't be read."""
    if count := _replacements(data):
        return text_damage(path, count)
    return PolicyError(
        f"{path} is a zip archive that is damaged or cut short",
        why=f"The size found is {len(data):,} bytes and its directory, which is at the end, can't be read.",
        do="Download or copy it again and compare its size with the source's.",
        detail=detail,
    )


def weights_only(path: Path, names: list[str]) -> PolicyError:
    """The refusal of a checkpoint: tensors without a graph."""
    found = f"Tensors: {', '.join(shown(n, 48) for n in names[:3])}{', …' if len(names) > 3 else ''}." if names else ""
    return PolicyError(f"{path} holds weights without a network (a checkpoint or state dict)", why=found, do=_EXPORT)


def _text(path: Path, head: bytes) -> PolicyError:
    start = head.decode("utf-8", "replace").lstrip("\ufeff")
    first = "".join(c if c.isprintable() else " " for c in start).strip()[:40]
    lower = start[:2000].lower()
    if "<!doctype html" in lower or "<html" in lower:
        return PolicyError(
            f"{path} is HTML: a web page was saved instead of the file",
            why=f"It begins: {first}",
            do="Download the raw file (curl -L -O with the raw link, or log in first).",
        )
    if lower.lstrip().startswith("<"):
        return PolicyError(f"{path} is XML text, not a policy", why=f"It begins: {first}", do="Give the ONNX file.")
    name = "JSON text" if lower.lstrip()[:1] in ("{", "[") else "plain text"
    return PolicyError(
        f"{path} is {name}, not a policy", why=f"It begins: {first}", do="Give the ONNX or TorchScript file itself."
    )


def _replacements(data: mmap.mmap) -> int:
    count, at = 0, data.find(REPLACEMENT)
    while at >= 0:
        count += 1
        at = data.find(REPLACEMENT, at + 3)
    return count


def _safetensors_names(data: mmap.mmap) -> list[str] | None:
    if len(data) < 10 or data[8:9] != b"{":
        return None
    (length,) = struct.unpack("<Q", data[:8])
    if not 2 <= length <= min(len(data) - 8, 100_000_000):
        return None
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
    except (ValueError, RecursionError):
        return None
    return [str(k) for k in header if k != "__metadata__"] if isinstance(header, dict) else None
