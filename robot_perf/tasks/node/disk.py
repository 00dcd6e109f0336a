"""Keeps a node's Runs within their room: the oldest PASS goes first, then the oldest INCONCLUSIVE, then the rest; never the newest.

An index, one JSON line a block, says which files are this node's: no other file is ever touched.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

INDEX = "blocks.jsonl"
_ORDER = {"PASS": 0, "INCONCLUSIVE": 1, "INVALID": 2, "FAIL": 3}


@dataclass(frozen=True, slots=True)
class BlockFile:
    """One saved block."""

    file: str
    status: str
    bytes: int


def read_index(folder: Path) -> list[BlockFile]:
    """The blocks that are still there, oldest first. A torn last line (power loss) is left out."""
    path = folder / INDEX
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            block = BlockFile(str(entry["file"]), str(entry["status"]), int(entry["bytes"]))
        except (ValueError, KeyError, TypeError):
            continue
        if Path(block.file).name == block.file and (folder / block.file).is_file():
            found.append(block)
    return found


def add_and_prune(folder: Path, block: BlockFile, limit_bytes: int) -> list[str]:
    """Notes a new block and removes older ones until all fit. Returns the names removed."""
    blocks = [*read_index(folder), block]
    removed: list[str] = []
    total = sum(b.bytes for b in blocks)
    victims = sorted(blocks[:-1], key=lambda b: _ORDER.get(b.status, 9))  # stable: oldest first within a status
    while total > limit_bytes and victims:
        victim = victims.pop(0)
        (folder / victim.file).unlink(missing_ok=True)
        total -= victim.bytes
        removed.append(victim.file)
    kept = [b for b in blocks if b.file not in removed]
    temporary = folder / f".{INDEX}"
    temporary.write_text("".join(json.dumps(asdict(b)) + "\n" for b in kept), encoding="utf-8")
    temporary.replace(folder / INDEX)
    return removed
