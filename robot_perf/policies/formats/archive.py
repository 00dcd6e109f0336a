"""Zip archives: TorchScript, torch.export, checkpoints. Only the directory and small text members are read."""

from __future__ import annotations

import mmap
import zipfile
from pathlib import Path

from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shown
from robot_perf.policies.formats import foreign, pickles
from robot_perf.policies.formats.npz import DAMAGED


def kind(path: Path, data: mmap.mmap) -> str:
    """`torchscript` or `torch_export`. Raises PolicyError for every other zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            found = _known(names)
            if found:
                return found
            raise _refusal(path, archive, names)
    except PolicyError:
        raise
    except DAMAGED as error:
        raise foreign.damaged_zip(path, data, str(error)) from error


def member(path: Path, suffix: str, limit: int, inside: str = "") -> bytes | None:
    """The first member whose name ends in `suffix` and holds `inside`, at most `limit` bytes; None where there is none.

    Raises PolicyError for a damaged or oversized member.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            info = next((i for i in archive.infolist() if i.filename.endswith(suffix) and inside in i.filename), None)
            if info is None:
                return None
            if info.file_size > limit:
                raise PolicyError(
                    f"{path}: its member {shown(info.filename)} has {info.file_size:,} bytes", why=f"At most {limit:,}."
                )
            return archive.read(info)
    except DAMAGED as error:
        raise PolicyError(
            f"{path}: its member …{suffix} is damaged", do="Download or copy it again.", detail=str(error)
        ) from error


def _known(names: list[str]) -> str | None:
    tops = {n.split("/")[0] for n in names}
    inner = {n.split("/", 1)[1] for n in names if "/" in n}
    if "constants.pkl" in inner and any(n.startswith("code/") for n in inner):
        return "torchscript"
    exported = "serialized_exported_program.json" in tops | inner
    modern = ("archive_format" in tops | inner) and any("models/" in n and n.endswith(".json") for n in names)
    return "torch_export" if exported or modern else None


def _refusal(path: Path, archive: zipfile.ZipFile, names: list[str]) -> PolicyError:
    if any("aotinductor/" in n for n in names):
        return PolicyError(
            f"{path} is an AOTInductor package",
            why="It holds code compiled for one machine and one torch version.",
            do="Give the torch.export file (torch.export.save) it was compiled from.",
        )
    if any(n.endswith(".mlmodel") for n in names):
        return PolicyError(
            f"{path} is a zipped CoreML package", why="It runs on Apple hardware only.", do="Give the ONNX file."
        )
    pickled = next((n for n in names if n.endswith("data.pkl")), None)
    if pickled is not None:
        with archive.open(pickled) as stream:
            facts = pickles.scan(stream.read(pickles.SCAN_BYTES))
        if facts.only_tensors:
            return foreign.weights_only(path, list(facts.tensors))
        return pickles.bare(path, facts, where=" inside a zip, as torch.save writes it")
    if names and all(n.endswith(".npy") for n in names):
        return PolicyError(
            f"{path} is an .npz archive of arrays, not a policy", do="Pass recorded inputs with --observations."
        )
    return PolicyError(
        f"{path} is a zip archive without a policy in it",
        why=f"It holds {', '.join(shown(n, 40) for n in names[:4]) or 'nothing'}.",
        do="Unpack it and name the policy file.",
    )
