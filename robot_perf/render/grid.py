"""A table as plain text: headers, columns by display width, numbers to the right."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len

from robot_perf.render.lines import pad, pad_left

__all__ = ["columns_that_fit", "grid"]


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,), gap: int = 3) -> str:
    """Lines of a table without rules; columns in `left` start at their left edge, the others end at their right one."""
    widths = [max(cell_len(r[i]) for r in (headers, *rows)) for i in range(len(headers))]
    lines = []
    for row in (headers, *rows):
        cells = [pad(c, w) if i in left else pad_left(c, w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((" " * gap).join(cells).rstrip())
    return "\n".join(lines)


def columns_that_fit(
    rows: Sequence[Sequence[str]], starts: Collection[int], keys: int, width: int | None, *, gap: int = 3
) -> list[list[int]]:
    """Which columns stand beside each other so that each part fits `width` cells; None has no limit.

    Each part begins with the first `keys` columns, which name its rows. Only columns in `starts` may begin a part: a group
    under one heading stays together, even where it is wider than the screen.
    """
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    if width is None or sum(widths) + gap * (len(widths) - 1) <= width:
        return [list(range(len(widths)))]
    named = list(range(keys))
    room = width - sum(widths[i] + gap for i in named)
    parts: list[list[int]] = []
    used = 0
    for group in _groups(range(keys, len(widths)), starts):
        needed = sum(widths[i] + gap for i in group)
        if not parts or used + needed - gap > room:
            parts.append(list(named))
            used = 0
        parts[-1] += group
        used += needed
    return parts


def _groups(columns: Sequence[int], starts: Collection[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for column in columns:
        if column in starts or not found:
            found.append([])
        found[-1].append(column)
    return found
