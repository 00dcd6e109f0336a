"""A table as plain text: headers, columns by display width, numbers to the right."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len

from robot_perf.render.lines import pad, pad_left

__all__ = ["grid"]


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,), gap: int = 3) -> str:
    """Lines of a table without rules; columns in `left` start at their left edge, the others end at their right one."""
    widths = [max(cell_len(r[i]) for r in (headers, *rows)) for i in range(len(headers))]
    lines = []
    for row in (headers, *rows):
        cells = [pad(c, w) if i in left else pad_left(c, w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((" " * gap).join(cells).rstrip())
    return "\n".join(lines)
